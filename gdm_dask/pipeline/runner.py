"""Running a pipeline: what is up to date is left alone, what is not is done, and the history tells."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gdm_dask.errors import BadInput, Locked, exit_code_of
from gdm_dask.estimator import GroupDiscoveryMachine
from gdm_dask.ingestion.workspace import Workspace
from gdm_dask.locks import FileLock
from gdm_dask.pipeline.context import Context, NotKnown, Step, store_path
from gdm_dask.pipeline.history import History, Record, change_between
from gdm_dask.pipeline.manifest import Manifest
from gdm_dask.pipeline.metrics import write_metrics
from gdm_dask.pipeline.schema import Pipeline
from gdm_dask.pipeline.stages import STAGES, acquire_files, check_accuracy, model_hash, steps_of
from gdm_dask.store.folder import Folder

logger = logging.getLogger(__name__)

UP_TO_DATE = "up to date"
DONE = "done"
#: Runs that are kept where the pipeline does not say.
KEEP = 10

Told = Callable[[str, str, float], None]


def run_pipeline(
    pipeline: Pipeline, start: str | None = None, wait: float = 0.0, tell: Told = lambda step, state, seconds: None
) -> Record:
    """Run what is not up to date.

    Parameters
    ----------
    pipeline : Pipeline
    start : str, optional
        A stage: it and all later ones run, up to date or not.
    wait : float
        Seconds to wait for another run of this pipeline.
    tell : callable
        Gets the name of each step, what became of it, and its seconds.

    Returns
    -------
    Record
        Also in the history.
    """
    _check_stage(start)
    history = History(pipeline.folder)
    record = history.begin(pipeline.name)
    began = time.monotonic()
    lock = FileLock(pipeline.folder / ".lock")
    try:
        lock.acquire(f"the pipeline {pipeline.name} in {pipeline.folder}", wait)
        with lock:
            history.settle(record)
            _run_steps(pipeline, start, record, tell)
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
    """Write the metrics where they are wanted; a place that cannot be written to changes nothing for the run."""
    wanted = pipeline.table("history").get("prometheus")
    if wanted is None or record.status == "locked":
        return
    try:
        write_metrics(Path(wanted), record)
    except OSError as error:
        logger.warning("history.prometheus: %s cannot be written: %s", wanted, error.strerror or error)


def plan_pipeline(pipeline: Pipeline, start: str | None = None) -> Iterator[tuple[str, str]]:
    """What a run would do: (step, state), without doing or writing anything."""
    _check_stage(start)
    context = Context(pipeline, Manifest(pipeline.folder / "manifest.json"))
    try:
        yield "acquire", UP_TO_DATE if acquire_files(context, dry_run=True) else "would look at new or changed files"
    except NotKnown as missing:
        yield "acquire", f"would fetch {missing}"
    for step in steps_of(pipeline):
        try:
            outputs = None if _is_forced(step, start) else _outputs_of(step, context)
        except NotKnown:
            yield step.name, "would run if what comes before it changes"
            continue
        if outputs is None:
            yield step.name, "would run"
        else:
            context.outputs[step.name] = outputs
            yield step.name, UP_TO_DATE


def _check_stage(start: str | None) -> None:
    if start is not None and start not in STAGES:
        raise BadInput(f"--from {start}: the stages are {', '.join(STAGES)}")


def _is_forced(step: Step, start: str | None) -> bool:
    return start is not None and STAGES.index(step.stage) >= STAGES.index(start)


def _outputs_of(step: Step, context: Context) -> dict | None:
    """What a step gave before, where nothing that it depends on has changed."""
    outputs = context.manifest.outputs(step.name, step.key(context))
    if outputs is None:
        return None
    context.outputs[step.name] = outputs
    there = step.is_there(context, outputs)
    del context.outputs[step.name]
    return outputs if there else None


def _run_steps(pipeline: Pipeline, start: str | None, record: Record, tell: Told) -> None:
    context = Context(pipeline, Manifest(pipeline.folder / "manifest.json"))
    with _timed("acquire", record, tell) as entry:
        entry["state"] = UP_TO_DATE if acquire_files(context) else DONE
    record.inputs = context.of("acquire")
    for step in steps_of(pipeline):
        with _timed(step.name, record, tell) as entry:
            outputs = None if _is_forced(step, start) else _outputs_of(step, context)
            entry["state"] = UP_TO_DATE
            if outputs is None:
                entry["state"] = "failed"
                logger.info("%s", step.name)
                outputs = _work(step, context, forced=_is_forced(step, start))
                entry["state"] = DONE
            context.outputs[step.name] = outputs
        if step.name == "evaluate":
            record.run, record.facts = context.of("fit")["run"], outputs["facts"]
            check_accuracy(context)


def _work(step: Step, context: Context, forced: bool) -> dict:
    key = step.key(context)
    if forced and step.name == "fit":
        shutil.rmtree(context.folder / "runs" / key[:12], ignore_errors=True)
    outputs = step.work(context, key)
    context.manifest.record(step.name, key, outputs)
    return outputs


@contextmanager
def _timed(name: str, record: Record, tell: Told) -> Iterator[dict]:
    entry: dict = {"state": "failed", "seconds": 0.0}
    record.stages[name] = entry
    began = time.monotonic()
    try:
        yield entry
    except BaseException:
        entry["state"] = "failed"
        raise
    finally:
        entry["seconds"] = round(time.monotonic() - began, 3)
        tell(name, entry["state"], entry["seconds"])


def _finish(pipeline: Pipeline, history: History, record: Record) -> None:
    """Compare with the previous run, name the latest, and remove old runs."""
    assert record.run is not None
    previous = history.last_done()
    record.change = _change(pipeline.folder, record.run, None if previous is None else previous.run)
    record.status, record.exit_code = "done", 0
    _point(pipeline.folder / "latest", record.run)
    for part in ("train", "test"):
        remove_unfinished(store_path(pipeline, part))
    keep = pipeline.table("history").get("keep", KEEP)
    remove_old_runs(
        pipeline.folder / "runs", keep, {Path(run).name for run in (record.run, _previous(previous)) if run}
    )


def _previous(record: Record | None) -> str | None:
    return None if record is None else record.run


def _change(folder: Path, run: str, previous: str | None) -> dict:
    if previous is None or model_hash(folder / previous) is None:
        return {}
    if previous == run:
        return {"gained": 0, "lost": 0, "drift": 0.0}
    machines = [GroupDiscoveryMachine.load(folder / name) for name in (run, previous)]
    return change_between(*machines)


def _point(link: Path, target: str) -> None:
    """Make a symbolic link point elsewhere, at once."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def remove_unfinished(store: Path) -> None:
    """Remove what a killed ingest left, where its source has come back to what the store holds."""
    workspace = Workspace(Folder(store))
    if workspace.path.exists() or workspace.lock.path.exists():
        workspace.lock.acquire(str(store))
        with workspace.lock:
            workspace.clear()


def remove_old_runs(runs: Path, keep: int, needed: set[str]) -> None:
    """Remove all but the newest runs, and unfinished ones that nothing will go on with."""
    finished = [run for run in runs.iterdir() if (run / "model.json").exists()]
    finished.sort(key=lambda run: (run.name in needed, (run / "model.json").stat().st_mtime_ns))
    unfinished = [run for run in runs.iterdir() if run.is_dir() and run not in finished]
    for run in [*finished[:-keep], *unfinished]:
        if run.name not in needed:
            shutil.rmtree(run, ignore_errors=True)


def _outcome(error: BaseException) -> tuple[str, int]:
    """Status and exit code of a run that did not end well."""
    number = getattr(error, "signal", None)
    if number is not None:
        return "interrupted", 128 + int(number)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    return "locked" if isinstance(error, Locked) else "failed", exit_code_of(error)
