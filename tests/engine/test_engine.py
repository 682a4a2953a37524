"""Every kind of scheduler, the engine's description of itself, and where it runs tasks."""

from __future__ import annotations

import itertools
import json
import pickle
import signal
import socket
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest
import scipy.sparse as sp
from distributed.client import ClosedClientError
from helpers.clusters import Cluster, Started, is_running, until
from helpers.engine_tasks import (
    GATE,
    add_up,
    count_running,
    die,
    die_once,
    fail_at_two,
    spin,
    square,
    wait_at_gate,
)  # fmt: skip

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest
from gdm_dask.engine import open_engine
from gdm_dask.engine.cluster import ClusterEngine
from gdm_dask.engine.local import LocalEngine
from gdm_dask.engine.sealed import seal, sealed_task
from gdm_dask.errors import BadInput, EngineError
from gdm_dask.features.block import Block
from gdm_dask.inputs import default_scheduler
from gdm_dask.system.processes import call_with, written

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 4, "tol": 0.0}


@pytest.fixture(scope="module")
def expected(store) -> GroupDiscoveryMachine:
    return GroupDiscoveryMachine(**SETTINGS, scheduler="synchronous").fit(store)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("engine") / "cluster", n_workers=2)
    yield cluster
    cluster.end()


def same(machine: GroupDiscoveryMachine, expected: GroupDiscoveryMachine, store: FeatureStore) -> None:
    np.testing.assert_array_equal(machine.weights_, expected.weights_)
    np.testing.assert_array_equal(machine.coef_, expected.coef_)
    assert machine.affiliations_.equals(expected.affiliations_)
    assert machine.counts_["blocks_read"] == machine.counts_["passes"] * store.n_blocks


@pytest.mark.parametrize(("scheduler", "n_workers"), [("synchronous", 1), ("threads", 1), ("threads", 4)])
def test_schedulers_of_this_process_read_all_in_each_pass(store, expected, scheduler: str, n_workers: int) -> None:
    machine = GroupDiscoveryMachine(**SETTINGS, scheduler=scheduler, n_workers=n_workers).fit(store)
    same(machine, expected, store)


@pytest.mark.parametrize(
    ("scheduler", "n_workers"),
    [("processes", 1), ("processes", 2), pytest.param("local", 2, marks=pytest.mark.cluster)],
)
def test_other_processes_keep_nothing_and_read_each_block_in_each_pass(
    store, expected, scheduler: str, n_workers: int
) -> None:
    same(GroupDiscoveryMachine(**SETTINGS, scheduler=scheduler, n_workers=n_workers).fit(store), expected, store)


def test_an_address_a_scheduler_file_and_clients(store, expected, cluster, tmp_path: Path, caplog) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": cluster.address}))
    caplog.set_level("INFO", "gdm_dask")
    for scheduler in (cluster.address, str(file)):
        same(GroupDiscoveryMachine(**SETTINGS, scheduler=scheduler).fit(store), expected, store)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        same(GroupDiscoveryMachine(**SETTINGS, scheduler=client).fit(store), expected, store)
        assert client.status == "running"
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("engine:")]
    assert len(lines) == 3
    assert all(cluster.address in line and "2 workers, 2 threads" in line for line in lines)
    assert any(record.getMessage().startswith("plan: ") for record in caplog.records)


def test_the_dashboard_shows_phases_by_name(store, cluster) -> None:
    with distributed.Client(cluster.address, set_as_default=False) as client:
        GroupDiscoveryMachine(**SETTINGS, scheduler=client).fit(store)
        prefixes = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert {"gdm-scores", "gdm-scores-merge", "gdm-scores-arguments", "gdm-groups", "gdm-groups-merge"} <= prefixes


@pytest.mark.parametrize(("n_items", "n_copied"), [(3, 1), (12, 0)])
def test_arguments_are_copied_beforehand_for_few_tasks_only(cluster, monkeypatch, n_items: int, n_copied: int) -> None:
    """Dask gives few tasks to the workers that hold their arguments, and removes copies that no task waits for."""
    copied = []
    replicate = distributed.Client.replicate
    monkeypatch.setattr(
        distributed.Client, "replicate", lambda *given, **more: copied.append(given) or replicate(*given, **more)
    )
    with distributed.Client(cluster.address, set_as_default=False) as client:
        engine = ClusterEngine(client, [])
        assert engine.reduce(square, add_up, range(n_items), np.ones(2)) == 2 * sum(range(n_items))
    assert len(copied) == n_copied


def test_a_cancelled_task_ends_at_its_next_safe_point(cluster, tmp_path) -> None:
    """Otherwise it would keep its thread and its memory to the end."""
    with distributed.Client(cluster.address, set_as_default=False) as client:
        task = client.submit(sealed_task(spin), seal(tmp_path), pure=False)
        until((tmp_path / "begun").exists, "the task begins")
        client.cancel(task, force=True)
        until((tmp_path / "stopped").exists, "the task stops")
        assert client.submit(sealed_task(len), seal([1, 2])).result()  # the worker goes on


@pytest.mark.parametrize("n_workers", [1, 3, 4])
def test_any_number_of_workers(store, expected, cluster, n_workers: int) -> None:
    cluster.refresh(n_workers)
    same(GroupDiscoveryMachine(**SETTINGS, scheduler=cluster.address).fit(store), expected, store)
    cluster.refresh(2)


def test_the_open_client_is_the_default(store, expected, cluster) -> None:
    with distributed.Client(cluster.address) as client:
        assert default_scheduler() is client
        same(GroupDiscoveryMachine(**SETTINGS).fit(store), expected, store)
    assert default_scheduler() == "threads"


@pytest.mark.cluster
def test_the_line_names_the_dashboard(store, caplog) -> None:
    caplog.set_level("INFO", "gdm_dask")
    with open_engine("local", 1) as engine:
        assert "dashboard http://" in engine.description


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ("procesess", "unknown scheduler 'procesess': choose synchronous, threads, processes or local"),
        (3, "`scheduler` must be a name, an address or a Client, got int"),
    ],
)
def test_unknown_schedulers(scheduler: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_engine(scheduler)


def test_no_scheduler_there(tmp_path: Path) -> None:
    with (
        dask.config.set({"gdm_dask.wait-for-workers": 0.5}),
        pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"),
    ):
        open_engine("tcp://127.0.0.1:1")
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at .*nowhere\.json"):
        open_engine(str(tmp_path / "nowhere.json"))


def test_a_port_that_accepts_and_stays_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, dask.config.set({"gdm_dask.wait-for-workers": 0.5}):
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(EngineError, match=rf"answers at {address}: .*timed out after 0\.5 s\. Start one"):
            open_engine(address)


@pytest.mark.parametrize("scheduler", ["threads", "processes", "cluster"])
def test_no_more_tasks_at_once_than_asked_for(scheduler: str, cluster, tmp_path: Path) -> None:
    cluster.refresh(3)
    with open_engine(cluster.address if scheduler == "cluster" else scheduler, 3) as engine:
        most = engine.map(count_running, range(9), tmp_path, at_once=2)
        assert engine.map(square, range(3), np.ones(1), at_once=1) == [0.0, 1.0, 2.0]
    cluster.refresh(2)
    assert 1 <= max(most) <= 2


def test_tasks_of_many_passes_wait_at_the_scheduler_for_whoever_is_free() -> None:
    """Dask places tasks freely only if their group depends on few tasks: each pass must be a group of its own."""
    n_passes, n_tasks = 8, 12
    with (
        distributed.Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client,
        open_engine(client) as engine,
        ThreadPoolExecutor(n_passes) as pool,
    ):
        GATE.clear()
        running = [pool.submit(engine.map, wait_at_gate, range(n_tasks), name="scores") for _ in range(n_passes)]
        try:
            scheduler = client.cluster.scheduler
            until(lambda: len(scheduler.queued) >= n_passes * n_tasks - 4, "tasks wait", patience=20)
        finally:
            GATE.set()
        assert [one.result() for one in running] == [[*range(n_tasks)]] * n_passes


def test_engines_side_by_side_do_every_task_once() -> None:
    calls = itertools.count()

    def numbered(item: int) -> int:
        next(calls)
        return item

    def maps(_: int) -> list[list[int]]:
        with open_engine("threads", 2) as engine:
            return [engine.map(numbered, [1, 2, 3]) for _ in range(100)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(maps, range(6))) == [[[1, 2, 3]] * 100] * 6
    finally:
        sys.setswitchinterval(before)
    assert next(calls) == 6 * 100 * 3


def test_large_arguments_of_any_kind() -> None:
    array = np.arange(300_000, dtype=np.float64)
    block = Block(0, 300_000, 5, None, np.ones(300_000), np.ones(300_000), np.zeros(300_001, np.uint32))
    with open_engine("processes", 2) as engine:
        assert engine.map(square, [1, 2], array, block) == [array.sum() + 300_000, 2 * array.sum() + 300_000]
    with written((array, block)) as path:
        assert len(pickle.dumps((path, square, 2))) < 3000
        assert call_with(path, square, 2) == 2 * array.sum() + 300_000


def test_functions_that_cannot_be_imported_travel_to_processes() -> None:
    with open_engine("processes", 1) as engine:
        assert engine.map(lambda item, add: add(item), [1, 2], lambda item: item + 1) == [2, 3]


def test_large_arguments_on_a_cluster(cluster) -> None:
    array = np.arange(300_000, dtype=np.float64)
    with open_engine(cluster.address) as engine:
        for _ in range(3):  # the same content repeatedly
            assert engine.map(square, [1, 2, 3], array) == [array.sum(), 2 * array.sum(), 3 * array.sum()]


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes", "cluster"])
def test_an_error_of_a_task_comes_through(scheduler: str, cluster) -> None:
    with (
        open_engine(cluster.address if scheduler == "cluster" else scheduler, 2) as engine,
        pytest.raises(FileNotFoundError, match="part-2"),
    ):
        engine.map(fail_at_two, range(4))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("distributed.Client.map", ClosedClientError("Client is connecting.")),
        ("distributed.Client.replicate", KeyError("tcp://127.0.0.1:1")),
        ("distributed.Future.result", KeyError("tcp://127.0.0.1:1")),
        ("distributed.Future.result", AttributeError("'NoneType' object has no attribute 'with_traceback'")),
        ("distributed.Future.result", TimeoutError()),
    ],
)
def test_errors_of_dask_itself_are_losses(cluster, monkeypatch, where: str, error: Exception) -> None:
    """When a worker leaves, scheduler and client may raise any error."""
    name, method = where.rsplit(".", 1)
    owner = getattr(distributed, name.rsplit(".", 1)[1])
    plain, errors = getattr(owner, method), [error]

    def fails_once(*args, **options):
        if errors:
            raise errors.pop()
        return plain(*args, **options)

    monkeypatch.setattr(owner, method, fails_once)
    with open_engine(cluster.address) as engine:
        assert engine.map(square, [1, 2, 3], np.ones(2)) == [2.0, 4.0, 6.0]
        assert engine.reduce(square, add_up, [1, 2, 3], np.ones(2)) == 12.0
    assert not errors


def test_losses_between_results_are_not_losses_in_a_row(cluster, monkeypatch) -> None:
    plain, calls = distributed.Future.result, itertools.count()

    def fails_half_of_the_time(*args, **options):
        if next(calls) % 2:
            raise KeyError("tcp://127.0.0.1:1")
        return plain(*args, **options)

    monkeypatch.setattr(distributed.Future, "result", fails_half_of_the_time)
    with open_engine(cluster.address) as engine:
        assert engine.map(square, range(30), np.ones(2), at_once=3) == [2.0 * number for number in range(30)]


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    seen: list[int] = []
    with open_engine("processes", 2) as engine:
        for _ in range(2):
            (tmp_path / "marker").touch()
            assert engine.map(die_once, range(6), tmp_path / "marker", on_done=seen.append) == list(range(6))
    assert sorted(seen) == sorted([*range(6)] * 2)


def test_processes_that_always_die_are_given_up() -> None:
    with open_engine("processes", 1) as engine, pytest.raises(EngineError, match=r"died 5 times in a row.*memory"):
        engine.map(die, range(2))


SCRIPT = """
import sys, time, os
from gdm_dask import GroupDiscoveryMachine, open_store
print("runs", flush=True)
def show(iteration):
    print("cut", flush=True)
    while os.path.exists(sys.argv[2]):
        time.sleep(0.05)
GroupDiscoveryMachine(cut_size=3, max_cuts=3, scheduler="processes", n_workers=int(sys.argv[3])).fit(
    open_store(sys.argv[1]), callback=show)
print("done", flush=True)
"""


def test_a_script_without_a_main_guard_and_the_death_of_its_driver(store, tmp_path: Path) -> None:
    script, wait = tmp_path / "script.py", tmp_path / "wait"
    script.write_text(textwrap.dedent(SCRIPT))
    first = Started([sys.executable, str(script), store.url, str(wait), "1"], tmp_path / "first.log", fresh=True)
    assert first.wait() == 0, first.text
    assert first.text.split().count("runs") == 1
    wait.touch()
    second = Started([sys.executable, str(script), store.url, str(wait), "2"], tmp_path / "second.log", fresh=True)
    second.wait_for("(cut)")
    children = [int(pid) for pid in Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text().split()]
    assert len(children) >= 2
    second.signal(signal.SIGKILL)
    second.wait()
    until(lambda: not any(map(is_running, children)), "the processes end with their driver")


def bytes_per_pass(n_features: int, tmp_path: Path, monkeypatch) -> tuple[int, int]:
    """Return the pickled size of a task's arguments and of its result, for a store of this many features."""
    rng = np.random.default_rng(0)
    X = sp.random_array((200, n_features), density=0.02, rng=rng, format="csr")
    y = rng.choice([-1, 1], 200)
    store = ingest(X, tmp_path / f"{n_features}.zarr", y, block_bytes=(n_features * 50) // 4)
    sent: list[int] = []
    came: list[int] = []
    plain = LocalEngine.map

    def counting(self, function, items, *common, **options):
        sent.append(sum(len(pickle.dumps((function, item, *common))) for item in items))
        results = plain(self, function, items, *common, **options)
        came.append(sum(len(pickle.dumps(result)) for result in results))
        return results

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "map", counting)
        GroupDiscoveryMachine(
            5, C=50.0, master="cuts", cut_size=5, groups=False, scheduler="processes", n_workers=2
        ).fit(store)
    return max(sent), max(came)


def test_the_bytes_of_a_pass_do_not_grow_with_the_features(tmp_path: Path, monkeypatch) -> None:
    """A part returns rows for at most three times its share of a working set."""
    sent, came = bytes_per_pass(20_000, tmp_path, monkeypatch)
    more_sent, more_came = bytes_per_pass(80_000, tmp_path, monkeypatch)
    assert more_sent < 1.2 * sent
    assert more_came < 1.2 * came
    assert more_sent < 100_000
    assert more_came < 3 * 2048 * 200
