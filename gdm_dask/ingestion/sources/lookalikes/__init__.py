"""Lookalikes: generated sets with the shape and statistics of large public ones, and a known truth.

A sample is generated from its number and the seed alone, so the result is the same for any number of workers, and any
part of a set can be made without the rest. Background features follow a power law of ranks; planted groups of
correlated features, whose presence depends on the class, carry the signal; features that occur once are dealt out, one
after the other, so that their number is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import CutSource, Source, SourceFacts
from gdm_dask.ingestion.sources.lookalikes.rows import MEMBER, feature_of, fill_rows, row_lengths

#: Nonzeros that one job generates.
JOB_NONZEROS = 4_000_000
#: Nonzeros that are generated at a time, near the caches.
PIECE_NONZEROS = 500_000


@dataclass(frozen=True)
class Lookalike:
    """Shape and statistics of a set.

    Attributes
    ----------
    n_samples, n_features : int
    row_length : float
        Mean number of nonzeros of a sample, planted and single ones included.
    spread : float
        Standard deviation of the logarithm of the row lengths.
    exponent : float
        Frequency of the feature of rank r falls as ``r ** -exponent``.
    unit_rows : bool
        Whether values are counts scaled to rows of unit length; otherwise every value is 1.
    positive : float
        Share of the samples of class +1.
    single : float
        Share of the features that occur in one sample of the training set only.
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
    positive: float = 0.5
    single: float = 0.0
    n_groups: int = 150
    group_size: int = 6
    presence: float = 0.12
    contrast: float = 0.25

    @property
    def n_single(self) -> int:
        """Features that occur once; the last ranks."""
        return round(self.single * self.n_features)

    @property
    def planted_length(self) -> float:
        """Nonzeros of a sample that belong to planted groups, in the mean."""
        return self.n_groups * self.group_size * MEMBER * self.presence * (3 + self.contrast) / 4

    @property
    def draws(self) -> float:
        """Ranks to draw for a sample, so that its distinct features and all others come to `row_length`."""
        wanted = max(1.0, self.row_length - self.planted_length - self.n_single / self.n_samples)
        return draws_for(wanted, self.n_features - self.n_single, self.exponent, self.spread)


#: The sets as LIBSVM publishes them: samples, features, nonzeros of a row and share of positive samples; the exponents
#: are of the usual size for text and crossed categories. Planted groups are a small part of a row.
LOOKALIKES = {
    "webspam": Lookalike(350_000, 16_609_143, 3_730, 0.6, 1.0, True, 0.606),
    "kdd2010": Lookalike(19_264_097, 29_890_095, 29.4, 0.15, 1.0, False, 0.862, 0.72, 60, 3, 0.025, 0.1),
    "url": Lookalike(2_396_130, 3_231_961, 115.6, 0.2, 1.0, False, 0.331, 0.0, 80, 5, 0.05),
    "news20": Lookalike(19_996, 1_355_191, 455, 0.7, 1.0, True, 0.5, 0.0, 120, 5, 0.1),
}


@lru_cache
def draws_for(distinct: float, n_features: int, exponent: float, spread: float = 0.0) -> float:
    """How many ranks to draw in the mean, log-normal with `spread`, so that about `distinct` different ones come out.

    Examples
    --------
    >>> round(draws_for(10.0, 10**9, 0.5), 2), draws_for(50.0, 100, 1.0) > 100
    (10.0, True)
    """
    edges = np.unique(np.concatenate([np.arange(min(1000, n_features)), np.geomspace(1, n_features, 2000).round()]))
    edges = np.append(edges[edges < n_features], n_features)
    sizes = np.diff(edges)
    shares = np.diff(_share_below(edges, n_features, exponent)) / sizes

    normal, weights = np.polynomial.hermite_e.hermegauss(7)
    lengths = np.exp(spread * normal - spread * spread / 2)
    missed = np.log1p(-np.minimum(shares, 1 - 1e-12))

    def found(draws: float) -> float:
        hit = [float((sizes * -np.expm1(draws * length * missed)).sum()) for length in lengths]
        return float(np.dot(weights, hit) / weights.sum())

    low, high = distinct, distinct
    while found(high) < distinct and high < 1e6 * distinct:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) < distinct else (low, middle)
    return high


def _share_below(ranks: np.ndarray, n_features: int, exponent: float) -> np.ndarray:
    """Share of the draws with a rank below the given ones, as `fill_rows` draws them."""
    if abs(exponent - 1.0) < 1e-9:
        shares: np.ndarray = np.log1p(ranks) / np.log1p(n_features)
    else:
        power = 1.0 - exponent
        shares = ((1.0 + ranks) ** power - 1.0) / ((1.0 + n_features) ** power - 1.0)
    return shares


@dataclass(frozen=True)
class Truth:
    """The planted groups: members of each, the class it speaks for, and how often it occurs in each class."""

    groups: np.ndarray
    signs: np.ndarray
    rates: np.ndarray


def scaled_lookalike(
    name: str, scale: float = 1.0, n_samples: int | None = None, n_features: int | None = None
) -> Lookalike:
    """A lookalike with its numbers of samples and features scaled, or set.

    Examples
    --------
    >>> lookalike = scaled_lookalike("webspam", 0.001)
    >>> lookalike.n_samples, lookalike.n_features
    (350, 16609)
    """
    if name not in LOOKALIKES:
        raise BadInput(f"there is no lookalike of {name!r}; choose one of {', '.join(LOOKALIKES)}")
    if not scale > 0:
        raise BadInput(f"`scale` must be positive, got {scale!r}")
    lookalike = LOOKALIKES[name]
    samples = n_samples or max(10, round(lookalike.n_samples * scale))
    features = n_features or max(100, round(lookalike.n_features * scale))
    planted = min(lookalike.n_groups, features // (16 * lookalike.group_size))
    length = min(lookalike.row_length, features / 8)
    return replace(lookalike, n_samples=samples, n_features=features, row_length=length, n_groups=planted)


def plant(lookalike: Lookalike, seed: int) -> Truth:
    """Choose the planted groups of a lookalike, among the features that are neither frequent nor single."""
    rng = np.random.default_rng([seed, 1])
    n_shared = lookalike.n_features - lookalike.n_single
    ranks = n_shared // 2 + rng.choice(
        n_shared - n_shared // 2, lookalike.n_groups * lookalike.group_size, replace=False
    )
    members = feature_of(ranks, lookalike.n_features)
    groups = np.sort(members.reshape(lookalike.n_groups, lookalike.group_size), axis=1).astype(np.uint32)
    signs = rng.choice(np.array([-1, 1]), lookalike.n_groups)
    other = lookalike.presence * rng.uniform(lookalike.contrast, 1.0, lookalike.n_groups)
    own = np.full(lookalike.n_groups, lookalike.presence)
    rates = np.where(signs[:, None] > 0, np.column_stack([other, own]), np.column_stack([own, other]))
    return Truth(groups, signs, rates)


@dataclass(frozen=True)
class LookalikeRows:
    """Samples `start` to `stop` of a lookalike, generated when they are loaded."""

    lookalike: Lookalike
    seed: int
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the nonzeros, about."""
        return int((self.stop - self.start) * self.lookalike.row_length * 8)

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""
        yield lambda: generate(self.lookalike, self.seed, self.start, self.stop)


def generate(lookalike: Lookalike, seed: int, start: int, stop: int) -> Slab:
    """Samples `start` to `stop`, features increasing within each; those from `n_samples` on are a test set."""
    truth = plant(lookalike, seed)
    numbers = np.arange(start, stop)
    lengths = row_lengths(seed, numbers, lookalike.draws, lookalike.spread)
    others = truth.groups.size + 1 + -(-lookalike.n_single // lookalike.n_samples)
    step = max(1, PIECE_NONZEROS // (int(lookalike.draws) + others))
    most = max((int(lengths[k : k + step].sum()) for k in range(0, len(lengths), step)), default=0) + step * others
    features, values = np.empty(most, np.uint32), np.empty(most)
    indptr, labels = np.zeros(len(numbers) + 1, np.int64), np.empty(len(numbers))
    pieces = []
    for first in range(0, len(numbers), step):  # what a piece may take is far more than what it takes
        part = slice(first, first + step)
        pointers = np.zeros(len(numbers[part]) + 1, np.int64)
        fill_rows(
            seed, numbers[part], lengths[part], lookalike.n_samples, lookalike.n_features, lookalike.n_single,
            lookalike.exponent, lookalike.unit_rows, lookalike.positive, truth.groups, truth.rates, features, values,
            pointers, labels[part],
        )  # fmt: skip
        indptr[first + 1 : first + len(pointers)] = indptr[first] + pointers[1:]
        pieces.append((features[: pointers[-1]].copy(), values[: pointers[-1]].copy()))
    found = [np.concatenate(part) for part in zip(*pieces, strict=True)]
    return Slab(len(numbers), labels, found[0], samples_of(indptr), found[1])


def lookalike_parts(lookalike: Lookalike, seed: int, start: int, stop: int) -> list[LookalikeRows]:
    """Samples `start` to `stop`, cut by a fixed rule, so that the parts do not depend on the machine."""
    step = max(1, round(JOB_NONZEROS / lookalike.draws))
    return [LookalikeRows(lookalike, seed, first, min(first + step, stop)) for first in range(start, stop, step)]


def lookalike_source(name: str, lookalike: Lookalike, seed: int, start: int = 0, stop: int | None = None) -> Source:
    """A lookalike, or samples `start` to `stop` of it, as a source for `ingest`."""
    last = lookalike.n_samples if stop is None else stop
    jobs = lookalike_parts(lookalike, seed, start, last)
    description = {"format": f"twin of {name}", "seed": seed, "samples": [start, last], **asdict(lookalike)}
    facts = SourceFacts("sparse", description, nbytes=sum(job.nbytes for job in jobs), n_features=lookalike.n_features)
    return CutSource(facts, lambda max_bytes: jobs)
