"""The same model, to the bit, for every scheduler, number of workers, block size and kind of storage."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from helpers.clusters import same_fit
from helpers.instances import informative
from sklearn.base import clone

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest, stability_selection
from gdm_dask.features.passes import TASKS_PER_THREAD
from gdm_dask.store.memory import MemoryStore

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 6}


def make_data() -> tuple[sp.csr_array, np.ndarray]:
    X, y = informative(150, 200, 11, "counts")
    X[40:80] = X[:40] + (np.random.default_rng(0).random((40, 200)) < 0.05)  # groups
    return sp.csr_array(X.T), y


X, Y = make_data()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> FeatureStore:
    """Many small blocks."""
    store = ingest(X, tmp_path_factory.mktemp("data") / "data.zarr", Y, block_bytes=4000)
    assert store.n_blocks > 12
    return store


@pytest.fixture(scope="module")
def expected() -> GroupDiscoveryMachine:
    machine = GroupDiscoveryMachine(**SETTINGS, scheduler="synchronous").fit(X, Y)
    assert machine.n_cuts_ > 2
    assert max(len(group) for group in machine.groups_.values()) > 1
    return machine


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
@pytest.mark.parametrize("form", ["store", "matrix"])
def test_local_schedulers(store, expected, scheduler: str, form: str) -> None:
    given = store if form == "store" else X
    same_fit(GroupDiscoveryMachine(**SETTINGS, scheduler=scheduler).fit(given, Y), expected)


@pytest.mark.parametrize("block_bytes", [1, 700, 5000, 10**6])
def test_sizes_of_blocks_in_memory(expected, monkeypatch, block_bytes: int) -> None:
    monkeypatch.setattr("gdm_dask.ingestion.driver.MemoryStore", partial(MemoryStore, block_bytes=block_bytes))
    same_fit(GroupDiscoveryMachine(**SETTINGS).fit(X, Y), expected)


@pytest.mark.parametrize("block_bytes", [1, 30_000, 10**6])
def test_sizes_of_blocks_in_a_store(expected, tmp_path: Path, block_bytes: int) -> None:
    given = ingest(X, tmp_path / "data.zarr", Y, block_bytes=block_bytes)
    same_fit(GroupDiscoveryMachine(**SETTINGS).fit(given), expected)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dense_storage(tmp_path: Path, scheduler: str) -> None:
    dense = X.toarray()
    given = ingest(dense, tmp_path / "data.zarr", Y, block_bytes=4000)
    assert not given.is_sparse
    one = GroupDiscoveryMachine(**SETTINGS, scheduler=scheduler).fit(given)
    same_fit(one, GroupDiscoveryMachine(**SETTINGS).fit(dense, Y))


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4])
def test_a_real_cluster_that_grows(store, expected, lasting, n_workers: int) -> None:
    lasting.refresh(n_workers)
    machine = GroupDiscoveryMachine(**SETTINGS, scheduler=lasting.address).fit(store)
    same_fit(machine, expected)
    assert machine.counts_["tasks"] == machine.counts_["passes"] * min(TASKS_PER_THREAD * n_workers, store.n_blocks)


def test_a_matrix_on_a_real_cluster(expected, cluster) -> None:
    same_fit(GroupDiscoveryMachine(**SETTINGS, scheduler=cluster.address).fit(X, Y), expected)


def test_a_client_goes_with_clones_and_by_its_address_with_pickles(store, expected, cluster) -> None:
    with Client(cluster.address, set_as_default=False) as client:
        machine = GroupDiscoveryMachine(**SETTINGS, scheduler=client).set_output(transform="pandas")
        again = clone(machine)
        assert again.scheduler is client
        assert again._sklearn_output_config == {"transform": "pandas"}
        machine.fit(store)
        same_fit(again.fit(store), expected)
        assert stability_selection(machine, store, n_repeats=2).n_repeats == 2
        pickled = pickle.loads(pickle.dumps(machine))
    assert pickled.scheduler == cluster.address
    same_fit(pickled, expected)
    same_fit(pickled.fit(store), expected)


def test_a_fit_in_a_task_does_not_wait_for_the_thread_of_its_task(expected) -> None:
    """A task that fits on its own cluster would wait forever: the cluster has one thread, and the task holds it."""

    def fit() -> GroupDiscoveryMachine:
        return GroupDiscoveryMachine(**SETTINGS).fit(X, Y)

    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as client:
        same_fit(client.submit(fit).result(timeout=60), expected)


UNGUARDED = """
import sys
from gdm_dask import GroupDiscoveryMachine
print("runs", flush=True)
GroupDiscoveryMachine(3, scheduler="local", n_workers=2).fit(sys.argv[1])
"""


def test_a_script_without_a_main_guard_may_start_a_cluster(store, tmp_path: Path) -> None:
    """Workers import the main module of a script, and would run it again."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    ran = subprocess.run([sys.executable, str(script), store.url], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "runs\n"


CONSTRAINED = [
    {"include": [3, 17], "exclude": [5], "groups_of": [[40, 41, 42], [60, 61]], "certify": True},
    {"include": [0], "measure": "su"},
    {"measure": "ig", "linkage": "component"},
    {"exclude": [1, 2], "measure": "spearman", "linkage": "clique"},
]


@pytest.mark.parametrize("parameters", CONSTRAINED)
def test_constraints_and_measures_on_a_real_cluster(store, cluster, parameters: dict) -> None:
    weights = 1.0 + np.arange(len(Y)) % 3
    one, other = (
        GroupDiscoveryMachine(6, tau=0.4, scheduler=scheduler, **parameters).fit(store, sample_weight=weights)
        for scheduler in ("synchronous", cluster.address)
    )
    same_fit(one, other)
    assert one.certified_share_ == other.certified_share_
    assert one.variables_ == other.variables_
