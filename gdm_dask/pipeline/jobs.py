"""Jobs that run on the cluster: the driver itself is a task there, and the submitter may leave.

The cluster's scheduler keeps all state of a job: the task, as a published data set under the job's id; its log, as
events of that topic; and the wish to cancel it, as an event that is set.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed

import gdm_dask
from gdm_dask.errors import BadInput, EngineError, GdmError
from gdm_dask.store.folder import write_whole
from gdm_dask.system.version import VERSION

PREFIX = "gdm-job-"
#: Seconds in which the cluster hands over the files of a result.
HAND_OVER = 60.0
#: Seconds in which a scheduler tells a new client of a task that has ended.
NEWS = 2.0
#: Seconds in which a worker that was cut off from the cluster ends, and lets go of the run directory of its job.
OWNER_ENDS = 300.0
RESULT_FILES = ("run.json", "model.npz", "model.json")  # model.json last: it makes a folder a model


class Cancelled(GdmError):
    """The job was cancelled."""


def submit_fit(
    client: distributed.Client, store: str, run: str | None, parameters: dict[str, Any], resume: bool, overwrite: bool
) -> str:
    """Hand a fit to the cluster and return its id.

    Parameters
    ----------
    client : Client
    store : str
        Path or URL of the store, as the workers see it.
    run : str, optional
        Run directory, as the workers see it. It should lie on storage that all workers share: then a job whose worker
        dies goes on from its checkpoint. By default a folder in the home directory of the worker.
    parameters : dict
        Of `GroupDiscoveryMachine`.
    resume, overwrite : bool
        As in `RunDirectory.fit`.
    """
    job = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    future = client.submit(drive, job, VERSION, store, run, parameters, resume, overwrite, key=job, pure=False)
    client.publish_dataset(future, name=job)
    return job


def drive(
    job: str, version: str, store: str, run: str | None, parameters: dict[str, Any], resume: bool, overwrite: bool
) -> dict[str, bytes]:
    """The job itself, on a worker: fit with the cluster that it runs on, and return the files of the result.

    Where the worker dies, the scheduler starts this again on another one, and it goes on from the checkpoint.
    """
    from gdm_dask.cutting_plane.problem import Iteration
    from gdm_dask.pipeline.run_directory import RunDirectory

    if version != VERSION:
        raise EngineError(f"the worker has gdm_dask {VERSION}, the submitter {version}. Install the same.")
    worker = distributed.get_worker()
    client = distributed.get_client()
    distributed.secede()  # this task waits for others: its place belongs to them
    folder = RunDirectory(run or Path.home() / ".gdm" / "runs" / job, job)
    stop = distributed.Event(f"{job}-cancel", client=client)

    def note(text: str) -> None:
        worker.log_event(job, {"text": text})

    def on_cut(iteration: Iteration) -> None:
        note(str(iteration))
        if stop.is_set():
            raise Cancelled(f"{job} was cancelled after cut {iteration.number}; its state is in {folder.path}")

    note(f"started on {worker.address}, run directory {folder.path}")
    estimator = gdm_dask.GroupDiscoveryMachine(scheduler=client, **parameters)
    model = folder.fit(estimator, gdm_dask.open_store(store), resume, overwrite, on_cut, wait=OWNER_ENDS)
    note(f"finished: {len(model.support_features_)} supports, gap {model.gap_:.3g}")
    return {name: (folder.path / name).read_bytes() for name in RESULT_FILES}


def _future(client: distributed.Client, job: str) -> distributed.Future[Any]:
    try:
        future: distributed.Future[Any] = client.get_dataset(job)
    except KeyError:
        known = ", ".join(sorted(list_jobs(client))) or "none"
        raise BadInput(f"the cluster knows no job {job!r} (known: {known})") from None
    return future


def list_jobs(client: distributed.Client) -> list[str]:
    """Ids of the jobs that the cluster knows, oldest first."""
    return sorted(name for name in client.list_datasets() if str(name).startswith(PREFIX))


def job_log(client: distributed.Client, job: str) -> list[tuple[float, str]]:
    """(time, line) of a job's log."""
    _future(client, job)
    return [(stamp, event["text"]) for stamp, event in client.get_events(job) or []]


def job_status(client: distributed.Client, job: str) -> dict[str, Any]:
    """State of a job (waiting, running, finished, failed, cancelled), its last line, and its error if it has one."""
    future = _future(client, job)
    with client.as_current(), suppress(TimeoutError):
        distributed.wait([future], timeout=NEWS)  # a fresh handle is "pending" until the scheduler has told
    lines = job_log(client, job)
    names = {"pending": "running" if lines else "waiting", "error": "failed"}
    state = names.get(str(future.status), str(future.status))
    error = None
    if future.status == "error":
        exception = future.exception(timeout=10)
        error = str(exception)
        if isinstance(exception, Cancelled):
            state = "cancelled"
    return {"job": job, "state": state, "last": lines[-1][1] if lines else "", "error": error}


def cancel_job(client: distributed.Client, job: str) -> None:
    """Ask a job to stop after its present cut; its checkpoint stays."""
    state = job_status(client, job)["state"]
    if state not in ("waiting", "running"):
        raise BadInput(f"{job} is {state}: there is nothing to cancel")
    distributed.Event(f"{job}-cancel", client=client).set()


def wait_for_job(client: distributed.Client, job: str) -> None:
    """Wait until a job ends; raises its error."""
    try:
        _future(client, job).result()
    except GdmError:
        raise
    except Exception as error:
        raise EngineError(
            f"{job} failed: {type(error).__name__}: {error}. 'gdm logs' shows how far it came."
        ) from error


def fetch_job(client: distributed.Client, job: str, target: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write the files of a finished job into a local folder."""
    folder = Path(target)
    if (folder / "model.json").exists() and not overwrite:
        raise BadInput(f"{folder} holds a fitted model: choose another folder, or pass --overwrite")
    state = job_status(client, job)
    if state["state"] != "finished":
        reason = f": {state['error']}" if state["error"] else ""
        raise BadInput(f"{job} is {state['state']}{reason}; there is no result to fetch")
    files = _future(client, job).result(timeout=HAND_OVER)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in RESULT_FILES:  # only known names: the files of a cluster cannot leave the folder
        write_whole(folder / name, files[name])
    return folder
