"""``gdm warm``: compile the kernels ahead of time, so that the first job does not wait for them."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdm_dask.cli.app import app
from gdm_dask.cli.console import out

if TYPE_CHECKING:
    from gdm_dask.store import FeatureStore


class Kind(StrEnum):
    """Kinds of data with kernels of their own: dense matrices, and sparse matrices by their values."""

    dense = "dense"
    ones = "ones"
    counts = "counts"
    decimals = "decimals"
    floats = "floats"


#: Functions that write the values of a kind as text, from numbers in [0, 1).
WRITTEN: dict[Kind, list[Callable[[float], str]]] = {
    Kind.ones: [lambda value: "1"],
    Kind.counts: [lambda value: str(1 + int(9 * value))],
    Kind.decimals: [lambda value: f"{1.000001 - value:.6f}"],
    Kind.floats: [lambda value: f"{1 + int(9 * value)}.5", lambda value: repr(1.0 - value)],
}
#: Samples and features of sparse sets: larger ones need wider integers, and a second digit to sort by.
SIZES = tuple(itertools.product((400, 70_000), (300, 300_000, 5_000_000)))
ALWAYS = 99  #: A feature that every sample has.
#: Values whose features have few states, and the measures for all others.
DISCRETE, CONTINUOUS = ("one", "uint8"), ("pearson", "spearman", "cosine")


@app.command()
def warm(
    kinds: Annotated[list[Kind] | None, typer.Argument(metavar="KIND", help="Kinds of data; all by default.")] = None,
) -> None:
    """Compile the kernels ahead of time, for example when an image is built, so that no first job waits for them.

    The compiled kernels are saved in numba's cache: NUMBA_CACHE_DIR, beside the package, or the user's cache folder.
    """
    from gdm_dask import ingest
    from gdm_dask.system.progress import compile_seconds

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gdm-warm-") as folder:
        places = (Path(folder) / str(number) for number in itertools.count())
        for kind in kinds or Kind:
            for dtype in ("float32", "float64", "uint8") if kind is Kind.dense else ():
                X, y = _matrix(dtype)
                _use(ingest(X, next(places), y))
            for write in WRITTEN.get(kind, []):
                for size in SIZES:
                    text = next(places)
                    text.write_text(_text(write, *size))
                    store = ingest(text, next(places))
                    if size == SIZES[0]:
                        _use(store)
    out.print(f"the kernels are ready: compiling took {compile_seconds():.1f} of {time.perf_counter() - began:.1f} s")


def _use(store: FeatureStore) -> None:
    """Fit every kind of target, with and without weights, and every measure; then use what they may not have needed."""
    import numpy as np

    from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor
    from gdm_dask.features.correlation import centred, correlations
    from gdm_dask.features.measures import MEASURES
    from gdm_dask.master.equal_samples import equal_samples
    from gdm_dask.master.rows import Rows

    numbers = np.arange(store.shape[1])
    for weights in (None, 1.0 + numbers % 2):
        for measure in MEASURES if store.manifest.value_type in DISCRETE else CONTINUOUS:
            GroupDiscoveryMachine(4, measure=measure, scheduler="threads").fit(store, sample_weight=weights)
        GroupDiscoveryMachine(4, scheduler="threads").fit(store, numbers % 3, weights)
        GroupDiscoveryRegressor(4, scheduler="threads").fit(store, np.sqrt(numbers), weights)
    block = store.load_block(0)
    some = block.rows(np.flatnonzero(block.norms)[:4])
    rows = Rows(block.n_samples)
    rows.append(some.matrix(), some.means, some.norms)
    for n_changed in (1, block.n_samples):
        rows.moments((np.arange(block.n_samples) < n_changed).astype(np.int8), None)
    rows.moments(np.ones(block.n_samples, np.int8), None, first=rows.n_rows - 1)
    if (found := equal_samples(rows, np.ones((1, block.n_samples)), None)) is not None:
        found.rows(rows)
    if block.is_sparse:
        for left in (block, some):
            centred(left, np.zeros(1, np.int64), some, np.zeros(1, np.int64))
        for weights in (None, np.ones(block.n_samples)):
            every = replace(block.rows(np.flatnonzero(block.norms)), weights=weights)
            for n_others in (1, every.n_rows):
                correlations(every, every.span(0, n_others))


def _matrix(dtype: str) -> tuple[Any, Any]:
    """Return a dense matrix and labels."""
    import numpy as np

    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    return (10 * (rng.random((400, 300)) + y[:, None] * rng.random(300))).astype(dtype), y


def _text(write: Callable[[float], str], n_samples: int, n_features: int) -> str:
    """Return svmlight text: ten features per line; some are frequent and separate the classes, one is in every line."""
    import numpy as np

    rng = np.random.default_rng(0)
    features = np.hstack([rng.integers(1, 60, (n_samples, 8)), rng.integers(100, n_features, (n_samples, 2))])
    features = np.sort(features + np.arange(n_samples)[:, None] % 2)
    lines = []
    for sample, row in enumerate(zip(features.tolist(), rng.random(features.shape).tolist(), strict=True)):
        entries = dict(zip(*row, strict=True)) | {ALWAYS: 0.5}
        lines.append(f"{sample % 2} " + " ".join(f"{feature}:{write(entries[feature])}" for feature in sorted(entries)))
    return "\n".join(lines) + "\n"
