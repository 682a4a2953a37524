"""Data twins: generated sets with the shape and statistics of large public ones, and a known truth.

A sample is generated from its number and the seed alone, so the result is the same for any number of workers, and any
part of a set can be made without the rest. Background features follow a power law of ranks; planted groups of
correlated features, whose presence depends on the class, carry the signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import Source
from gdm_dask.twin_rows import fill_rows, row_lengths

#: Nonzeros that one job generates.
JOB_NONZEROS = 4_000_000


@dataclass(frozen=True)
class Twin:
    """Shape and statistics of a set.

    Attributes
    ----------
    n_samples, n_features : int
    row_length : float
        Mean number of features drawn for a sample.
    spread : float
        Standard deviation of the logarithm of the row lengths.
    exponent : float
        Frequency of the feature of rank r falls as ``r ** -exponent``.
    unit_rows : bool
        Whether values are counts scaled to rows of unit length; otherwise every value is 1.
    n_groups, group_size : int
        Planted groups, and the members of each.
    presence : float
        How often a planted group occurs in a sample of the class that it speaks for.
    contrast : float
        How often it occurs in the other class, relative to that; the groups differ in it, from this up to 1.
    """

    n_samples: int
    n_features: int
    row_length: float
    spread: float
    exponent: float
    unit_rows: bool
    n_groups: int = 150
    group_size: int = 6
    presence: float = 0.12
    contrast: float = 0.25


#: The sets as LIBSVM publishes them: samples, features and nonzeros of a row; exponents fitted to their frequencies.
TWINS = {
    "webspam": Twin(350_000, 16_609_143, 3_730, 0.6, 1.05, True),
    "kdd2010": Twin(19_264_097, 29_890_095, 29.4, 0.15, 0.95, False),
    "url": Twin(2_396_130, 3_231_961, 115.6, 0.2, 1.1, False),
    "news20": Twin(19_996, 1_355_191, 455, 0.7, 1.0, True),
}


@dataclass(frozen=True)
class Truth:
    """What was planted: members of each group, the class that it speaks for, and how often it occurs in each class."""

    groups: np.ndarray
    signs: np.ndarray
    rates: np.ndarray


def scaled_twin(name: str, scale: float = 1.0, n_samples: int | None = None, n_features: int | None = None) -> Twin:
    """A twin with its numbers of samples and features scaled, or set.

    Examples
    --------
    >>> twin = scaled_twin("webspam", 0.001)
    >>> twin.n_samples, twin.n_features
    (350, 16609)
    """
    if name not in TWINS:
        raise BadInput(f"there is no twin of {name!r}: choose one of {', '.join(TWINS)}")
    if not scale > 0:
        raise BadInput(f"scale is a positive number, not {scale!r}")
    twin = TWINS[name]
    samples = n_samples or max(10, round(twin.n_samples * scale))
    features = n_features or max(100, round(twin.n_features * scale))
    planted = min(twin.n_groups, features // (4 * twin.group_size))
    length = min(twin.row_length, features / 8)
    return replace(twin, n_samples=samples, n_features=features, row_length=length, n_groups=planted)


def plant(twin: Twin, seed: int) -> Truth:
    """Choose the planted groups of a twin."""
    rng = np.random.default_rng([seed, 1])
    members = rng.choice(twin.n_features, twin.n_groups * twin.group_size, replace=False)
    groups = np.sort(members.reshape(twin.n_groups, twin.group_size), axis=1).astype(np.uint32)
    signs = rng.choice(np.array([-1, 1]), twin.n_groups)
    other = twin.presence * rng.uniform(twin.contrast, 1.0, twin.n_groups)
    own = np.full(twin.n_groups, twin.presence)
    rates = np.where(signs[:, None] > 0, np.column_stack([other, own]), np.column_stack([own, other]))
    return Truth(groups, signs, rates)


@dataclass(frozen=True)
class TwinRows:
    """Samples `start` to `stop` of a twin, generated when they are loaded."""

    twin: Twin
    seed: int
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the nonzeros, about."""
        return int((self.stop - self.start) * self.twin.row_length * 8)

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""
        yield lambda: generate(self.twin, self.seed, self.start, self.stop)


def generate(twin: Twin, seed: int, start: int, stop: int) -> Slab:
    """Samples `start` to `stop`, features increasing within each."""
    truth = plant(twin, seed)
    numbers = np.arange(start, stop)
    lengths = row_lengths(seed, numbers, twin.row_length, twin.spread)
    most = int(lengths.sum()) + len(numbers) * truth.groups.size
    features, values = np.empty(most, np.uint32), np.empty(most)
    indptr, labels = np.zeros(len(numbers) + 1, np.int64), np.empty(len(numbers))
    fill_rows(
        seed, numbers, lengths, twin.n_features, twin.exponent, twin.unit_rows, truth.groups, truth.rates, features,
        values, indptr, labels,
    )  # fmt: skip
    nnz = indptr[-1]
    return Slab(len(numbers), labels, features[:nnz], samples_of(indptr), values[:nnz])


def twin_source(name: str, twin: Twin, seed: int) -> Source:
    """A twin as a source for `ingest`."""

    def jobs(run_bytes: int) -> list[Any]:
        del run_bytes  # samples are cut by a fixed rule, so that the runs do not depend on the machine
        step = max(1, round(JOB_NONZEROS / twin.row_length))
        bounds = range(0, twin.n_samples, step)
        return [TwinRows(twin, seed, start, min(start + step, twin.n_samples)) for start in bounds]

    return Source(
        kind="sparse",
        jobs=jobs,
        nbytes=int(twin.n_samples * twin.row_length * 8),
        description={"format": f"twin of {name}", "seed": seed, **asdict(twin)},
        n_features=twin.n_features,
    )
