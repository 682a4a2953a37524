"""Jobs that run on the cluster: the driver itself is a task there, so the submitter can disconnect.

The scheduler keeps all state of a job: the task, as a published dataset under the job's id; its entry in the queue;
and its log, as events under the same id. The log is also a file in the run directory, which outlives the scheduler.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import distributed
import psutil
from distributed.scheduler import KilledWorker

import gdm_dask
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.errors import BadInput, EngineError, GdmError
from gdm_dask.estimator import estimator_for
from gdm_dask.inputs import settings_of
from gdm_dask.pipeline.fit_metrics import FitMetrics
from gdm_dask.pipeline.job_queue import ENDED, Cancelled, ask, enter, entries, forget, tell, wait_for_turn
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.settings.settings import Settings
from gdm_dask.store.folder import Url, local_folder, write_whole
from gdm_dask.system import interrupts
from gdm_dask.system.sealed import refusal, seal, sealed_task, unseal

PREFIX = "gdm-job-"
#: Seconds that the cluster has to deliver the files of a result.
HAND_OVER = 60.0
#: Seconds that a disconnected worker has to end and release the run directory of its job.
OWNER_ENDS = 300.0
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

    Parameters
    ----------
    client : Client
    store : str
        Path or URL of the store, as seen by the workers.
    run : str, optional
        Run directory, as seen by the workers. It should be on storage shared by all workers: then a job whose worker
        dies resumes from its checkpoint. By default a folder in the worker's home directory.
    parameters : dict
        Parameters of the estimator for the store's target.
    resume, overwrite : bool
        As in `RunDirectory.fit`.
    priority : int
        Waiting jobs with the highest priority start first; ties go to the job submitted first.
    storage_options : dict, optional
        For a store on a URL; see `gdm_dask.open_store`.
    """
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


def drive(order: dict[str, Any]) -> dict[str, bytes]:
    """Run the job on a worker: fit with the worker's own cluster, and return the files of the result.

    If the worker dies, the scheduler runs this again on another worker, and the fit resumes from the checkpoint.
    """
    job, client = order["job"], distributed.get_client()
    distributed.secede()  # this task waits for others, so it gives up its thread to them
    try:
        with _stopped_by_cancel(client, job):
            wait_for_turn(client, job)
            return _fit(client, **order)
    except BaseException as error:
        tell(client, job, "error", str(error))
        tell(client, job, "state", "cancelled" if isinstance(error, Cancelled) else "failed")
        _let_go(error)
        raise


def _let_go(error: BaseException | None) -> None:
    """Free the variables of the functions that an error passed: Dask keeps the error, and with it all they hold."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _fit(
    client: distributed.Client,
    job: str,
    store: str,
    run: str | None,
    parameters: dict[str, Any],
    resume: bool,
    overwrite: bool,
) -> dict[str, bytes]:
    worker = distributed.get_worker()
    folder = RunDirectory(run or Path.home() / ".gdm" / "runs" / job, job)
    with _JobLog(worker, job, folder.path) as log:
        log.write(f"started on {worker.address}, run directory {folder.path}")
        opened = gdm_dask.open_store(store)
        target = opened.own_target()
        estimator = estimator_for(target, parameters | {"scheduler": client})
        progress = _Progress(settings_of(estimator, opened, target, opened.outputs()))

        metrics = FitMetrics({"job": job, "run": str(folder.path)})

        def on_cut(iteration: Iteration) -> None:
            log.write(str(iteration))
            tell(client, job, "progress", progress.after(iteration))
            metrics.after(iteration)
            interrupts.check()

        try:
            with metrics:
                model = folder.fit(estimator, opened, resume, overwrite, on_cut, wait=OWNER_ENDS)
        except BaseException as error:
            log.write(f"ended: {error}" if str(error) else "was cancelled")
            raise
        n_supports = len(model.support_features_)  # chosen from those of the last cut
        tell(client, job, "progress", progress.last | {"supports": n_supports, "expected_end": None})
        log.write(f"finished: {n_supports} supports, gap {model.gap_:.3g}")
        return {name: (folder.path / name).read_bytes() for name in RESULT_FILES}


@contextmanager
def _stopped_by_cancel(client: distributed.Client, job: str) -> Iterator[None]:
    """Let `cancel_job` end the body at its next safe point."""
    topic = f"{job}-cancel"
    with interrupts.stoppable() as hold:
        client.subscribe_topic(topic, lambda _: hold.keep(Cancelled(f"{job} was cancelled; its state is kept")))
        try:
            yield
        finally:
            client.unsubscribe_topic(topic)


class _JobLog(logging.Handler):
    """Write the lines of a job, and warnings of its driver thread, to the scheduler's events and to a file."""

    def __init__(self, worker: distributed.Worker, job: str, folder: Path) -> None:
        super().__init__(logging.WARNING)
        self._worker, self._job, self._path = worker, job, folder / "job.log"
        self._thread = threading.get_ident()
        with suppress(OSError):  # the fit itself reports problems with the folder
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, text: str) -> None:
        """Add a line."""
        self._worker.log_event(self._job, {"text": text})
        with suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._job} {text}\n")

    def emit(self, record: logging.LogRecord) -> None:
        """Add a warning from the job's own thread."""
        if record.thread == self._thread:
            self.write(record.getMessage())

    def __enter__(self) -> _JobLog:
        logging.getLogger("gdm_dask").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("gdm_dask").removeHandler(self)


class _Progress:
    """Progress of a fit, and its expected end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._first: tuple[float, float, float] | None = None
        self.last: dict[str, float | int | None] = {}

    def after(self, iteration: Iteration) -> dict[str, float | int | None]:
        """Return values for the entry of the job. The expected end needs progress since the first cut."""
        now, gap, wanted, tol = time.time(), iteration.gap, self._settings.n_supports, self._settings.tol
        first_gap = self._first[2] if self._first else gap
        done = max(iteration.number / self._settings.max_cuts, iteration.n_supports / wanted if wanted else 0.0)
        if not wanted and first_gap > gap > 0 and first_gap > tol > 0:  # gaps shrink by about the same factor each time
            done = max(done, min(1.0, math.log(first_gap / gap) / math.log(first_gap / tol)))
        began, before, _ = self._first = self._first or (now, done, gap)
        end = now + (1 - done) * (now - began) / (done - before) if done > before else None
        memory = psutil.Process().memory_info().rss
        self.last = {"cuts": iteration.number, "supports": iteration.n_supports, "gap": iteration.gap,
                     "memory": memory, "expected_end": end}  # fmt: skip
        return self.last


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
    if not isinstance(error, KilledWorker):
        return f"{type(error).__name__}: {error}. 'gdm logs' shows how far it got."
    return (
        f"the workers of its driver died {error.allowed_failures + 1} times, the last one at "
        f"{error.last_worker.address}, probably out of memory. See the log of that worker; submit the job again with "
        "--resume to go on from its last cut. distributed.scheduler.allowed-failures in the configuration of the "
        f"scheduler, now {error.allowed_failures}, sets how many such deaths a job survives."
    )


def fetch_job(client: distributed.Client, job: str, target: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write the files of a finished job into a local folder."""
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
