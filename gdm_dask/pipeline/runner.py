"""Run a pipeline: skip steps that are up to date, run the others, and record the run in the history."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput, Locked, exit_code_of
from gdm_dask.ingestion.staging import Staging
from gdm_dask.pipeline import steps
from gdm_dask.pipeline.history import History, Record, change_between, write_metrics
from gdm_dask.pipeline.schema import Pipeline
from gdm_dask.pipeline.step import Context, Manifest, NotKnown, Step, step_key
from gdm_dask.store.folder import Folder
from gdm_dask.system.locks import FileLock
from gdm_dask.system.progress import log_fields

logger = logging.getLogger(__name__)

UP_TO_DATE = "up to date"
DONE = "done"
#: Number of runs kept by default.
KEEP = 10

Told = Callable[[str, str, float], None]


def run_pipeline(
    pipeline: Pipeline, start: str | None = None, wait: float = 0.0, tell: Told = lambda step, state, seconds: None
) -> Record:
    """Run the steps that are not up to date.

    Parameters
    ----------
    pipeline : Pipeline
    start : str, optional
        A stage: it and all later stages run even if up to date.
    wait : float
        Seconds to wait for another run of this pipeline.
    tell : callable
        Called with the name of each step, its state ("done", "up to date" or "failed") and its seconds.

    Returns
    -------
    Record
        The record that is also in the history.
    """
    forced = _forced(start)
    history = History(pipeline.folder)
    record = history.begin(pipeline.name)
    log_fields.update(run=record.id, pipeline=pipeline.name)
    began = time.monotonic()
    lock = FileLock(pipeline.folder / ".lock")
    try:
        lock.acquire(f"the pipeline {pipeline.name} in {pipeline.folder}", wait)
        with lock:
            history.settle(record)
            _run_steps(pipeline, forced, record, tell)
            _finish(pipeline, history, record)
            record.seconds = round(time.monotonic() - began, 3)
            history.write(record)
    except BaseException as error:
        record.status, record.exit_code = _outcome(error)
        record.error = str(error)
        raise
    finally:
        record.seconds = round(time.monotonic() - began, 3)
        history.write(record)
        _tell_prometheus(pipeline, record)
    return record


def _tell_prometheus(pipeline: Pipeline, record: Record) -> None:
    """Write the metrics file if the pipeline asks for it; a failure to write does not fail the run."""
    wanted = pipeline.table("history").get("prometheus")
    if wanted is None or record.status == "locked":
        return
    try:
        write_metrics(Path(wanted), record)
    except (OSError, Locked) as error:
        logger.warning(
            "history.prometheus: %s cannot be written: %s", wanted, getattr(error, "strerror", None) or error
        )


def plan_pipeline(pipeline: Pipeline, start: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield (step, state) pairs of the run, without doing or writing anything."""
    context = Context(pipeline, Manifest(pipeline.folder / "manifest.json"), _forced(start), dry_run=True)
    for step in steps.steps_of(pipeline):
        try:
            outputs = _kept(step, context, step_key(step, context))
        except NotKnown as unknown:
            yield step.name, "would run" if step.stage in context.forced else str(unknown)
            continue
        if outputs is None:
            yield step.name, "would run"
        else:
            context.outputs[step.name] = outputs
            yield step.name, UP_TO_DATE


def _forced(start: str | None) -> frozenset[str]:
    """Return the stages from `start` on."""
    stages = [kind.stage for kind in steps.STEPS]
    if start is not None and start not in stages:
        raise BadInput(f"--from must be one of {', '.join(stages)}, got {start!r}")
    return frozenset() if start is None else frozenset(stages[stages.index(start) :])


def _kept(step: Step, context: Context, key: str) -> dict[str, Any] | None:
    """Return the outputs of a step that is up to date; None if it has to run."""
    outputs = None if step.stage in context.forced else context.manifest.outputs(step.name, key)
    return outputs if outputs is not None and step.is_there(context, outputs) else None


def _run_steps(pipeline: Pipeline, forced: frozenset[str], record: Record, tell: Told) -> None:
    context = Context(pipeline, Manifest(pipeline.folder / "manifest.json"), forced)
    for step in steps.steps_of(pipeline):
        with _timed(step.name, record, tell) as entry:
            key = step_key(step, context)
            outputs, state = _kept(step, context, key), UP_TO_DATE
            if outputs is None:
                logger.info("%s", step.name)
                outputs, state = step.run(context, key), DONE
                context.manifest.record(step.name, key, outputs)
            context.outputs[step.name] = outputs
            entry["state"] = state
        step.conclude(context, outputs, record)


@contextmanager
def _timed(name: str, record: Record, tell: Told) -> Iterator[dict[str, Any]]:
    """Yield the entry of a step in the record; its state tells how the step ended."""
    entry: dict[str, Any] = {"state": "failed", "seconds": 0.0}
    record.stages[name] = entry
    began = time.monotonic()
    try:
        yield entry
    finally:
        entry["seconds"] = round(time.monotonic() - began, 3)
        tell(name, entry["state"], entry["seconds"])


def _finish(pipeline: Pipeline, history: History, record: Record) -> None:
    """Compare with the previous run, update the link to the latest run, and remove old runs."""
    assert record.run is not None
    previous = history.last_run()
    record.change = _change(pipeline.folder, record.run, previous)
    record.status, record.exit_code = "done", 0
    _point(pipeline.folder / "latest", record.run)
    for part in ("train", "test"):
        remove_unfinished(pipeline.store(part), pipeline.table("ingest").get("scratch"))
    keep = pipeline.table("history").get("keep", KEEP)
    remove_old_runs(pipeline.folder / "runs", keep, {Path(run).name for run in (record.run, previous) if run})


def _change(folder: Path, run: str, previous: str | None) -> dict[str, Any]:
    if previous is None or steps.model_hash(folder / previous) is None:
        return {}
    if previous == run:
        return {"gained": 0, "lost": 0, "drift": 0.0}
    from gdm_dask.estimator import load_model  # slow to import, and not needed if nothing changed

    return change_between(*(load_model(folder / name) for name in (run, previous)))


def _point(link: Path, target: str) -> None:
    """Redirect a symbolic link atomically."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def remove_unfinished(store: Path, scratch: str | None) -> None:
    """Remove the scratch files of a killed ingest whose source again matches the content of the store."""
    staging = Staging(Folder(store), scratch)
    if staging.path.exists() or staging.lock.path.exists():
        staging.lock.acquire(str(store))
        with staging.lock:
            staging.clear()


def remove_old_runs(runs: Path, keep: int, needed: set[str]) -> None:
    """Remove all but the newest runs, and unfinished runs that no later run continues."""
    finished = [run for run in runs.iterdir() if (run / "model.json").exists()]
    finished.sort(key=lambda run: (run.name in needed, (run / "model.json").stat().st_mtime_ns))
    unfinished = [run for run in runs.iterdir() if run.is_dir() and run not in finished]
    for run in [*finished[:-keep], *unfinished]:
        if run.name not in needed:
            shutil.rmtree(run, ignore_errors=True)


def _outcome(error: BaseException) -> tuple[str, int]:
    """Return the status and exit code of a run that did not succeed."""
    number = getattr(error, "signal", None)
    if number is not None:
        return "interrupted", 128 + int(number)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    return "locked" if isinstance(error, Locked) else "failed", exit_code_of(error)
