"""History of a pipeline: a record of every run, however it ended, and Prometheus metrics of the last run.

A record is written when a run begins and again when it ends. A killed run cannot record its end, so the next run that
holds the lock records it.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.store.folder import write_whole
from gdm_dask.system.locks import FileLock
from gdm_dask.system.metrics import Metric, exposition, unescaped
from gdm_dask.system.names import new_run_id

if TYPE_CHECKING:
    from gdm_dask.model import FittedModel

RUNNING = "running"
#: Maximum number of records kept.
MAX_RECORDS = 10_000
#: Seconds to wait for other pipelines that write the same metrics file.
METRICS_WAIT = 10.0

_LINE = re.compile(r'(\w+)\{pipeline="((?:[^"\\]|\\.)*)"\} (\S+)')


@dataclass
class Record:
    """Record of one run."""

    id: str  # start time, host and process
    pipeline: str
    started: str  # start time, such as ``2026-11-16T04:30:00Z``
    status: str = RUNNING  # or done, failed, interrupted, locked, killed
    exit_code: int | None = None
    seconds: float | None = None
    error: str = ""
    inputs: dict[str, str] = field(default_factory=dict)  # SHA-256 of each acquired file
    stages: dict[str, Any] = field(
        default_factory=dict
    )  # of each step, {"state": "done" or "up to date" or "failed", "seconds"}
    run: str | None = None  # folder of the model, relative to the pipeline's folder
    facts: dict[str, Any] = field(default_factory=dict)  # accuracy, redundancy rate and sizes from the evaluation
    change: dict[str, Any] = field(
        default_factory=dict
    )  # supports gained and lost since the previous finished run, and the drift


class History:
    """Folder ``history`` of a pipeline, with one file per run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "history"

    def begin(self, pipeline: str) -> Record:
        """Record the start of a run."""
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = Record(new_run_id(), pipeline, started)
        self.write(record)
        return record

    def write(self, record: Record) -> None:
        """Write a record atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"{record.id}.json", json.dumps(asdict(record), indent=1).encode())

    def records(self) -> list[Record]:
        """Return all records, oldest first."""
        return [record for record in map(_read, self._files()) if record is not None]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))

    def last_run(self) -> str | None:
        """Return the folder of the model of the last successful run."""
        records = map(_read, reversed(self._files()))
        return next((record.run for record in records if record is not None and record.status == "done"), None)

    def settle(self, ours: Record) -> None:
        """Record runs without an end as killed. Only the holder of the lock may call this."""
        for record in self.records():
            # A run writes its record before it requests the lock, so a live process may still be about to request it.
            if record.status == RUNNING and record.id != ours.id and not _is_alive(record.id):
                record.status, record.exit_code = "killed", 137
                self.write(record)
        for file in self._files()[:-MAX_RECORDS]:
            file.unlink(missing_ok=True)


def _is_alive(identity: str) -> bool:
    _, _, rest = identity.partition("-")
    host, _, process = rest.rpartition("-")
    # A record with our own process id belongs to an earlier process: the first process of every container has id 1.
    if host != socket.gethostname() or process == str(os.getpid()):
        return False
    try:
        os.kill(int(process), 0)
    except PermissionError:  # the process belongs to another user
        return True
    except (OSError, ValueError):
        return False
    return True


def _read(file: Path) -> Record | None:
    try:
        return Record(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def change_between(model: FittedModel, previous: FittedModel) -> dict[str, Any]:
    """Return the supports gained and lost since the previous fit, matched by name if both fits have names.

    The ``drift`` is 1 minus the mean Jaccard index of the groups of common supports; None if there are no common
    supports or no groups.
    """
    named = bool(model.names_) and bool(previous.names_)
    here, there = _groups(model, named), _groups(previous, named)
    both = sorted(set(here) & set(there))
    drift = None
    if both and model.groups_ is not None and previous.groups_ is not None:
        drift = 1 - float(np.mean([len(here[key] & there[key]) / len(here[key] | there[key]) for key in both]))
    gained, lost = set(here) - set(there), set(there) - set(here)
    return {"gained": len(gained), "lost": len(lost), "drift": None if drift is None else round(drift, 6)}


def _groups(model: FittedModel, named: bool) -> dict[str, set[str]]:
    groups = model.groups_ or {int(support): np.array([support]) for support in model.support_features_}

    def label(feature: int) -> str:
        return model.name_of(feature) if named else str(int(feature))

    return {label(support): {label(member) for member in members} for support, members in groups.items()}


def metrics_of(record: Record) -> dict[str, tuple[str, float | None]]:
    """Return the meaning and the value of each metric; None if a run ended before it had the value."""
    started = float(calendar.timegm(time.strptime(record.started, "%Y-%m-%dT%H:%M:%SZ")))
    done = started if record.status == "done" else None
    facts, change = record.facts.get, record.change.get
    return {
        "gdm_run_exit_code": (
            "Exit code of the last run: 0 done, 2 bad input, 3 engine, 130 and 143 interrupted.", record.exit_code
        ),
        "gdm_run_seconds": ("Seconds that the last run took.", record.seconds),
        "gdm_run_started_timestamp_seconds": ("When the last run began.", started),
        "gdm_run_success_timestamp_seconds": ("When the last run that ended well began.", done),
        "gdm_accuracy": ("Accuracy of the last evaluation.", facts("accuracy")),
        "gdm_redundancy_rate": ("Redundancy rate of the supports.", facts("redundancy_rate")),
        "gdm_supports": ("Number of supports.", facts("n_supports")),
        "gdm_supports_gained": ("Supports that the run before did not have.", change("gained")),
        "gdm_supports_lost": ("Supports that only the run before had.", change("lost")),
        "gdm_group_drift": ("1 - mean Jaccard index of the groups that both runs have.", change("drift")),
    }  # fmt: skip


def write_metrics(path: Path, record: Record) -> None:
    """Write a text file for node_exporter atomically; keep other pipelines' values, and values that this run lacks."""
    own = metrics_of(record)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    lock.acquire(f"the metrics file {path}", wait=METRICS_WAIT)
    with lock:
        values = {key: value for key, value in _read_metrics(path).items() if key[0] in own}
        values |= {(name, record.pipeline): value for name, (_, value) in own.items() if value is not None}
        named = sorted(values.items())
        metrics = [Metric(name, own[name][0], value, {"pipeline": whose}) for (name, whose), value in named]
        write_whole(path, exposition(metrics).encode())


def _read_metrics(path: Path) -> dict[tuple[str, str], float]:
    """Map (metric, pipeline) to its value, for all readable lines."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        if match := _LINE.fullmatch(line):
            with suppress(ValueError):
                found[match[1], unescaped(match[2])] = float(match[3])
    return found
