"""Read constraints from the command line, from pipelines and from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput


def read_constraints(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of an estimator, with the features that texts and files name in place of these.

    `include` and `exclude` may be a list of names, names separated by commas, or a file with a name per line;
    `groups_of` is a file with a feature, a tab and its variable per line. All other parameters stay as they are.
    """
    found = dict(given)
    for name in ("include", "exclude"):
        if given.get(name) is not None:
            found[name] = _features(given[name])
    if given.get("groups_of") is not None:
        found["groups_of"] = _variables(Path(given["groups_of"]))
    return found


def _features(given: str | Sequence[str]) -> list[str]:
    if not isinstance(given, str):
        return list(given)
    path = Path(given)
    return _lines(path) if path.is_file() else [name for name in given.split(",") if name]


def _variables(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for number, line in enumerate(_lines(path), 1):
        feature, tab, variable = line.partition("\t")
        if not (feature and tab and variable) or "\t" in variable:
            raise BadInput(f"{path}, line {number}: expected a feature, a tab and its variable, got {line!r}")
        found.setdefault(variable, []).append(feature)
    return found


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, without empty ones at its end."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n").splitlines()
    except OSError as error:
        raise BadInput(f"{path}: the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: the file must be UTF-8 text: {error.reason} at byte {error.start}") from error
