"""Faults on real Dask processes: the same answer to the bit or a clear error, and no work lost."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import distributed
import pytest
from helpers.clusters import FOREVER, TINY, same_model, small_data, until

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest, open_store
from gdm_dask.cli.logs import set_up_logging
from gdm_dask.errors import DamagedStore, EngineError
from gdm_dask.pipeline.run_directory import RunDirectory

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("read_for_each_cut")]

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 5, "tol": 0.0}


def fit(store: FeatureStore, scheduler: object, run: Path, **options) -> GroupDiscoveryMachine:
    return RunDirectory(run).fit(GroupDiscoveryMachine(**SETTINGS, scheduler=scheduler), store, **options)


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Run an action in a thread while the body runs."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


@pytest.fixture(autouse=True)
def short_times() -> Iterator[None]:
    with dask.config.set({"gdm_dask.silence": 3.0, "gdm_dask.wait-for-workers": 20.0}):
        yield


@pytest.mark.parametrize("phase", ["read", "scores", "top", "rows", "groups"])
def test_a_worker_is_killed_in_each_phase(store, expected, tmp_path: Path, cluster, monkeypatch, phase: str) -> None:
    monkeypatch.setattr("gdm_dask.cutting_plane.working_set.ROWS_SHARE", 0.01)  # other rows must be fetched
    cluster.fault(phase, "kill")
    fit(store, cluster.address, tmp_path / "run")
    assert len(cluster.struck()) == 1
    same_model(tmp_path / "run", expected)


def test_a_worker_that_lacks_the_store_is_named(cluster, tmp_path: Path) -> None:
    url = "memory://lacking/data.zarr"  # in the memory of this process only
    X, y = small_data()
    ingest(X, url, y, block_bytes=20_000)
    with pytest.raises(EngineError, match=rf"^worker tcp://\S+: {url}: there is no feature store here") as refused:
        fit(open_store(url), cluster.address, tmp_path / "run")
    assert "make sure that all workers reach the store" in str(refused.value)
    assert refused.value.exit_code == 3  # scheduled runs try again


def test_half_of_the_workers_are_killed(store, expected, tmp_path: Path, cluster) -> None:
    cluster.add_worker()
    cluster.add_worker()
    cluster.fault("scores", "kill", times=2)
    fit(store, cluster.address, tmp_path / "run")
    assert len(cluster.struck()) == 2
    same_model(tmp_path / "run", expected)


def test_a_worker_hangs_and_comes_back(store, expected, tmp_path: Path, cluster) -> None:
    cluster.fault("top", "hang")

    def wake(iteration) -> None:
        if iteration.number == 2:
            for pid in cluster.stopped():
                os.kill(pid, signal.SIGCONT)

    fit(store, cluster.address, tmp_path / "run", callback=wake)
    assert len(cluster.stopped()) == 1
    same_model(tmp_path / "run", expected)


def test_a_task_hangs_on_a_worker_that_lives(store, expected, tmp_path: Path, cluster, caplog) -> None:
    cluster.fault("scores", "stuck")

    def be_impatient() -> None:
        until(cluster.struck, "a task hangs")
        dask.config.set({"gdm_dask.stall": 1.0})
        until(lambda: "sending them again" in caplog.text, "the tasks are sent again")
        dask.config.set({"gdm_dask.stall": 300.0})  # a busy machine must end a task in that time

    with dask.config.set({"gdm_dask.stall": 300.0, "gdm_dask.silence": 60.0}), meanwhile(be_impatient):
        fit(store, cluster.address, tmp_path / "run")
    assert len(cluster.struck()) == 1
    same_model(tmp_path / "run", expected)


def test_tasks_that_always_hang_are_given_up(store, tmp_path: Path, cluster) -> None:
    cluster.fault("scores", "stuck", times=FOREVER)
    with (
        dask.config.set({"gdm_dask.stall": 1.0, "gdm_dask.silence": 60.0}),
        pytest.raises(EngineError, match=r"lost 2 times in a row \(no task has ended for 1 s\).*--resume"),
    ):
        fit(store, cluster.address, tmp_path / "run")


def test_a_worker_out_of_memory_is_restarted_by_its_nanny(store, expected, tmp_path: Path, fresh) -> None:
    worker = fresh.add_worker(nanny=True, memory_limit="900MB")
    fresh.fault("scores", "memory")
    fit(store, fresh.address, tmp_path / "run")
    assert "exceeded 95% memory budget" in worker.text
    same_model(tmp_path / "run", expected)


def test_a_block_that_fails_to_read_once(store, expected, tmp_path: Path, cluster) -> None:
    cluster.fault("read", "error", times=2)
    fit(store, cluster.address, tmp_path / "run")
    assert len(cluster.struck()) == 2
    same_model(tmp_path / "run", expected)


def test_a_block_that_always_fails_to_read_is_named(store, tmp_path: Path, cluster) -> None:
    cluster.fault("read", "error", times=FOREVER)
    with pytest.raises(EngineError, match=r"data\.zarr: block \d+ cannot be read: .*made by the test.*--resume"):
        fit(store, cluster.address, tmp_path / "run")


def test_a_damaged_block_is_named(store, tmp_path: Path, cluster) -> None:
    shutil.copytree(store.url, tmp_path / "broken.zarr")
    chunk = next((tmp_path / "broken.zarr" / "blocks" / "00003" / "indices").glob("c/*"))
    chunk.write_bytes(chunk.read_bytes()[:-7])
    with pytest.raises(DamagedStore, match="blocks/00003"):
        fit(open_store(tmp_path / "broken.zarr"), cluster.address, tmp_path / "run")


def test_a_cluster_without_workers(store, tmp_path: Path, fresh) -> None:
    with (
        distributed.Client(fresh.address, set_as_default=False) as client,
        dask.config.set({"gdm_dask.wait-for-workers": 3.0}),
        pytest.raises(EngineError, match=r"no workers .*within 3 s\. Start some with 'dask worker tcp://"),
    ):
        fit(store, client, tmp_path / "run")


@pytest.mark.parametrize(
    ("workers", "phase", "said"),
    [
        ([{}], "groups", ""),
        ([TINY, {"memory_limit": "4GB"}], "scores", "has too little memory"),  # the tasks must be sent again
    ],
)
def test_the_last_worker_dies_and_another_one_comes(
    store, expected, tmp_path: Path, fresh, caplog, workers: list[dict], phase: str, said: str
) -> None:
    for options in workers:
        fresh.add_worker(**options)
    fresh.fault(phase, "kill")

    def replace() -> None:
        until(fresh.struck, "the worker dies")
        fresh.start_worker(**workers[-1])

    with meanwhile(replace):
        fit(store, fresh.address, tmp_path / "run")
    assert said in caplog.text
    same_model(tmp_path / "run", expected)


def test_the_only_worker_hangs_and_comes_back(store, expected, tmp_path: Path, fresh, caplog) -> None:
    fresh.add_worker()
    fresh.fault("top", "hang")

    def wake() -> None:
        until(lambda: "workers are silent" in caplog.text, "the tasks are sent again")
        (pid,) = fresh.stopped()
        os.kill(pid, signal.SIGCONT)

    with meanwhile(wake):
        fit(store, fresh.address, tmp_path / "run")
    same_model(tmp_path / "run", expected)


def test_the_scheduler_is_killed_and_the_fit_goes_on_with_a_new_one(store, expected, tmp_path: Path, fresh) -> None:
    fresh.add_worker()

    def kill_it(iteration) -> None:
        if iteration.number == 2:
            fresh.scheduler.end()
            dask.config.set({"gdm_dask.wait-for-workers": 2.0})  # time to connect; the fit had more

    with (
        dask.config.set({"gdm_dask.wait-for-workers": 60.0}),
        pytest.raises(EngineError, match=r"connection to the scheduler at tcp://.* was lost.*--resume"),
    ):
        fit(store, fresh.address, tmp_path / "run", callback=kill_it)
    fresh.restart_scheduler()
    fresh.add_worker()
    fit(store, fresh.address, tmp_path / "run", resume=True)
    same_model(tmp_path / "run", expected)


def test_dask_adds_no_line_of_its_own_to_the_error_of_a_lost_scheduler(fresh) -> None:
    """In a JSON log, it would be the only line that is not JSON."""
    set_up_logging(0, quiet=False)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("distributed.client")
    logger.addHandler(handler)
    try:
        with distributed.Client(fresh.address, set_as_default=False, timeout=0.5) as client:
            fresh.scheduler.end()
            until(lambda: client.status == "closed", "the client gives up")
    finally:
        logger.removeHandler(handler)
    assert lines == []


def test_the_scheduler_comes_back_in_time(store, expected, tmp_path: Path, fresh) -> None:
    fresh.add_worker()

    def replace_it(iteration) -> None:
        if iteration.number == 2:
            fresh.restart_scheduler()
            fresh.start_worker()

    with dask.config.set({"gdm_dask.wait-for-workers": 60.0}):
        fit(store, fresh.address, tmp_path / "run", callback=replace_it)
    same_model(tmp_path / "run", expected)
