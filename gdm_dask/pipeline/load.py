"""Read and check pipeline files; errors name the key and the line of the first mistake."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput
from gdm_dask.pipeline import steps
from gdm_dask.pipeline.schema import NAME, TEXT, Key, Pipeline, Problem, Table, check, key_lines
from gdm_dask.store.folder import local_folder

#: Largest pipeline file.
MAX_BYTES = 1 << 20


def load_pipeline(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Pipeline:
    """Read a pipeline file.

    Parameters
    ----------
    path : path
    overrides : iterable of str
        ``key=value`` pairs that override values of the file, such as ``fit.tau=0.5``.

    Raises
    ------
    BadInput
        If a value is wrong; the message names the key, its line and the allowed values.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise BadInput(f"{file}: the pipeline is larger than {MAX_BYTES} bytes")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{file}: the pipeline cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: the pipeline must be UTF-8 text") from error
    try:
        settings = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and tables in tables in ...
        raise BadInput(f"{file}: {error}") from error
    places = {key: f"{file}, line {line}" for key, line in key_lines(text).items()}
    for override in overrides:
        places[_override(settings, override)] = f"--set {override}"
    problem = _problem(settings)
    if problem is not None:
        raise BadInput(_located(problem, places, file))
    return Pipeline(settings["name"], file, _folder(settings), settings)


def _problem(settings: Mapping[str, Any]) -> Problem | None:
    """Return the first mistake: in a single key, or in keys that refer to each other."""
    schema = Table(
        {
            "name": Key(str, required=True, pattern=NAME),
            "description": TEXT,
            "folder": Key(str, pattern=f"{NAME}(/{NAME})*"),
            **{kind.stage: kind.table for kind in steps.STEPS},
            "history": Table({"keep": Key(int, between=(2, 10**6)), "prometheus": TEXT}),
        }
    )
    return check(settings, schema) or next(filter(None, (kind.problem(settings) for kind in steps.STEPS)), None)


def _folder(settings: Mapping[str, Any]) -> Path:
    runs = local_folder(os.environ.get("GDM_RUNS", "runs"), "GDM_RUNS")
    return runs / str(settings.get("folder", settings["name"]))


def _override(settings: dict[str, Any], override: str) -> str:
    """Set a ``key=value`` pair in the settings, and return its key."""
    key, equals, value = override.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", key):
        raise BadInput(f"--set {override}: write it as key=value, such as fit.tau=0.5")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value
    *tables, last = key.split(".")
    table = settings
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise BadInput(f"--set {override}: {name} is not a table")
    table[last] = parsed
    return key


def _located(problem: Problem, places: Mapping[str, str], file: Path) -> str:
    key, message = problem
    name, known = key, places.get(key)
    while known is None and "." in name:  # a missing key: use the line of its table
        name = name.rpartition(".")[0]
        known = places.get(name)
    return f"{known or file}: {key} {message}"
