"""Jobs that run on the cluster: the driver itself is a task there, so the submitter can disconnect.

The scheduler keeps all state of a job: the task, as a published dataset under the job's id; its entry in the queue;
and its log, as events under the same id. The log is also a file in the run directory, which outlives the scheduler.
Imports of all that a fit needs wait for a job to submit or fetch, so that `gdm status` answers quickly.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed
from distributed.scheduler import KilledWorker

from gdm_dask.engine.sealed import refusal, seal, sealed_task, unseal
from gdm_dask.errors import BadInput, EngineError, GdmError
from gdm_dask.pipeline.job_queue import ENDED, Cancelled, ask, enter, entries, forget, tell

PREFIX = "gdm-job-"
#: Seconds that the cluster has to deliver the files of a result.
HAND_OVER = 60.0
#: Number of ended jobs that the cluster remembers with their results.
KEPT = 20
RESULT_FILES = ("run.json", "model.npz", "model.json")  # model.json last: it makes a folder a model


def submit_fit(
    client: distributed.Client,
    store: str,
    run: str | None,
    parameters: dict[str, Any],
    resume: bool = False,
    overwrite: bool = False,
    priority: int = 0,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Submit a fit to the cluster and return its job id.

    The workers see the store and the run directory at these paths or URLs. The run directory should be on storage
    shared by all workers: then a job whose worker dies resumes from its checkpoint. By default it is a folder in the
    worker's home directory. `parameters` are those of the estimator for the store's target; `resume` and `overwrite` as
    in `RunDirectory.fit`. Waiting jobs with the highest `priority` start first; ties go to the job submitted first.
    """
    from gdm_dask.pipeline.job_driver import drive
    from gdm_dask.store.folder import Url, local_folder

    if run is not None:
        local_folder(run, "the run directory")
    purge_jobs(client, KEPT)
    job = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    store = Url(store, storage_options)
    order = {"job": job, "store": store, "run": run, "parameters": parameters, "resume": resume, "overwrite": overwrite}
    future = client.submit(sealed_task(drive), seal(order), key=job, pure=False, priority=priority)
    client.publish_dataset(future, name=job)
    enter(client, job, priority)
    return job


def _future(client: distributed.Client, job: str) -> distributed.Future[Any]:
    job_status(client, job)
    future: distributed.Future[Any] = client.get_dataset(job)
    return future


def list_jobs(client: distributed.Client) -> list[dict[str, Any]]:
    """Return the status of each job that the cluster knows, oldest first; see `job_status`."""
    found = []
    for job, facts in entries(client).items():
        progress = facts.get("progress", {})
        found.append({"job": job, "state": facts["state"], "priority": facts["priority"], "error": facts.get("error"),
                      "submitted": facts["submitted"], **progress})  # fmt: skip
    return found


def job_status(client: distributed.Client, job: str) -> dict[str, Any]:
    """Return a job's state (waiting, running, finished, failed, cancelled, lost), progress, last line and error."""
    jobs = {status["job"]: status for status in list_jobs(client)}
    if job not in jobs:
        raise BadInput(f"the cluster has no job {job!r} (known: {', '.join(jobs) or 'none'})")
    status = jobs[job]
    if status["state"] == "failed" and not status["error"]:  # its workers died, so it could not report the error
        status["error"] = _why(client.get_dataset(job).exception(timeout=HAND_OVER))
    lines = _lines(client, job)
    return {**status, "last": lines[-1][1] if lines else ""}


def job_log(client: distributed.Client, job: str) -> list[tuple[float, str]]:
    """Return (time, line) pairs of a job's log."""
    job_status(client, job)
    return _lines(client, job)


def _lines(client: distributed.Client, job: str) -> list[tuple[float, str]]:
    return [(stamp, event["text"]) for stamp, event in ask(client, "events", topic=job) or []]


def cancel_job(client: distributed.Client, job: str) -> None:
    """Remove a waiting job, or stop a running job at its next safe point; its checkpoint stays."""
    state = job_status(client, job)["state"]
    if state in ENDED:
        raise BadInput(f"{job} is {state}: there is nothing to cancel")
    client.log_event(f"{job}-cancel", {})
    if state == "waiting":
        tell(client, job, "state", "cancelled")
        client.cancel([client.get_dataset(job)], force=True)


def purge_jobs(client: distributed.Client, keep: int = 0) -> int:
    """Forget ended jobs and their results, except the last `keep`; return how many were forgotten."""
    ended = [job for job, facts in entries(client).items() if facts["state"] in ENDED]
    gone = ended[: max(0, len(ended) - keep)]
    for job in gone:
        with suppress(KeyError):
            client.unpublish_dataset(job)
        forget(client, job)
    return len(gone)


def wait_for_job(client: distributed.Client, job: str) -> None:
    """Wait until a job ends; raise its error."""
    future = _future(client, job)
    if job_status(client, job)["state"] in ("cancelled", "lost"):
        raise Cancelled(f"{job} was cancelled")
    try:
        future.result()
    except GdmError:
        raise
    except Exception as error:
        if future.cancelled():
            raise Cancelled(f"{job} was cancelled") from None
        if reason := refusal(error):
            raise EngineError(reason) from None
        raise EngineError(f"{job} failed: {_why(error)}") from error


def _why(error: BaseException) -> str:
    """Return the error of a job that could not report it, with the remedy."""
    if reason := refusal(error):
        return reason
    if not isinstance(error, KilledWorker):
        return f"{type(error).__name__}: {str(error).rstrip('.')}. 'gdm logs' shows how far it got."
    return (
        f"the workers of its driver died {error.allowed_failures + 1} times, the last one at "
        f"{error.last_worker.address}, probably out of memory. See the log of that worker; submit the job again with "
        "--resume to go on from its last cut. distributed.scheduler.allowed-failures in the configuration of the "
        f"scheduler, now {error.allowed_failures}, sets how many such deaths a job survives."
    )


def fetch_job(client: distributed.Client, job: str, target: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write the files of a finished job into a local folder."""
    from gdm_dask.store.folder import write_whole

    folder = Path(target)
    if (folder / "model.json").exists() and not overwrite:
        raise BadInput(f"{folder} holds a fitted model: choose another folder, or pass --overwrite")
    state = job_status(client, job)
    if state["state"] != "finished":
        reason = f": {state['error']}" if state["error"] else ""
        raise BadInput(f"{job} is {state['state']}{reason}; there is no result to fetch")
    files = unseal(_future(client, job).result(timeout=HAND_OVER))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in RESULT_FILES:  # only known names: files from a cluster cannot leave the folder
        write_whole(folder / name, files[name])
    return folder
