"""One HTML page with all figures, the commands that made them, the means, and the cells without a result."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from .table import missing, summary

CAPTIONS = {
    "figure-1": "Support features (white pixels) and the affiliated features of their groups, on the mean faces.",
    "figure-2": "Accuracy, training time and redundancy on generated data; band: standard deviation of GDM over seeds.",
    "figure-3": "Test accuracy of a linear SVM on the selected features; FCBF chooses their number; bands as above.",
    "figure-4": "Training time.",
    "figure-5": "Redundancy rate of the selected features, without affiliated features, which are redundant by design.",
    "figure-6": "Pixels that each method selects, their number, and the mean 0 and mean 1 seen through them.",
    "figure-7": "Where the truth is known: the share of features in a true group, and the share of true groups found.",
}
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem}
img{max-width:100%}figure{margin:1.5rem 0}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.15rem .6rem;text-align:right}tr:nth-child(even){background:#f3f3f3}
pre{background:#f3f3f3;padding:.6rem;overflow-x:auto}"""


def write_page(table: pd.DataFrame, figures: Sequence[Path], path: Path, commands: Sequence[str]) -> None:
    """Write the page next to the folder of figures."""
    lines = [html.escape(line) for line in missing(table)]
    means = summary(table).drop(columns="dataset")
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>The paper's comparison</title>",
        f"<style>{_STYLE}</style><h1>The paper's comparison</h1>",
        "<p>Zhai, Tan, Tsang and Ong, <i>Discovering Support and Affiliated Features from Very High Dimensions</i>. ",
        "Sets marked <i>lookalike</i> are generated in place of sets whose files were missing. Commands:</p>",
        f"<pre>{html.escape(chr(10).join(commands))}</pre>",
        *(_figure(figure) for figure in figures),
        "<h2>Without a result</h2><ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>" if lines else "",
        "<h2>Means over the seeds</h2>",
        means.to_html(index=False, border=0, na_rep="", float_format=lambda value: f"{value:.4g}"),
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _figure(path: Path) -> str:
    name = "-".join(path.stem.split("-")[:2])
    caption = f"{name.replace('-', ' ').capitalize()}. {CAPTIONS[name]}"
    return (
        f'<figure><img src="{path.parent.name}/{path.name}" alt="{html.escape(caption)}"><figcaption>{caption}</figure>'
    )
