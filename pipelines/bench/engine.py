"""What the schedulers cost: two workers against one on the passes of a store, and the time that is not work.

Run it with ``make bench-engine``. A pass is what an iteration does: score all features, rank them, send the best back.
The blocks are 64 MiB and stay in the workers' memory. Overhead is a pass whose tasks do nothing, as a part of one with
one worker. All figures are the best of many passes in one run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import machine

from gdm_dask.engine import Engine
from gdm_dask.passes import Passes, tasks_of
from gdm_dask.store import FeatureStore
from gdm_dask.worker import StoreHandle, forget_store

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from large_stores import large_store

N_BLOCKS, BLOCK_BYTES, N_PASSES, K = 24, 64 << 20, 30, 256


def nothing(numbers: list[int], handle: StoreHandle, vectors: np.ndarray) -> None:
    """A task without work."""


def best(run: Callable[[], object]) -> float:
    """Seconds of the best of many runs."""
    taken = []
    for _ in range(N_PASSES):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)


def pass_seconds(store: FeatureStore, scheduler: str, n_workers: int, vectors: np.ndarray) -> tuple[float, float]:
    """Seconds of a pass over blocks that are held, and of one without work."""
    sizes = [entry.nbytes for entry in store.manifest.blocks]
    handle = StoreHandle(store, store.nbytes)
    with Engine(scheduler, n_workers) as engine:
        passes = Passes(handle, sizes, engine)
        passes.top(vectors, K)  # reads the blocks
        work = best(lambda: passes.top(vectors, K))
        assert passes.counts.blocks_read == store.n_blocks
        tasks = tasks_of(sizes, engine)
        empty = best(lambda: engine.map(nothing, tasks, handle, vectors, places=range(len(tasks))))
    forget_store(handle.fingerprint)
    return work, empty


def main() -> None:
    """Print a line for each scheduler."""
    print(machine())
    with tempfile.TemporaryDirectory(prefix="gdm-bench-") as folder:
        store = large_store(Path(folder) / "bench.zarr", N_BLOCKS, BLOCK_BYTES)
        vectors = np.random.default_rng(0).normal(size=(1, store.shape[1]))
        print(f"{store.n_blocks} blocks, {store.nbytes / 1e9:.2f} GB decoded, {store.nnz:,} nonzeros")
        for scheduler in ("threads", "processes", "local"):
            (one, empty), (two, _) = (pass_seconds(store, scheduler, n, vectors) for n in (1, 2))
            print(
                f"{scheduler:<10} {1000 * one:6.0f} ms with 1 worker, {1000 * two:6.0f} ms with 2: speed-up "
                f"{one / two:.2f}; {1000 * empty:.1f} ms without work: overhead {empty / one:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
