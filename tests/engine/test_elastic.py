"""Clusters that grow, shrink and are shared: each pass uses the workers present, with results the same to the bit."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import distributed
import pytest
from helpers.clusters import TINY, gdm, same_fit, until
from helpers.large_stores import large_store

from gdm_dask import FeatureStore, GroupDiscoveryMachine

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("read_for_each_cut")]
SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 5, "tol": 0.0}
MIB = 1 << 20


@pytest.fixture(scope="module")
def expected(store) -> GroupDiscoveryMachine:
    return GroupDiscoveryMachine(**SETTINGS, scheduler="synchronous").fit(store)


@pytest.fixture
def client(fresh) -> Iterator[distributed.Client]:
    with distributed.Client(fresh.address, set_as_default=False) as client:
        yield client


def n_done(client: distributed.Client) -> dict[str, int]:
    """Return the number of tasks that each worker has done."""
    return client.run(lambda dask_worker: dask_worker.state.executed_count)


def test_an_adaptive_cluster_starts_workers_for_a_fit(store, expected) -> None:
    with (
        distributed.LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        cluster.adapt(minimum=0, maximum=4, interval="100ms")
        same_fit(GroupDiscoveryMachine(**SETTINGS, scheduler=client).fit(store), expected)


def test_a_worker_joins_and_another_one_leaves(store, expected, fresh, client) -> None:
    first = fresh.add_worker()
    done: list[dict[str, int]] = []

    def after_cut(iteration) -> None:
        until(lambda: not any(client.has_what().values()), "nothing is kept between passes")
        done.append(n_done(client))
        if iteration.number == 1:
            fresh.add_worker()
        if iteration.number == 3:
            first.end()
            until(lambda: len(client.scheduler_info()["workers"]) == 1, "the worker is gone")

    same_fit(GroupDiscoveryMachine(**SETTINGS, scheduler=client).fit(store, callback=after_cut), expected)
    alone, shared, one_left = done[0], done[2], done[4]
    assert [len(alone), len(shared), len(one_left)] == [1, 2, 1]
    (joined,) = one_left
    assert joined not in alone
    assert 0 < shared[joined] < one_left[joined]


def test_an_undersized_worker_does_nothing(store, expected, fresh, client, caplog) -> None:
    large = fresh.start_worker(nthreads=3, memory_limit="4GB")
    small = fresh.start_worker(nthreads=1, memory_limit="4GB")
    tiny = fresh.start_worker(nthreads=1, **TINY)
    names = [worker.wait_for(r"Start worker at:\s+(tcp://\S+)") for worker in (large, small, tiny)]
    client.wait_for_workers(3)
    same_fit(GroupDiscoveryMachine(**SETTINGS, scheduler=client).fit(store), expected)
    done = n_done(client)
    assert done[names[2]] == 0 < min(done[names[0]], done[names[1]])
    assert caplog.text.count("too little memory") == 1
    assert f"worker {names[2]} has too little memory for a task of this fit: it gets no tasks" in caplog.text


def large_fit(store: FeatureStore, client: distributed.Client, spilled: list[int]) -> GroupDiscoveryMachine:
    def look(iteration) -> None:
        facts = client.scheduler_info(n_workers=-1)["workers"].values()
        spilled.extend(worker["metrics"]["spilled_bytes"]["disk"] for worker in facts)

    return GroupDiscoveryMachine(4, cut_size=4, max_cuts=3, tol=0.0, scheduler=client).fit(store, callback=look)


def test_two_fits_share_a_cluster(fresh, client, tmp_path: Path) -> None:
    stores = [large_store(tmp_path / f"{n}.zarr", 12 + n, 16 * MIB, n_samples=20_000 + n) for n in range(2)]
    for _ in range(2):
        fresh.start_worker(memory_limit="740MB")
    client.wait_for_workers(2)
    spilled: list[int] = []
    alone, seconds = [], []
    for store in stores:
        began = time.perf_counter()
        alone.append(large_fit(store, client, spilled))
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        together = list(pool.map(lambda store: large_fit(store, client, spilled), stores))
    print(f"alone {seconds[0]:.1f} + {seconds[1]:.1f} s, together {time.perf_counter() - began:.1f} s")
    for one, other in zip(together, alone, strict=True):
        same_fit(one, other)
    assert len(spilled) >= 8
    assert max(spilled) == 0


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a scheduler that accepts connections but never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def test_a_scheduler_that_says_nothing_is_given_up(store, mute, tmp_path: Path) -> None:
    env = {"DASK_GDM_DASK__WAIT_FOR_WORKERS": "2", "COLUMNS": "500"}
    fit = gdm("fit", store.url, "--run", tmp_path / "run", "--scheduler", mute, log=tmp_path / "fit.log", env=env)
    status = gdm("status", "--scheduler", mute, log=tmp_path / "status.log", env=env)
    for started in (fit, status):
        assert started.wait() == 3, started.text
        assert f"no Dask scheduler answers at {mute}" in started.text
