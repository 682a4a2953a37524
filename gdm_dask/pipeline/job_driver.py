"""The driver of a job, as a task on a worker: it waits for its turn, fits, and returns the files of the result."""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import distributed
import psutil

import gdm_dask
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.errors import GdmError
from gdm_dask.estimator import estimator_for
from gdm_dask.inputs import settings_of
from gdm_dask.pipeline.fit_metrics import FitMetrics
from gdm_dask.pipeline.job_queue import Cancelled, ask, tell, wait_for_turn
from gdm_dask.pipeline.jobs import RESULT_FILES
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.settings.settings import Settings
from gdm_dask.store import FeatureStore
from gdm_dask.system import interrupts

#: Seconds that a disconnected worker has to end and release the run directory of its job.
OWNER_ENDS = 300.0


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
        opened = _opened(store, worker.address)
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
        n_supports = len(model.support_features_)  # fewer than entered in the last cut
        # An earlier driver, whose worker died, may have taken all cuts.
        last = {"cuts": model.n_cuts_, "supports": n_supports, "gap": model.gap_, "expected_end": None}
        tell(client, job, "progress", last | {"memory": _memory()})
        log.write(f"finished: {n_supports} supports, gap {model.gap_:.3g}")
        return {name: (folder.path / name).read_bytes() for name in RESULT_FILES}


def _opened(store: str, worker: str) -> FeatureStore:
    """Open the store; an error names the worker, because other workers may have the store."""
    try:
        return gdm_dask.open_store(store)
    except GdmError as error:
        raise type(error)(f"worker {worker}: {error}") from error


@contextmanager
def _stopped_by_cancel(client: distributed.Client, job: str) -> Iterator[None]:
    """Let `cancel_job` end the body at its next safe point."""
    topic = f"{job}-cancel"
    with interrupts.stoppable() as hold:

        def cancel(_: Any) -> None:
            hold.keep(Cancelled(f"{job} was cancelled"))

        client.subscribe_topic(topic, cancel)
        if ask(client, "events", topic=topic):  # sent to a driver whose worker died before it stopped
            cancel(None)
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

    def after(self, iteration: Iteration) -> dict[str, float | int | None]:
        """Return values for the entry of the job. The expected end needs progress since the first cut."""
        now, gap, wanted, tol = time.time(), iteration.gap, self._settings.n_supports, self._settings.tol
        first_gap = self._first[2] if self._first else gap
        done = max(iteration.number / self._settings.max_cuts, iteration.n_supports / wanted if wanted else 0.0)
        if not wanted and first_gap > gap > 0 and first_gap > tol > 0:  # gaps shrink by about the same factor each time
            done = max(done, min(1.0, math.log(first_gap / gap) / math.log(first_gap / tol)))
        began, before, _ = self._first = self._first or (now, done, gap)
        end = now + (1 - done) * (now - began) / (done - before) if done > before else None
        return {"cuts": iteration.number, "supports": iteration.n_supports, "gap": iteration.gap,
                "memory": _memory(), "expected_end": end}  # fmt: skip


def _memory() -> int:
    return int(psutil.Process().memory_info().rss)
