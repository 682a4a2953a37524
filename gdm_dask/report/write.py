"""One dict becomes a page, a Markdown text or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput
from gdm_dask.report.gather import gather
from gdm_dask.report.html import to_html
from gdm_dask.report.markdown import to_markdown
from gdm_dask.store.folder import write_whole


def to_json(report: dict[str, Any]) -> str:
    """A report as JSON."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "html": to_html,
    "md": to_markdown,
    "json": to_json,
}
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}


def form_of(path: str | os.PathLike[str]) -> str:
    """The form that a file name asks for.

    >>> form_of("out/report.HTML"), form_of("notes.md")
    ('html', 'md')
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise BadInput(f"{path}: a report is written as .html, .md or .json")
    return _SUFFIXES[suffix]


def render(report: dict[str, Any], form: str = "html") -> str:
    """A gathered report as text."""
    if form not in FORMS:
        raise BadInput(f"a report has the form {', '.join(FORMS)}, not {form!r}")
    return FORMS[form](report)


def make_report(machine: Any, path: str | os.PathLike[str] | None = None, **options: Any) -> str:
    """Gather a report, write it where a path is given, and return its text.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    path : path, optional
        ``.html``, ``.md`` or ``.json``; HTML where there is no path.
    **options
        See `gdm_dask.report.gather`.
    """
    form = "html" if path is None else form_of(path)
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise BadInput(f"{Path(path).parent}: there is no such folder to write the report into")
    text = render(gather(machine, **options), form)
    if path is not None:
        write_whole(Path(path), text.encode())
    return text
