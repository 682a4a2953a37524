"""Number of reads: two for the search and one for the groups."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.instances import informative

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest
from gdm_dask.store import reader
from gdm_dask.store.reader import StoredBlocks


class Tracker:
    """Counts the reads of a store, by block."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks: Counter[int] = Counter()
        self.rows: Counter[int] = Counter()
        load, read_rows = StoredBlocks.load_block, reader.read_block_rows

        def load_block(store: StoredBlocks, number: int, *rest):
            self.blocks[number] += 1
            return load(store, number, *rest)

        def read_block_rows(folder, number, *rest):
            self.rows[number] += 1
            return read_rows(folder, number, *rest)

        monkeypatch.setattr(StoredBlocks, "load_block", load_block)
        monkeypatch.setattr(reader, "read_block_rows", read_block_rows)


@pytest.fixture(params=["dense", "sparse"])
def store(request, tmp_path: Path) -> FeatureStore:
    X, y = informative(60, 100, 5, "counts")
    matrix = X.T if request.param == "dense" else sp.csr_array(X.T)
    return ingest(matrix, tmp_path / "data.zarr", y, block_bytes=1500)


@pytest.fixture
def tracker(monkeypatch) -> Tracker:
    return Tracker(monkeypatch)


@pytest.mark.parametrize("groups", [True, False])
def test_one_read_for_some_cuts_and_one_for_the_groups(store, tracker, groups: bool) -> None:
    gdm = GroupDiscoveryMachine(8, cut_size=1, groups=groups, tau=0.1, scheduler="synchronous").fit(store)
    assert gdm.n_cuts_ in (8, 24)
    passes = -(-gdm.n_cuts_ // 10) + groups
    assert gdm.counts_["passes"] == passes
    assert tracker.blocks == Counter(dict.fromkeys(range(store.n_blocks), passes))
    assert gdm.counts_["blocks_read"] == passes * store.n_blocks
    assert gdm.counts_["bytes_read"] == passes * store.nbytes
    assert tracker.rows == Counter()  # the rows of the working set came with the ranking


@pytest.mark.parametrize(("k", "n_samples"), [(100, 300), (20, 2500)])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_three_reads_for_supports_and_groups(tmp_path, form, k: int, n_samples: int) -> None:
    """Two reads for the search, with or without a choice among more supports, and one for the groups."""
    X, y = informative(800, n_samples, 1, "counts")
    data = ingest(form(X.T), tmp_path / "wide.zarr", y, block_bytes=100_000)
    gdm = GroupDiscoveryMachine(k).fit(data)
    assert len(gdm.support_features_) == k
    assert gdm.counts_["passes"] <= 3


def test_rows_that_did_not_come_with_the_ranking_are_read(store, tracker, monkeypatch) -> None:
    few = partial(GroupDiscoveryMachine, cut_size=2, max_cuts=4, tol=0.0, groups=False, scheduler="synchronous")
    expected = few().fit(store)
    monkeypatch.setattr("gdm_dask.cutting_plane.working_set.ROWS_SHARE", 0.01)
    found = few().fit(store)
    # rows of some blocks, once per read, and never a complete block
    assert 0 < sum(tracker.rows.values()) <= found.counts_["passes"] * store.n_blocks
    assert found.support_features_.tolist() == expected.support_features_.tolist()
    assert found.weights_.tolist() == expected.weights_.tolist()


def test_the_pass_that_proves_the_tolerance_is_one_more(store, tracker) -> None:
    gdm = GroupDiscoveryMachine(cut_size=5, C=0.1, tol=0.1, scheduler="synchronous").fit(store)
    assert gdm.stopped_ == "tolerance"
    n_reads = gdm.history_[-1].n_reads
    assert gdm.counts_["passes"] == n_reads + 1 + 1
    assert set(tracker.blocks.values()) == {gdm.counts_["passes"]}


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
