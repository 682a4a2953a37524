"""Passes over the blocks against the limits of the hardware. See `frame` for the options.

- *cached*: a score pass through Dask over blocks held in memory, against plain scipy ``X @ a`` in two threads on the
  same arrays;
- *out of core*: a score pass that holds nothing, against only reading and decoding the same chunks: to floats, and as
  stored, where decimals are integers (the form that a pass works on);
- *groups*: the groups of 200 supports, holding nothing, against a score pass out of core.

Both sides of a ratio take turns in one process; the best of several turns counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from datasets import Dataset
from frame import Benchmark, Line, Results, main

from gdm_dask.cutting_plane.memory import FitWork
from gdm_dask.engine import open_engine
from gdm_dask.engine.data import Data
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.groups import GroupPass, prepare
from gdm_dask.features.ranking import Question, Ranked, ScorePass
from gdm_dask.growth.rates import HeldReader
from gdm_dask.store import FeatureStore
from gdm_dask.store.arrays import read_array
from gdm_dask.store.folder import Folder
from gdm_dask.system.scratch import Buffers

K, N_SUPPORTS, TAU, N_THREADS = 400, 200, 0.25, 2
TURNS = 5


@contextmanager
def data_of(store: FeatureStore, scheduler: str = "threads", n_workers: int = 2, holds: bool = False) -> Iterator[Data]:
    """Open a store behind an engine, with all of its blocks in this process or none."""
    blocks = store.manifest.blocks
    sizes, rows = [entry.nbytes for entry in blocks], [entry.stop - entry.start for entry in blocks]
    plan = FitWork(sizes, rows, store.shape[1], N_SUPPORTS, 1).plan(None, False)
    with open_engine(scheduler, n_workers) as engine:
        if holds:
            yield Data(engine, store.shape, store.block_starts, HeldReader(store), sizes)
        else:
            with Data.stored(store, engine, plan) as data:
                yield data


def top(data: Data, vectors: np.ndarray, k: int = K) -> Ranked:
    """Run one score pass."""
    return data.run(ScorePass([Question(vector[None], k) for vector in vectors]))


def take_turns(**runs: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of the best of several runs of each function."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - began)
    return {name: min(seconds) for name, seconds in taken.items()}


def weights_of(store: FeatureStore) -> np.ndarray:
    """Sample weights times labels, distributed as a master problem leaves them: a few heavy, many light."""
    alpha = np.random.default_rng(0).random(store.shape[1]) ** 3
    return (alpha / alpha.sum() * store.outputs()[0])[None]


def decode(store: FeatureStore, pool: ThreadPoolExecutor, as_stored: bool) -> None:
    """Read and decode all arrays of all blocks into reused buffers."""
    folder = Folder(store.url)

    def some(numbers: range) -> None:
        buffers = Buffers()
        for number in numbers:
            for name, entry in store.manifest.blocks[number].arrays.items():
                read_array(folder, f"blocks/{number:05d}/{name}", entry, buffers=buffers, as_stored=as_stored)

    list(pool.map(some, [range(first, store.n_blocks, N_THREADS) for first in range(N_THREADS)]))


def cached(data: Dataset) -> dict[str, Any]:
    """Time a score pass over held blocks, and scipy on the same arrays."""
    store = data.train
    vector = weights_of(store)
    with data_of(store, holds=True) as ours, ThreadPoolExecutor(N_THREADS) as pool:
        top(ours, vector)
        matrices = [store.read_block(number) for number in range(store.n_blocks)]
        taken = take_turns(
            ours=lambda: top(ours, vector),
            scipy=lambda: list(pool.map(lambda matrix: matrix @ vector[0], matrices)),
        )
    return {"seconds": taken["ours"], "scipy_seconds": taken["scipy"], "nonzeros": store.nnz}


def out_of_core(data: Dataset) -> dict[str, Any]:
    """Time a score pass that reads everything, and reading alone."""
    store = data.train
    vector = weights_of(store)
    with data_of(store) as ours, ThreadPoolExecutor(N_THREADS) as pool:
        taken = take_turns(
            ours=lambda: top(ours, vector),
            numbers=lambda: decode(store, pool, as_stored=False),
            stored=lambda: decode(store, pool, as_stored=True),
        )
    decoded = {"decode_seconds": taken["numbers"], "stored_seconds": taken["stored"]}
    return {"seconds": taken["ours"], **decoded, "decoded_bytes": store.nbytes}


def groups(data: Dataset) -> dict[str, Any]:
    """Time the groups of the best features, and a score pass, both out of core."""
    store = data.train
    vector = weights_of(store)
    with data_of(store) as ours:
        supports = ours.rows(top(ours, vector, N_SUPPORTS).rankings[0].features)
        taken = take_turns(
            ours=lambda: ours.run(GroupPass(prepare(supports, correlation_limit(TAU)))), score=lambda: top(ours, vector)
        )
    return {"seconds": taken["ours"], "score_seconds": taken["score"]}


def lines(results: Results) -> Iterator[Line]:
    """Compute the ratios."""
    for (dataset, name), result in results.items():
        if result["status"] != "ok":
            continue
        ours = f"{dataset}: {name} {result['seconds']:.3f} s"
        if name == "cached":
            other = result["scipy_seconds"]
            yield Line(f"{ours}, scipy in two threads {other:.3f} s", other / result["seconds"], at_least=0.8)
        elif name == "out of core":
            other = result["decode_seconds"]
            yield Line(f"{ours}, decoding alone {other:.3f} s", result["seconds"] / other, at_most=1.25)
            other = result["stored_seconds"]
            yield Line(f"{ours}, decoding alone as stored {other:.3f} s", result["seconds"] / other)
        else:
            other = result["score_seconds"]
            text = f"{dataset}: groups of {N_SUPPORTS} supports {result['seconds']:.3f} s, a score pass {other:.3f} s"
            yield Line(text, result["seconds"] / other, at_most=3.0)


BENCHMARK = Benchmark(
    "passes", ("webspam", "kdd2010"), {"cached": cached, "out of core": out_of_core, "groups": groups}, {}, lines
)

if __name__ == "__main__":
    main(BENCHMARK)
