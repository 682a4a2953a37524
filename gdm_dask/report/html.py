"""A report as one page: style, script and data in one file, nothing fetched, nothing in a name executed."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
from importlib.resources import files
from typing import Any

#: Parts of the script, in the order in which they need each other.
SCRIPTS = ("base", "charts", "table", "group", "overview", "supports", "map", "images", "insight", "main")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def embed(value: Any) -> str:
    r"""JSON that can stand in a script element: no character of it can end the element or start another.

    >>> print(embed({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 and lone surrogates are escaped
    for character, code in _ESCAPES.items():
        text = text.replace(character, code)
    return text


def compact(report: dict[str, Any]) -> dict[str, Any]:
    """The report with its longest lists written shorter: steps between feature numbers, correlations as integers."""
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
    """A report as a self-contained HTML page."""
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
    """What a content security policy calls an inline element by: browsers run no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
