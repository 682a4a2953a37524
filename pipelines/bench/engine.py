"""Cost of the schedulers: speed-up from one worker to two, and overhead.

Run with ``make bench-engine``. A pass scores and ranks all features and returns the best. Blocks are 64 MiB; threads
keep them in memory, other processes read them in each pass. Overhead is the time of a pass whose tasks skip their
blocks, as a share of a pass with one worker. All figures are the best of many passes in one run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import machine
from passes import data_of, top

from gdm_dask.features.block import Block
from gdm_dask.features.ranking import Question, Ranked, ScorePass
from gdm_dask.store import FeatureStore

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.large_stores import large_store

N_BLOCKS, BLOCK_BYTES, N_PASSES = 24, 64 << 20, 30


class Nothing(ScorePass):
    """A pass that does no work."""

    def see(self, part: Ranked, block: Block) -> None:
        """Skip the block."""


def best(run: Callable[[], object]) -> float:
    """Return the seconds of the best of many runs."""
    taken = []
    for _ in range(N_PASSES):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)


def pass_seconds(store: FeatureStore, scheduler: str, n_workers: int, vectors: np.ndarray) -> tuple[float, float]:
    """Return the seconds of a pass, which holds its blocks if the scheduler is threads, and of one without work."""
    with data_of(store, scheduler, n_workers, holds=scheduler == "threads") as data:
        top(data, vectors)  # reads the blocks
        work = best(lambda: top(data, vectors))
        empty = best(lambda: data.run(Nothing([Question(vectors, 1)])))
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
