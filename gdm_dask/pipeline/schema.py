"""What a pipeline file may say: read, checked, and refused with the key and the line of what is wrong."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput
from gdm_dask.pipeline.keys import SCHEMA, Key, Table
from gdm_dask.pipeline.lines import key_lines


@dataclass(frozen=True)
class Pipeline:
    """A checked pipeline.

    Attributes
    ----------
    name : str
    file : Path
    folder : Path
        Where its data, runs and history go.
    settings : dict
        The tables of the file, with what ``--set`` changed.
    """

    name: str
    file: Path
    folder: Path
    settings: dict[str, Any] = field(hash=False)

    def table(self, name: str) -> dict[str, Any]:
        """A top-level table; empty where the file has none."""
        found: dict[str, Any] = self.settings.get(name, {})
        return found


def as_list(value: Any) -> list[Any]:
    """A value of which there may be several."""
    return value if isinstance(value, list) else [value]


def load_pipeline(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Pipeline:
    """Read a pipeline file.

    Parameters
    ----------
    path : path
    overrides : iterable of str
        ``key=value`` pairs that take the place of what the file says, such as ``fit.tau=0.5``.

    Raises
    ------
    BadInput
        Naming the key, the line and what is allowed there.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: the pipeline cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: the pipeline is not UTF-8 text") from error
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file}: {error}") from error
    places = {key: f"{file}, line {line}" for key, line in key_lines(text).items()}
    for override in overrides:
        places[_override(settings, override)] = f"--set {override}"
    problem = check(settings, SCHEMA) or _check_references(settings)
    if problem is not None:
        raise BadInput(_located(problem, places, file))
    return Pipeline(settings["name"], file, _folder(settings), settings)


def _folder(settings: Mapping[str, Any]) -> Path:
    return Path(os.environ.get("GDM_RUNS", "runs")) / settings.get("folder", settings["name"])


def _override(settings: dict[str, Any], override: str) -> str:
    """Put a ``key=value`` into the settings, and return its key."""
    key, equals, value = override.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", key):
        raise BadInput(f"--set {override}: write it as key=value, such as fit.tau=0.5")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    *tables, last = key.split(".")
    place = settings
    for name in tables:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise BadInput(f"--set {override}: {name} is not a table")
    place[last] = parsed
    return key


def _located(problem: tuple[str, str], places: Mapping[str, str], file: Path) -> str:
    key, message = problem
    place, known = key, places.get(key)
    while known is None and "." in place:  # a key that is missing: its table
        place = place.rpartition(".")[0]
        known = places.get(place)
    return f"{known or file}: {key}: {message}"


def check(values: Mapping[str, Any], table: Table, prefix: str = "") -> tuple[str, str] | None:
    """The first thing that is wrong in a table, as (key, message); None where nothing is.

    Examples
    --------
    >>> check({"tau": 3}, Table({"tau": Key(float, between=(0, 1))}), "fit.")
    ('fit.tau', 'a number from 0 to 1 is needed, not 3')
    """
    for name, value in values.items():
        expected = table.keys.get(name, table.others)
        if expected is None:
            return prefix + name, f"there is no such key here; there are {', '.join(table.keys)}"
        if isinstance(expected, Key):
            message = expected.problem(value)
            found = None if message is None else (prefix + name, message)
        elif not isinstance(value, dict):
            found = (prefix + name, f"this is a table: write [{prefix}{name}]")
        else:
            found = check(value, expected, f"{prefix}{name}.")
        if found is not None:
            return found
    for name, key in table.keys.items():
        if isinstance(key, Key) and key.required and name not in values:
            return prefix + name, "this key is missing"
    return None


def _check_references(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """What one key says about another."""
    files = settings.get("acquire", {})
    for name, file in files.items():
        if "path" not in file and "url" not in file:
            return f"acquire.{name}", "a path or a url is needed"
        if "url" in file and "sha256" not in file:
            return f"acquire.{name}.url", 'a URL needs its sha256 ("on first use" where nobody publishes it)'
    sets = settings.get("ingest", {})
    if "train" not in sets:
        return "ingest.train", "this table is missing: it says what to fit on"
    if "test" in sets and "split" in sets:
        return "ingest.split", "there is a test set already: give one of ingest.test and ingest.split"
    for part in ("train", "test"):
        found = _check_set(sets.get(part), f"ingest.{part}", files)
        if found is not None:
            return found
    return None


def _check_set(table: Mapping[str, Any] | None, place: str, files: Mapping[str, Any]) -> tuple[str, str] | None:
    if table is None:
        return None
    reader = table["reader"]
    for key in ("files", "labels"):
        for name in as_list(table.get(key, [])):
            if name not in files:
                return f"{place}.{key}", f"there is no [acquire.{name}]; there are {', '.join(files) or 'none'}"
    if reader == "twin" and "like" not in table:
        return f"{place}.like", f"this key is missing: the {reader} reader needs it"
    if reader != "twin" and "files" not in table:
        return f"{place}.files", f"this key is missing: the {reader} reader needs files"
    return None
