"""What passes cost, counted and not timed: chunks decoded, tasks, memory taken anew, rows compared."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from large_stores import large_store

from gdm_dask import FeatureStore, passes
from gdm_dask.engine import Engine
from gdm_dask.passes import TASKS_PER_WORKER, Passes
from gdm_dask.store import arrays
from gdm_dask.worker import StoreHandle, forget_store

BLOCK_BYTES = 1 << 20
N_BLOCKS, N_WORKERS, K = 24, 2, 50


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> FeatureStore:
    return large_store(tmp_path_factory.mktemp("cost") / "x.zarr", N_BLOCKS, BLOCK_BYTES, n_samples=2_000)


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """Chunks that were decoded."""
    seen: list[str] = []
    read_chunk = arrays._read_chunk

    def counted(folder, name: str, entry, number: int, *arguments) -> None:
        seen.append(f"{name}/{number}")
        read_chunk(folder, name, entry, number, *arguments)

    monkeypatch.setattr(arrays, "_read_chunk", counted)
    return seen


@contextmanager
def passes_over(store: FeatureStore, cache_bytes: int, scheduler: str = "synchronous") -> Iterator[Passes]:
    handle = StoreHandle(store, cache_bytes)
    with Engine(scheduler, N_WORKERS) as engine:
        yield Passes(handle, [entry.nbytes for entry in store.manifest.blocks], engine)
    forget_store(handle.fingerprint)


def weights(store: FeatureStore, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, store.shape[1]))


def taken_anew(run: Callable[[], object]) -> int:
    """Most bytes that a call held beyond what was there before it."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def n_chunks(store: FeatureStore) -> int:
    return sum(len(entry.crc) for block in store.manifest.blocks for entry in block.arrays.values())


def test_a_pass_decodes_each_chunk_once_and_a_held_one_never(store, decoded) -> None:
    with passes_over(store, 0) as over:
        over.top(weights(store), K)
        assert len(decoded) == len(set(decoded)) == n_chunks(store)
        over.groups(over.rows(np.arange(5)), 0.75)
        assert len(decoded) < 2.2 * n_chunks(store)  # and the chunks of five rows
    decoded.clear()
    with passes_over(store, store.nbytes) as over:
        for seed in range(3):
            over.top(weights(store, seed), K)
        over.groups(over.rows(np.arange(5)), 0.75)
        assert len(decoded) == n_chunks(store)


def test_tasks_are_few(store) -> None:
    with passes_over(store, store.nbytes, "threads") as over:
        for seed in range(3):
            over.top(weights(store, seed), K)
        assert over.counts.tasks == 3 * N_WORKERS * TASKS_PER_WORKER
        assert over.counts.blocks_used == 3 * N_BLOCKS


def test_what_is_not_kept_is_decoded_into_the_same_memory(store) -> None:
    supports = store.load_rows(np.arange(5))
    with passes_over(store, 0) as over:
        over.top(weights(store), K)  # takes the memory of one block
        for run in (lambda: over.top(weights(store, 1), K), lambda: over.groups(supports, 0.75)):
            assert taken_anew(run) < BLOCK_BYTES  # the largest part: an encoded chunk


def test_a_pass_over_held_blocks_takes_memory_for_scores_alone(store) -> None:
    with passes_over(store, store.nbytes) as over:
        over.top(weights(store), K)
        rows = max(entry.stop - entry.start for entry in store.manifest.blocks)
        assert taken_anew(lambda: over.top(weights(store, 1), K)) < 16 * rows + 300_000


def test_supports_are_made_ready_once_for_all_blocks(store, monkeypatch) -> None:
    calls = []
    prepare = passes.prepare
    monkeypatch.setattr(passes, "prepare", lambda *arguments: calls.append(1) or prepare(*arguments))
    with passes_over(store, store.nbytes) as over:
        over.groups(over.rows(np.arange(5)), 0.75)
    assert len(calls) == 1


def test_a_block_that_is_held_is_not_overwritten(store) -> None:
    """Half of the blocks are kept, the others share memory: scores stay those of a store in memory."""
    with passes_over(store, store.nbytes) as whole, passes_over(store, store.nbytes // 2) as half:
        for seed in range(3):
            one, other = (over.top(weights(store, seed), K)[0] for over in (whole, half))
            np.testing.assert_array_equal(one.features, other.features)
            np.testing.assert_array_equal(one.scores, other.scores)
