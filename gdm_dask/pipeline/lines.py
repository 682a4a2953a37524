"""On which line of a TOML text each key stands; `tomllib` does not tell."""

from __future__ import annotations

import re
import tomllib

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"^\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"^\s*({_DOTTED})\s*=")
_PART = re.compile(_KEY)


def key_lines(text: str) -> dict[str, int]:
    r"""Line of every table and key, under its dotted name.

    Examples
    --------
    >>> key_lines('name = "a"\n\n[fit]\ntau = 0.25\n')
    {'name': 1, 'fit': 3, 'fit.tau': 4}
    """
    found: dict[str, int] = {}
    table: list[str] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        if match := _TABLE.match(line):
            table = _parts(match.group(1))
            _note(found, table, number + 1)
        elif match := _ASSIGNMENT.match(line):
            _note(found, table + _parts(match.group(1)), number + 1)
            number = _last_line(lines, number)
        number += 1
    return found


def _note(found: dict[str, int], parts: list[str], line: int) -> None:
    for end in range(1, len(parts) + 1):
        found.setdefault(".".join(parts[:end]), line)


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]


def _last_line(lines: list[str], first: int) -> int:
    """Where the value that begins on a line ends: it may be an array or a text of several lines."""
    if not any(mark in lines[first] for mark in ("[", '"' * 3, "'" * 3)):
        return first
    for last in range(first, len(lines)):
        try:
            tomllib.loads("\n".join(lines[first : last + 1]))
        except tomllib.TOMLDecodeError:
            continue
        return last
    return first
