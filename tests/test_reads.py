"""How often the data is read: one pass for each cut and one for the groups, and once in all where it fits in memory."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from instances import informative

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest
from gdm_dask.store import layout


class Tracker:
    """Counts what is read of a store, block by block."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks: Counter[int] = Counter()
        self.rows: Counter[int] = Counter()
        load, read_rows = FeatureStore.load_block, layout.read_block_rows

        def load_block(store: FeatureStore, number: int, *buffers):
            self.blocks[number] += 1
            return load(store, number, *buffers)

        def read_block_rows(folder, number, *rest):
            self.rows[number] += 1
            return read_rows(folder, number, *rest)

        monkeypatch.setattr(FeatureStore, "load_block", load_block)
        monkeypatch.setattr(layout, "read_block_rows", read_block_rows)


@pytest.fixture(params=["dense", "sparse"])
def store(request, tmp_path: Path) -> FeatureStore:
    X, y = informative(60, 100, 5, "counts")
    matrix = X.T if request.param == "dense" else sp.csr_array(X.T)
    return ingest(matrix, tmp_path / "data.zarr", y, block_bytes=1500)


@pytest.fixture
def tracker(monkeypatch) -> Tracker:
    return Tracker(monkeypatch)


@pytest.fixture
def no_cache(monkeypatch) -> None:
    """As if memory were so short that no block can be kept."""
    monkeypatch.setattr("gdm_dask.memory_plan.CACHE_PART", 0.0)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_what_fits_is_read_once(store, tracker, scheduler: str) -> None:
    gdm = GroupDiscoveryMachine(cut_size=2, max_cuts=4, tol=0.0, scheduler=scheduler).fit(store)
    assert gdm.n_cuts_ == 4
    assert tracker.blocks == Counter(range(store.n_blocks))
    assert tracker.rows == Counter()
    assert gdm.counts_["blocks_read"] == store.n_blocks
    assert gdm.counts_["passes"] == 5
    assert gdm.counts_["blocks_used"] == 5 * store.n_blocks
    assert gdm.counts_["bytes_read"] == store.nbytes


@pytest.mark.parametrize("groups", [True, False])
def test_one_pass_per_cut_and_one_for_the_groups(store, tracker, no_cache, groups: bool) -> None:
    gdm = GroupDiscoveryMachine(cut_size=2, max_cuts=4, tol=0.0, groups=groups, scheduler="synchronous").fit(store)
    passes = 4 + groups
    assert gdm.counts_["passes"] == passes
    assert tracker.blocks == Counter(dict.fromkeys(range(store.n_blocks), passes))
    assert gdm.counts_["blocks_read"] == passes * store.n_blocks
    assert gdm.counts_["bytes_read"] == passes * store.nbytes
    assert tracker.rows == Counter()  # rows of candidates came with the ranking


@pytest.mark.parametrize(("n_leaders", "n_bytes"), [(3, 1 << 20), (256, 300)])
def test_rows_that_did_not_come_with_the_ranking_are_read(
    store, tracker, no_cache, monkeypatch, n_leaders: int, n_bytes: int
) -> None:
    few = partial(GroupDiscoveryMachine, cut_size=2, max_cuts=4, tol=0.0, scheduler="synchronous")
    expected = few().fit(store)
    monkeypatch.setattr("gdm_dask.leaders.N_LEADERS", n_leaders)
    monkeypatch.setattr("gdm_dask.leaders.MAX_BYTES", n_bytes)
    found = few().fit(store)
    # those of some blocks, a few times for each cut, and never a whole block
    assert 0 < sum(tracker.rows.values()) <= 4 * store.n_blocks
    assert found.support_features_.tolist() == expected.support_features_.tolist()
    assert found.weights_.tolist() == expected.weights_.tolist()


def test_the_pass_that_proves_the_tolerance_is_one_more(store, tracker, no_cache) -> None:
    gdm = GroupDiscoveryMachine(cut_size=5, C=0.1, tol=0.1, scheduler="synchronous").fit(store)
    assert gdm.stopped_ == "tolerance"
    assert gdm.counts_["passes"] == gdm.n_cuts_ + 1 + 1
    assert set(tracker.blocks.values()) == {gdm.counts_["passes"]}


def test_nothing_stays_in_memory_after_a_fit(store, tracker) -> None:
    for times in (1, 2):
        GroupDiscoveryMachine(cut_size=2, max_cuts=2).fit(store)
        assert set(tracker.blocks.values()) == {times}


def test_prediction_reads_the_rows_of_the_supports_alone(store, tracker) -> None:
    gdm = GroupDiscoveryMachine(n_features_to_select=2).fit(store)
    blocks = Counter(tracker.blocks)
    gdm.predict(store)
    owners = np.unique(np.searchsorted(store.block_starts, gdm.support_features_, side="right") - 1)
    assert tracker.blocks == blocks
    assert sorted(tracker.rows) == owners.tolist()


def test_rows_scanned_and_skipped_add_up(store) -> None:
    gdm = GroupDiscoveryMachine(cut_size=2, max_cuts=2).fit(store)
    assert gdm.counts_["rows_scanned"] + gdm.counts_["rows_skipped"] == store.shape[0]
