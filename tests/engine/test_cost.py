"""Cost of passes, counted instead of timed: decoded chunks, tasks, allocated memory, compared rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from helpers.large_stores import large_store

from gdm_dask import FeatureStore
from gdm_dask.cutting_plane import fit
from gdm_dask.cutting_plane.memory import FitWork
from gdm_dask.engine import open_engine
from gdm_dask.engine.data import Data
from gdm_dask.features.groups import GroupPass, prepare
from gdm_dask.features.measures import MEASURES, PEARSON
from gdm_dask.features.passes import TASKS_PER_THREAD
from gdm_dask.features.ranking import Question, Ranked, ScorePass
from gdm_dask.growth.rates import HeldReader
from gdm_dask.settings.settings import choose_settings
from gdm_dask.store import arrays

BLOCK_BYTES = 1 << 20
N_BLOCKS, N_WORKERS, K = 24, 2, 50


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> FeatureStore:
    return large_store(tmp_path_factory.mktemp("cost") / "x.zarr", N_BLOCKS, BLOCK_BYTES, n_samples=2_000)


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """Count the decoded chunks."""
    seen: list[str] = []
    read_chunk = arrays._read_chunk

    def counted(folder, name: str, entry, number: int, *arguments) -> None:
        seen.append(f"{name}/{number}")
        read_chunk(folder, name, entry, number, *arguments)

    monkeypatch.setattr(arrays, "_read_chunk", counted)
    return seen


@contextmanager
def data_of(store: FeatureStore, scheduler: str = "synchronous", holds: bool = False) -> Iterator[Data]:
    """Open a store behind an engine, with its blocks in memory or not."""
    blocks = store.manifest.blocks
    work = FitWork(
        [entry.nbytes for entry in blocks], [entry.stop - entry.start for entry in blocks], store.shape[1], 5, 3
    )
    with open_engine(scheduler, N_WORKERS) as engine, Data.stored(store, engine, work.plan(None, True)) as data:
        if holds:
            data = Data(engine, store.shape, store.block_starts, HeldReader(store), work.block_bytes)
        yield data


def top(data: Data, seed: int = 0) -> Ranked:
    weights = np.random.default_rng(seed).normal(size=(1, data.shape[1]))
    return data.run(ScorePass([Question(weights, K)]))


def groups(data: Data) -> None:
    data.run(GroupPass(prepare(data.rows(np.arange(5)), 0.75)))


def taken_anew(run: Callable[[], object]) -> int:
    """Return the peak memory of a call, in bytes beyond the memory in use before."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def n_chunks(store: FeatureStore) -> int:
    return sum(len(entry.crc) for block in store.manifest.blocks for entry in block.arrays.values())


def test_a_pass_decodes_each_chunk_once(store, decoded) -> None:
    with data_of(store) as over:
        top(over)
        assert len(decoded) == len(set(decoded)) == n_chunks(store)
        groups(over)
        assert len(decoded) < 2.2 * n_chunks(store)  # and the chunks of five rows


def test_tasks_are_few(store) -> None:
    with data_of(store, "threads") as over:
        for seed in range(3):
            top(over, seed)
        assert over.counts.tasks == 3 * N_WORKERS * TASKS_PER_THREAD
        assert over.counts.blocks_used == 3 * N_BLOCKS


def test_what_is_not_kept_is_decoded_into_the_same_memory(store) -> None:
    supports = prepare(store.load_rows(np.arange(5)), 0.75)
    with data_of(store) as over:
        top(over)  # takes the memory of one block
        for run in (lambda: top(over, 1), lambda: over.run(GroupPass(supports))):
            assert taken_anew(run) < BLOCK_BYTES  # the largest part: an encoded chunk


def test_a_pass_over_held_blocks_takes_memory_for_scores_alone(store) -> None:
    with data_of(store, holds=True) as over:
        top(over)
        rows = max(entry.stop - entry.start for entry in store.manifest.blocks)
        assert taken_anew(lambda: top(over, 1)) < 16 * rows + 300_000


def test_supports_are_made_ready_once_for_all_blocks(store, monkeypatch) -> None:
    calls = []
    counted = replace(PEARSON, search=lambda *arguments: calls.append(1) or prepare(*arguments))
    monkeypatch.setitem(MEASURES, "pearson", counted)
    with data_of(store) as over:
        fit.find_groups(over, np.arange(5), over.rows(np.arange(5)), choose_settings(*store.shape, tau=0.25))
    assert len(calls) == 1


def test_blocks_that_share_memory_do_not_mix(store) -> None:
    """Scores equal those of blocks that are all in memory."""
    with data_of(store, holds=True) as whole, data_of(store) as over:
        for seed in range(3):
            one, other = (top(data, seed).rankings[0] for data in (whole, over))
            np.testing.assert_array_equal(one.features, other.features)
            np.testing.assert_array_equal(one.scores, other.scores)
