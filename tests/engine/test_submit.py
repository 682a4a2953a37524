"""Jobs on the cluster: submitted, watched, cancelled, fetched, and not lost with their worker."""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dask
import distributed
import pytest
from helpers.clusters import FOREVER, Cluster, Started, gdm, same_model, until

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.errors import BadInput, EngineError, MemoryLimitTooLow
from gdm_dask.pipeline.job_driver import _Progress, _stopped_by_cancel
from gdm_dask.pipeline.job_queue import Cancelled
from gdm_dask.pipeline.jobs import (
    cancel_job,
    fetch_job,
    job_log,
    job_status,
    list_jobs,
    purge_jobs,
    submit_fit,
    wait_for_job,
)
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.system import interrupts
from gdm_dask.system.locks import FileLock

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 5, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--cut-size", "3", "--max-cuts", "5", "--tol", "0"]

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("read_for_each_cut")]


@pytest.fixture
def client(cluster) -> Iterator[distributed.Client]:
    with distributed.Client(cluster.address, set_as_default=False) as client:
        yield client


def run_gdm(*arguments: object, cluster: Cluster, folder: Path) -> str:
    started = gdm(*arguments, log=folder / "gdm.log", env={"GDM_SCHEDULER": cluster.address, "COLUMNS": "200"})
    assert started.wait() == 0, started.text
    text = started.text
    started.log.unlink()
    return text


def state_of(client: distributed.Client, job: str) -> str:
    return job_status(client, job)["state"]


def test_the_commands(store, expected, cluster, tmp_path: Path) -> None:
    def command(*arguments: object) -> str:
        return run_gdm(*arguments, cluster=cluster, folder=tmp_path)

    # the submitting client leaves at once
    job = command("submit", store.url, "--run", tmp_path / "run", *OPTIONS).split()[-1]
    until(lambda: json.loads(command("status", job, "--json"))[0]["state"] == "finished", "the job ends")
    shown = command("status")
    assert re.search(rf"{job} +finished +5 +15 +[0-9.]+% +[0-9.]+ [MG]B", shown), shown
    log = command("logs", job)
    assert "started on tcp://" in log
    assert "cut 5:" in log
    assert "finished: " in log
    command("fetch", job, "--to", tmp_path / "fetched")
    same_model(tmp_path / "fetched", expected)
    assert GroupDiscoveryMachine.load(tmp_path / "fetched").n_cuts_ == 5
    refused = gdm(
        "fetch", job, "--to", tmp_path / "fetched", "--scheduler", cluster.address, log=tmp_path / "again.log"
    )
    assert refused.wait() == 2
    assert "holds a fitted model" in refused.text
    assert job not in command("status", "--purge")


def test_a_finished_job_shows_the_supports_of_its_model(store, client, tmp_path: Path) -> None:
    job = submit_fit(client, store.url, str(tmp_path / "run"), {"n_features_to_select": 1})
    wait_for_job(client, job)
    fetch_job(client, job, tmp_path / "fetched")
    n_supports = len(GroupDiscoveryMachine.load(tmp_path / "fetched").support_features_)
    status = job_status(client, job)
    assert (status["supports"], status["expected_end"]) == (n_supports, None)
    cuts = [line for _, line in job_log(client, job) if line.startswith("cut ")]
    assert n_supports == 1
    assert "3 of 3 supports" in cuts[-1]  # more had entered


def test_a_driver_that_finds_all_cuts_done_shows_them(store, client, tmp_path: Path) -> None:
    class WorkerDied(BaseException):
        pass

    def die(iteration) -> None:
        if iteration.number == 5:
            raise WorkerDied

    with pytest.raises(WorkerDied):
        RunDirectory(tmp_path / "run").fit(GroupDiscoveryMachine(**SETTINGS), store, callback=die)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS, resume=True)
    wait_for_job(client, job)
    fetch_job(client, job, tmp_path / "fetched")
    model, status = GroupDiscoveryMachine.load(tmp_path / "fetched"), job_status(client, job)
    assert (status["cuts"], status["gap"]) == (5, model.gap_)
    assert status["memory"] > 0
    assert not [line for _, line in job_log(client, job) if line.startswith("cut ")]


def test_waiting(store, expected, cluster, tmp_path: Path) -> None:
    run_gdm("submit", store.url, "--run", tmp_path / "run", "--wait", *OPTIONS, cluster=cluster, folder=tmp_path)
    same_model(tmp_path / "run", expected)


def test_an_unknown_job(client, cluster, tmp_path: Path) -> None:
    for question in (job_status, job_log, cancel_job, wait_for_job):
        with pytest.raises(BadInput, match=r"has no job 'gdm-job-x' \(known: "):
            question(client, "gdm-job-x")
    asked = gdm("status", "gdm-job-x", "--scheduler", cluster.address, log=tmp_path / "log")
    assert asked.wait() == 2
    assert "has no job 'gdm-job-x'" in asked.text


def test_a_url_is_no_run_directory(client, store) -> None:
    with pytest.raises(BadInput, match="the run directory must be a local folder, got s3://bucket/run"):
        submit_fit(client, store.url, "s3://bucket/run", SETTINGS)


def test_a_failed_job_shows_its_error(client, tmp_path: Path) -> None:
    job = submit_fit(client, str(tmp_path / "nothing.zarr"), str(tmp_path / "run"), SETTINGS)
    with pytest.raises(BadInput, match=r"^worker tcp://\S+: \S+nothing\.zarr: there is no feature store here"):
        wait_for_job(client, job)  # the worker of the driver is named: another one may have the store
    status = job_status(client, job)
    assert status["state"] == "failed"
    assert "there is no feature store here" in status["error"]
    with pytest.raises(BadInput, match=r"is failed: .*there is no result to fetch"):
        fetch_job(client, job, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_a_cancelled_job_keeps_its_state(store, expected, cluster, client, tmp_path: Path) -> None:
    cluster.fault("cut-1", "hold", times=FOREVER)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
    until(lambda: n_lines(client, job, "cut 1:"), "the first cut")
    cluster.fault("scores", "stuck", times=FOREVER)  # no second cut will end soon
    cluster.mend("cut-1", "hold")
    until(cluster.struck, "a task hangs")
    assert state_of(client, job) == "running"
    cancel_job(client, job)
    until(lambda: state_of(client, job) == "cancelled", "the job is cancelled, though a task hangs for longer")
    assert "was cancelled" in (tmp_path / "run" / "job.log").read_text()
    cluster.refresh(2)
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    again = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS, resume=True)
    wait_for_job(client, again)
    same_model(tmp_path / "run", expected)
    assert [status["job"] for status in list_jobs(client)].count(again) == 1
    for ended, state in ((job, "cancelled"), (again, "finished")):
        with pytest.raises(BadInput, match=f"{ended} is {state}: there is nothing to cancel"):
            cancel_job(client, ended)


def test_a_driver_that_takes_over_is_cancelled_as_the_one_before(client) -> None:
    """Its worker may have died before the driver reached a safe point."""
    client.log_event("gdm-job-taken-over-cancel", {})
    with pytest.raises(Cancelled, match=r"taken-over was cancelled$"), _stopped_by_cancel(client, "gdm-job-taken-over"):
        interrupts.check()


def what_is_kept(dask_worker: distributed.Worker) -> list[str]:
    """Parts of a fit that a worker has in its memory."""
    import gc

    from gdm_dask.store import reader

    kinds = ("Problem", "Master", "Data", "GroupDiscoveryMachine")
    found = [type(thing).__name__ for thing in gc.get_objects() if type(thing).__name__ in kinds]
    return found + ["buffers"] * len(reader._spare._spare)


def test_a_cancelled_job_frees_its_memory(store, cluster, client, tmp_path: Path) -> None:
    """Dask keeps the error of a task, and an error its functions' variables; workers keep buffers between passes."""
    cluster.fault("cut-1", "hold", times=FOREVER)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
    until(lambda: n_lines(client, job, "cut 1:"), "the first cut")
    assert any("Problem" in kept for kept in client.run(what_is_kept).values())
    cancel_job(client, job)
    until(lambda: not any(client.run(what_is_kept).values()), "all memory is free")
    assert state_of(client, job) == "cancelled"


def test_status_asks_as_much_for_many_jobs_as_for_one(store, client, tmp_path: Path, monkeypatch) -> None:
    purge_jobs(client)
    asked = []
    sync = client.sync
    monkeypatch.setattr(client, "sync", lambda *given, **options: asked.append(given) or sync(*given, **options))
    counts = []
    for _ in range(3):
        wait_for_job(client, submit_fit(client, store.url, str(tmp_path / f"run-{len(counts)}"), SETTINGS))
        asked.clear()
        assert len(list_jobs(client)) == len(counts) + 1
        counts.append(len(asked))
    assert counts == [2, 2, 2]


@pytest.mark.parametrize(
    ("goal", "gaps", "n_supports", "left"),
    [
        ({"n_supports": 30}, (0.5, 0.4), (10, 20), 10.0),  # ten supports in ten seconds
        ({"tol": 0.01}, (1.0, 0.1), (3, 6), 10.0),  # a tenth of the gap in ten seconds
        ({"max_cuts": 4}, (0.5, 0.4), (3, 6), 20.0),
    ],
)
def test_the_expected_end(monkeypatch, goal, gaps, n_supports, left) -> None:
    settings = SimpleNamespace(**{"n_supports": None, "tol": 0.0, "max_cuts": 100} | goal)
    progress = _Progress(settings)
    for number, (gap, supports) in enumerate(zip(gaps, n_supports, strict=True), 1):
        monkeypatch.setattr(time, "time", lambda now=10.0 * number: now)
        told = progress.after(SimpleNamespace(number=number, gap=gap, n_supports=supports))
    assert told["expected_end"] == pytest.approx(20.0 + left, abs=0.3)


def test_jobs_wait_in_line(store, expected, client, tmp_path: Path) -> None:
    """One job at a time: by priority, then by submission. A job that waits is cancelled at once."""
    runs = {name: tmp_path / name for name in ("first", "second", "third", "urgent", "unwanted")}
    runs["first"].mkdir()
    lock = FileLock(runs["first"] / ".lock")
    lock.acquire("the run")
    with lock:  # the first job waits for it
        jobs = {}
        for name, run in runs.items():
            jobs[name] = submit_fit(client, store.url, str(run), SETTINGS, priority=int(name == "urgent"))
            if name == "first":
                until(lambda: state_of(client, jobs["first"]) == "running", "the first job begins")
        assert [status["state"] for status in list_jobs(client)][-5:] == ["running"] + ["waiting"] * 4
        cancel_job(client, jobs["unwanted"])
        assert state_of(client, jobs["unwanted"]) == "cancelled"
    with pytest.raises(Cancelled, match="was cancelled"):
        wait_for_job(client, jobs["unwanted"])
    order = ["first", "urgent", "second", "third"]
    for name in order:
        wait_for_job(client, jobs[name])
        same_model(runs[name], expected)
    logs = [job_log(client, jobs[name]) for name in order]
    for before, after in itertools.pairwise(logs):
        assert before[-1][0] <= after[0][0]  # the end of one, the start of the next
    assert not runs["unwanted"].exists()


def test_six_jobs_on_workers_that_hold_one_driver(store, expected, fresh, tmp_path: Path) -> None:
    for _ in range(2):
        fresh.start_worker(memory_limit="700MB")
    with distributed.Client(fresh.address, set_as_default=False) as client:
        client.wait_for_workers(2)
        jobs = [submit_fit(client, store.url, str(tmp_path / f"run-{n}"), SETTINGS) for n in range(6)]
        for number, job in enumerate(jobs):
            wait_for_job(client, job)
            same_model(tmp_path / f"run-{number}", expected)
        status = list_jobs(client)
        assert [facts["state"] for facts in status] == ["finished"] * 6
        assert all(facts["memory"] < 0.8 * 700e6 for facts in status)  # above that, Dask pauses a worker
        assert purge_jobs(client, keep=4) == 2
        assert [facts["job"] for facts in list_jobs(client)] == jobs[2:]
        assert [job for job in jobs if client.get_events(job)] == jobs[2:]  # the scheduler keeps no logs of the others


def test_a_job_whose_driver_is_too_large_is_refused(store, fresh, tmp_path: Path) -> None:
    fresh.add_worker(memory_limit="330MB", env={"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False"})
    with distributed.Client(fresh.address, set_as_default=False) as client:
        job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
        with pytest.raises(MemoryLimitTooLow, match=r"a worker's memory limit of 330 MB .*the driver \d+ MB"):
            wait_for_job(client, job)


def test_a_job_on_a_worker_with_other_code_says_so(store, client, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("gdm_dask.engine.sealed.fingerprint", lambda: {"code": "0123"})
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
    refusal = r"^worker tcp://\S+ differs from the driver: code \w+ \(driver: 0123\)\. Install the same .*sides\.$"
    with pytest.raises(EngineError, match=refusal):
        wait_for_job(client, job)
    assert re.search(refusal, job_status(client, job)["error"])  # the driver could not report it


def test_a_scheduler_that_falls_silent_is_given_up(fresh) -> None:
    with distributed.Client(fresh.address, set_as_default=False) as client:
        fresh.scheduler.signal(signal.SIGSTOP)
        try:
            with (
                dask.config.set({"gdm_dask.wait-for-workers": 0.5}),
                pytest.raises(EngineError, match=r"the scheduler does not answer within 0\.5 s"),
            ):
                list_jobs(client)
        finally:
            fresh.scheduler.signal(signal.SIGCONT)


def driver_of(cluster: Cluster, client: distributed.Client, job: str) -> Started:
    """Find the worker process that runs the job's driver."""
    starts = [line for _, line in job_log(client, job) if line.startswith("started on")]
    address = starts[-1].split()[2].rstrip(",")
    return next(worker for worker in cluster.workers if address in worker.text and worker.process.poll() is None)


def test_the_worker_of_the_driver_is_killed(store, expected, cluster, client, tmp_path: Path) -> None:
    cluster.fault("cut-2", "hold", times=FOREVER)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
    until(lambda: n_lines(client, job, "cut 2:"), "the second cut")
    driver_of(cluster, client, job).signal(signal.SIGKILL)
    cluster.mend("cut-2", "hold")
    wait_for_job(client, job)
    starts = [line for _, line in job_log(client, job) if line.startswith("started on")]
    assert len(starts) == 2
    assert (tmp_path / "run" / "job.log").read_text().count("started on") == 2
    assert sum("cut 1:" in line for _, line in job_log(client, job)) == 1  # it resumed from the checkpoint
    fetch_job(client, job, tmp_path / "fetched")
    same_model(tmp_path / "fetched", expected)


def n_lines(client: distributed.Client, job: str, begin: str) -> int:
    return sum(line.startswith(begin) for _, line in job_log(client, job))


def test_a_job_survives_as_many_deaths_as_the_scheduler_allows(store, expected, tmp_path: Path, monkeypatch) -> None:
    n_allowed = 1
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", str(n_allowed))
    fresh = Cluster(tmp_path / "cluster", n_workers=2)
    run = str(tmp_path / "run")
    try:
        with distributed.Client(fresh.address, set_as_default=False) as client:
            for death in range(n_allowed + 1):
                fresh.fault(f"cut-{death + 1}", "hold", times=FOREVER)
            job = submit_fit(client, store.url, run, SETTINGS)
            for death in range(n_allowed + 1):
                until(partial(n_lines, client, job, f"cut {death + 1}:"), f"cut {death + 1}")
                assert n_lines(client, job, "started on") == death + 1
                driver_of(fresh, client, job).signal(signal.SIGKILL)
                fresh.mend(f"cut-{death + 1}", "hold")
                fresh.add_worker()
            with pytest.raises(
                EngineError, match=rf"of its driver died {n_allowed + 1} times, the last one at tcp://.* --resume"
            ):
                wait_for_job(client, job)
            status = job_status(client, job)
            assert status["state"] == "failed"
            assert (
                f"allowed-failures in the configuration of the scheduler, now {n_allowed}, sets how many"
                in status["error"]
            )
            fresh.refresh(2)
            again = submit_fit(client, store.url, run, SETTINGS, resume=True)
            wait_for_job(client, again)
            assert n_lines(client, again, "cut 1:") == 0  # it went on after the last cut
    finally:
        fresh.end()
    same_model(tmp_path / "run", expected)


def test_a_job_on_a_cluster_of_one_thread(store, expected, cluster, client, tmp_path: Path) -> None:
    cluster.refresh(1)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
    wait_for_job(client, job)
    same_model(tmp_path / "run", expected)


def test_a_job_that_cannot_be_done_says_so(store, client, tmp_path: Path) -> None:
    job = submit_fit(client, store.url, str(tmp_path / "run"), {**SETTINGS, "memory_limit": "1MB"})
    with pytest.raises(BadInput, match="a memory limit of 1 MB is too low"):
        wait_for_job(client, job)
