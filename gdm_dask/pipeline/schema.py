"""Schema of pipeline settings: keys with types and limits, tables of keys, and the line of each key in its file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput
from gdm_dask.system.resources import parse_bytes

#: The key of a setting, and a predicate that describes its problem.
Problem = tuple[str, str]

_KINDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Pipeline:
    """A checked pipeline."""

    name: str
    file: Path
    folder: Path  # for data, runs and history
    settings: dict[str, Any] = field(hash=False)  # tables of the file, with the changes of ``--set``

    def table(self, name: str) -> dict[str, Any]:
        """Return a top-level table; empty if the file has none."""
        found: dict[str, Any] = self.settings.get(name, {})
        return found

    def store(self, part: str) -> Path:
        """Return the path of the store of a part."""
        return self.folder / "data" / f"{part}.zarr"


@dataclass(frozen=True)
class Key:
    """Type and limits of a value."""

    kind: type  # str, int, float or bool
    required: bool = False
    choices: tuple[Any, ...] = ()  # all values by default
    between: tuple[float, float] | None = None  # minimum and maximum
    pattern: str = ""  # that a text must match
    several: bool = False  # a list of such values is also allowed
    pair: bool = False  # a list of two such values is required
    size: bool = False  # a text must be a number of bytes, such as "2GB"

    def problem(self, value: Any) -> str | None:
        """Describe the problem of a value as a predicate; None if the value is valid."""
        if self.pair and not (isinstance(value, list) and len(value) == 2):
            return f"must be a list of two values, got {value!r}"
        if (self.several or self.pair) and isinstance(value, list):
            if not value:
                return "is an empty list: add a value, or remove the key"
            single = replace(self, several=False, pair=False)
            return next(filter(None, map(single.problem, value)), None)
        if value in self.choices and type(value) is not bool:
            return None
        allowed = (int, float) if self.kind is float else (self.kind,)
        if type(value) not in allowed or (self.choices and self.kind is str):
            return f"must be {self._wanted()}, got {value!r}"
        if self.between is not None and not self.between[0] <= value <= self.between[1]:
            return f"must be {self._wanted()}, got {value!r}"
        if self.pattern and not re.fullmatch(self.pattern, value):
            return f"must match {self.pattern}, got {value!r}"
        if self.size and not _is_size(value):
            return f"must be a size, such as 2GB or 64MiB, got {value!r}"
        return None

    def _wanted(self) -> str:
        if self.choices and self.kind is str:
            return f"one of {', '.join(map(str, self.choices))}"
        text = _KINDS[self.kind]
        if self.between is not None:
            low, high = self.between
            text += f" >= {low:g}" if high == float("inf") else f" in [{low:g}, {high:g}]"
        if self.choices:
            text += f" or {', '.join(map(repr, self.choices))}"
        return text


def _is_size(value: str) -> bool:
    try:
        return bool(parse_bytes(value))
    except BadInput:
        return False


@dataclass(frozen=True)
class Table:
    """Keys of a table, and the form of nested tables with any other name that matches `NAME`; or anything."""

    keys: dict[str, Key | Table] = field(default_factory=dict)
    others: Table | None = None
    anything: bool = False


FROM_ONE = (1, float("inf"))
TEXT, SWITCH, SIZE = Key(str), Key(bool), Key(str, size=True)
SCHEDULER = Key(str, pattern=r"threads|processes|synchronous|local|[a-z]+://.+|.+\.json")
#: Names that become parts of paths, so they cannot leave the folder that they are in.
NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"


def as_list(value: Any) -> list[Any]:
    """Return a list: a single value becomes a list of one."""
    return value if isinstance(value, list) else [value]


def check(values: Mapping[str, Any], table: Table, prefix: str = "") -> Problem | None:
    """Return the first problem of a table; None if the table is valid.

    Examples
    --------
    >>> check({"tau": 3}, Table({"tau": Key(float, between=(0, 1))}), "fit.")
    ('fit.tau', 'must be a number in [0, 1], got 3')
    """
    for name, value in values.items() if not table.anything else ():
        expected = table.keys.get(name, table.others)
        if expected is None:
            return prefix + name, f"is not a known key; known keys are {', '.join(table.keys)}{_meant(name, table)}"
        if name not in table.keys and not re.fullmatch(NAME, name):
            return prefix + name, f"must have a name that matches {NAME}"
        if isinstance(expected, Key):
            message = expected.problem(value)
            found = None if message is None else (prefix + name, message)
        elif not isinstance(value, dict):
            found = (prefix + name, f"must be a table: write [{prefix}{name}]")
        else:
            found = check(value, expected, f"{prefix}{name}.")
        if found is not None:
            return found
    for name, key in table.keys.items():
        if isinstance(key, Key) and key.required and name not in values:
            return prefix + name, "is missing"
    return None


def _meant(name: str, table: Table) -> str:
    """Return the key that an unknown name resembles, for a message."""
    return "".join(f". Did you mean {key}?" for key in get_close_matches(name, table.keys, 1))


_NAME_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_NAME_PART}(?:\s*\.\s*{_NAME_PART})*"
_TABLE = re.compile(rf"^\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"^\s*({_DOTTED})\s*=")
_PART = re.compile(_NAME_PART)
#: Texts and comments, in which brackets have no meaning; brackets; ends of lines.
_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|\'{3}.*?\'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]''', re.DOTALL
)


def key_lines(text: str) -> dict[str, int]:
    r"""Return the line of every table and key of a valid TOML text by dotted name; `tomllib` does not provide it.

    Examples
    --------
    >>> key_lines('name = "a"\n\n[fit]\ntau = 0.25\n')
    {'name': 1, 'fit': 3, 'fit.tau': 4}
    """
    found: dict[str, int] = {}
    table: list[str] = []
    inner = _inner_lines(text)
    for number, line in enumerate(text.split("\n"), 1):
        if number in inner:
            continue
        if match := _TABLE.match(line):
            table = _parts(match.group(1))
            _note(found, table, number)
        elif match := _ASSIGNMENT.match(line):
            _note(found, table + _parts(match.group(1)), number)
    return found


def _note(found: dict[str, int], parts: list[str], line: int) -> None:
    for end in range(1, len(parts) + 1):
        found.setdefault(".".join(parts[:end]), line)


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]


def _inner_lines(text: str) -> set[int]:
    """Return the lines on which the value of an earlier line continues."""
    inner: set[int] = set()
    line, depth = 1, 0
    for token in _TOKEN.findall(text):
        n_ends = token.count("\n")
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif n_ends and (depth or token != "\n"):
            inner.update(range(line + 1, line + n_ends + 1))
        line += n_ends
    return inner
