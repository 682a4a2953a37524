"""Jobs that run on the cluster: submitted, watched, cancelled, fetched, and not lost when their worker is."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest
from helpers.clusters import FOREVER, Cluster, Started, gdm, same_model, until

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.errors import BadInput
from gdm_dask.pipeline.jobs import cancel_job, fetch_job, job_log, job_status, list_jobs, submit_fit, wait_for_job

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 5, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--cut-size", "3", "--max-cuts", "5", "--tol", "0"]

pytestmark = pytest.mark.usefixtures("read_for_each_cut")


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
    assert job in command("status")
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


def test_waiting(store, expected, cluster, tmp_path: Path) -> None:
    run_gdm("submit", store.url, "--run", tmp_path / "run", "--wait", *OPTIONS, cluster=cluster, folder=tmp_path)
    same_model(tmp_path / "run", expected)


def test_an_unknown_job(client, cluster, tmp_path: Path) -> None:
    for question in (job_status, job_log, cancel_job, wait_for_job):
        with pytest.raises(BadInput, match=r"knows no job 'gdm-job-x' \(known: "):
            question(client, "gdm-job-x")
    asked = gdm("status", "gdm-job-x", "--scheduler", cluster.address, log=tmp_path / "log")
    assert asked.wait() == 2
    assert "knows no job 'gdm-job-x'" in asked.text


def test_a_failed_job_shows_its_error(client, tmp_path: Path) -> None:
    job = submit_fit(client, str(tmp_path / "nothing.zarr"), str(tmp_path / "run"), SETTINGS, False, False)
    with pytest.raises(BadInput, match=r"nothing\.zarr: there is no feature store here"):
        wait_for_job(client, job)
    status = job_status(client, job)
    assert status["state"] == "failed"
    assert "there is no feature store here" in status["error"]
    with pytest.raises(BadInput, match=r"is failed: .*there is no result to fetch"):
        fetch_job(client, job, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_a_cancelled_job_keeps_its_state(store, expected, cluster, client, tmp_path: Path) -> None:
    cluster.fault("top", "lag", times=FOREVER)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS, False, False)
    until(lambda: any("cut 1:" in line for _, line in job_log(client, job)), "the first cut")
    assert state_of(client, job) == "running"
    cancel_job(client, job)
    until(lambda: state_of(client, job) == "cancelled", "the job is cancelled")
    for path in cluster.faults.glob("top.*"):
        path.unlink()
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    again = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS, True, False)
    wait_for_job(client, again)
    same_model(tmp_path / "run", expected)
    assert list_jobs(client).count(again) == 1
    for ended, state in ((job, "cancelled"), (again, "finished")):
        with pytest.raises(BadInput, match=f"{ended} is {state}: there is nothing to cancel"):
            cancel_job(client, ended)


def driver_of(cluster: Cluster, client: distributed.Client, job: str) -> Started:
    """The worker process that the job's driver runs on."""
    address = next(line for _, line in job_log(client, job) if line.startswith("started on")).split()[2].rstrip(",")
    return next(worker for worker in cluster.workers if address in worker.text and worker.process.poll() is None)


def test_the_worker_of_the_driver_is_killed(store, expected, cluster, client, tmp_path: Path) -> None:
    cluster.fault("top", "slow", times=6)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS, False, False)
    until(lambda: any("cut 2:" in line for _, line in job_log(client, job)), "the second cut")
    driver_of(cluster, client, job).signal(signal.SIGKILL)
    wait_for_job(client, job)
    starts = [line for _, line in job_log(client, job) if line.startswith("started on")]
    assert len(starts) == 2
    assert sum("cut 1:" in line for _, line in job_log(client, job)) == 1  # it went on from the checkpoint
    fetch_job(client, job, tmp_path / "fetched")
    same_model(tmp_path / "fetched", expected)


def test_a_job_on_a_cluster_of_one_thread(store, expected, cluster, client, tmp_path: Path) -> None:
    cluster.refresh(1)
    job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS, False, False)
    wait_for_job(client, job)
    same_model(tmp_path / "run", expected)


def test_a_job_that_cannot_be_done_says_so(store, client, tmp_path: Path) -> None:
    job = submit_fit(client, store.url, str(tmp_path / "run"), {**SETTINGS, "memory_limit": "1MB"}, False, False)
    with pytest.raises(BadInput, match="a memory limit of 1 MB is too low"):
        wait_for_job(client, job)
