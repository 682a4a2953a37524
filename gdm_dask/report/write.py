"""Render a gathered report as an HTML page, Markdown or JSON.

The page is one file with style, script and data. It fetches nothing and executes nothing from a name.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput
from gdm_dask.model import FittedModel
from gdm_dask.report.gather import gather
from gdm_dask.report.markdown import to_markdown
from gdm_dask.store.folder import write_whole
from gdm_dask.system.resources import format_bytes

#: Parts of the script, in the order of their dependencies.
SCRIPTS = ("base", "charts", "table", "group", "overview", "supports", "map", "images", "insight", "main")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def embed(value: Any) -> str:
    r"""Return JSON that is safe inside a script element: no character can end the element or start another.

    >>> print(embed({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 and lone surrogates are escaped
    for character, code in _ESCAPES.items():
        text = text.replace(character, code)
    return text


def compact(report: dict[str, Any]) -> dict[str, Any]:
    """Shorten the longest lists of a report: differences of feature numbers, correlations as integers."""
    short = dict(report)
    if report["groups"] is not None:
        rho = [[round(10_000 * value) for value in members] for members in report["groups"]["rho"]]
        short["groups"] = {**report["groups"], "rho": rho}
    if report["names"] is not None:
        feature = report["names"]["feature"]
        steps = [b - a for a, b in itertools.pairwise([0, *feature])]
        short["names"] = {"steps": steps, "name": report["names"]["name"]}
    return short


def to_html(report: dict[str, Any]) -> str:
    """Return a report as a self-contained HTML page."""
    style = _asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(f"page_{name}.js") for name in SCRIPTS) + "})();\n"
    parts = {
        "POLICY": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "TITLE": html.escape(report["title"][:200]),
        "STYLE": style,
        "DATA": embed(compact(report)),
        "SCRIPT": script,
        "SENTENCE": html.escape(report["sentence"]),
    }
    pieces = _asset("page.html").split("%%")  # text, name, text, name, ..., text
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def _asset(name: str) -> str:
    return files("gdm_dask.report").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    """Return the hash of an inline element for the content security policy: browsers run no other element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def to_json(report: dict[str, Any]) -> str:
    """Return a report as JSON."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "html": to_html,
    "md": to_markdown,
    "json": to_json,
}
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the format that a file name asks for.

    >>> form_of("out/report.HTML"), form_of("notes.md")
    ('html', 'md')
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise BadInput(f"the name of a report must end in .html, .md or .json, got {os.fspath(path)!r}")
    return _SUFFIXES[suffix]


def render(report: dict[str, Any], form: str = "html") -> str:
    """Render a gathered report as text."""
    if form not in FORMS:
        raise BadInput(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    return FORMS[form](report)


class ReportText(str):
    """Text of a report, shown by its name and size: a notebook would print the whole page."""

    name = "report"

    def __repr__(self) -> str:
        return f"<{self.name}, {format_bytes(len(self))}>"


def make_report(machine: FittedModel, path: str | os.PathLike[str] | None = None, **options: Any) -> ReportText:
    """Gather a report, write it if a path is given, and return its text.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
        A fitted model.
    path : path, optional
        File that ends in ``.html``, ``.md`` or ``.json``. Without a path, the text is HTML.
    **options
        See `gdm_dask.report.gather`.
    """
    form = "html" if path is None else form_of(path)
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise BadInput(f"{Path(path).parent}: the folder for the report does not exist")
    text = ReportText(render(gather(machine, **options), form))
    if path is not None:
        text.name = os.fspath(path)
        write_whole(Path(path), text.encode(errors="backslashreplace"))  # names of files may be any bytes
    return text
