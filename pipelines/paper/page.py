"""One HTML page with all figures, the table of means, what gave no result, and the command that made it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from .table import DONE, summary

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}
img{max-width:100%}table{border-collapse:collapse;font-size:.85rem}th,td{padding:.15rem .6rem;text-align:right}
tr:nth-child(even){background:#f3f3f3}pre{background:#f3f3f3;padding:.6rem;overflow-x:auto}"""


def write_page(table: pd.DataFrame, figures: Sequence[Path], path: Path, command: str) -> None:
    """Write the page beside the folder of figures."""
    shown = [f'<img src="{figure.parent.name}/{figure.name}" alt="{figure.stem}">' for figure in figures]
    missing = table[~table["status"].isin(DONE)].groupby(["dataset", "method", "status"])["message"].first()
    lines = [html.escape(f"{', '.join(key)}: {message}") for key, message in missing.items()]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>The paper's comparison</title>",
        f"<style>{_STYLE}</style><h1>The paper's comparison</h1>",
        f"<pre>{html.escape(command)}</pre>",
        *shown,
        "<h2>Without a result</h2><ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>" if lines else "",
        "<h2>Means over the seeds</h2>",
        summary(table).to_html(index=False, border=0, na_rep="", float_format=lambda value: f"{value:.4g}"),
    ]
    path.write_text("\n".join(parts), encoding="utf-8")
