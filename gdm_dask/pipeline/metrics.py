"""The last run of a pipeline as a Prometheus text file, for node_exporter's textfile collector."""

from __future__ import annotations

import calendar
import re
import time
from contextlib import suppress
from pathlib import Path

from gdm_dask.pipeline.history import Record
from gdm_dask.store.folder import write_whole

_LINE = re.compile(r'(\w+)\{pipeline="((?:[^"\\]|\\.)*)"\} (\S+)')
_HELP = {
    "gdm_run_exit_code": "Exit code of the last run: 0 done, 2 bad input, 3 engine, 130 and 143 interrupted.",
    "gdm_run_seconds": "Seconds that the last run took.",
    "gdm_run_started_timestamp_seconds": "When the last run began.",
    "gdm_run_success_timestamp_seconds": "When the last run that ended well began.",
    "gdm_accuracy": "Accuracy of the last evaluation.",
    "gdm_redundancy_rate": "Redundancy rate of the supports.",
    "gdm_supports": "Number of supports.",
    "gdm_supports_gained": "Supports that the run before did not have.",
    "gdm_supports_lost": "Supports that only the run before had.",
    "gdm_group_drift": "1 - mean Jaccard index of the groups that both runs have.",
}


def metrics_of(record: Record) -> dict[str, float | None]:
    """Names and values; None where a run did not come that far."""
    started = float(calendar.timegm(time.strptime(record.started, "%Y-%m-%dT%H:%M:%SZ")))
    return {
        "gdm_run_exit_code": record.exit_code,
        "gdm_run_seconds": record.seconds,
        "gdm_run_started_timestamp_seconds": started,
        "gdm_run_success_timestamp_seconds": started if record.status == "done" else None,
        "gdm_accuracy": record.facts.get("accuracy"),
        "gdm_redundancy_rate": record.facts.get("redundancy_rate"),
        "gdm_supports": record.facts.get("n_supports"),
        "gdm_supports_gained": record.change.get("gained"),
        "gdm_supports_lost": record.change.get("lost"),
        "gdm_group_drift": record.change.get("drift"),
    }


def write_metrics(path: Path, record: Record) -> None:
    """Write the file, whole; values that this run does not have, and those of other pipelines, stay as they were."""
    values = _read(path)
    label = record.pipeline.replace("\\", "\\\\").replace('"', '\\"')
    values |= {(name, label): value for name, value in metrics_of(record).items() if value is not None}
    lines = []
    for name, text in _HELP.items():
        found = [f'{name}{{pipeline="{whose}"}} {value!r}' for (known, whose), value in values.items() if known == name]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", *found] if found else []
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, ("\n".join(lines) + "\n").encode())


def _read(path: Path) -> dict[tuple[str, str], float]:
    """(metric, pipeline as it is written) -> value, of what can be read."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match and match[1] in _HELP:
            with suppress(ValueError):
                found[match[1], match[2]] = float(match[3])
    return found
