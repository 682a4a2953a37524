"""Curves over the number of features: figure 2 (the synthetic set), 3 to 5 (other data), and 7 (true groups)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .. import registry
from ..table import summary
from .style import STYLE, look_of, order_of, save

AXES = {
    "accuracy": "test accuracy (%)",
    "seconds": "training time (s)",
    "redundancy": "redundancy rate RED",
    "precision": "features in a true group (%)",
    "recall": "true groups found (%)",
}
PERCENT = ("accuracy", "precision", "recall")
PAPERS = ("accuracy", "seconds", "redundancy")
SYNTHETIC = ("synthetic", "quick")
COLUMNS = 4
#: Redundant by design; its curve would squeeze the others together.
REDUNDANT = "gdm_affiliated"
#: The only method with a band of one standard deviation over the seeds: several bands would hide each other.
BANDED = "gdm"
#: Order of the panels: the paper's data, then the additions.
FIRST = ("synthetic", "mnist", "usps", "kdd2010", "webspam", "faces")

Panel = tuple[str, str]


def draw_curves(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw figures 2 to 5, and figure 7 for data whose true groups are known."""
    means = summary(table)
    drawn = []
    for name in (name for name in SYNTHETIC if name in set(means["dataset"])):
        panels = [(data, criterion) for data in _names(means[means["dataset"] == name]) for criterion in PAPERS]
        drawn.append(save(_curves(means, panels, 3), folder / f"figure-2-{name}"))
    others = _names(means[~means["dataset"].isin(SYNTHETIC)])
    for number, criterion in enumerate(PAPERS, start=3):
        if others:
            panels = [(name, criterion) for name in others]
            drawn.append(save(_curves(means, panels, COLUMNS), folder / f"figure-{number}-{criterion}"))
    known = _names(means[means["recall"].notna()])
    if known:
        panels = [(name, criterion) for name in known for criterion in ("precision", "recall")]
        drawn.append(save(_curves(means, panels, 2), folder / "figure-7-true-groups"))
    return drawn


def _names(means: pd.DataFrame) -> list[str]:
    """List the data of some rows in the order of the panels."""
    places = {name: place for place, name in enumerate(FIRST)}
    pairs = means[["dataset", "data"]].drop_duplicates()
    ranked = sorted(pairs.itertuples(index=False), key=lambda pair: (places.get(pair.dataset, len(FIRST)), pair.data))
    return [pair.data for pair in ranked]


def _curves(means: pd.DataFrame, panels: Sequence[Panel], n_columns: int) -> Figure:
    """Draw one panel for each (data, criterion), over the number of features, with one legend below."""
    n_columns = min(n_columns, len(panels))
    n_rows = -(-len(panels) // n_columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(7.0, 3.1 * n_columns), 2.7 * n_rows + 0.7), layout="constrained")
        axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        methods: set[str] = set()
        for ax, panel in zip(axes, panels, strict=False):
            methods |= _panel(ax, means, panel)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        shown = sorted(methods, key=order_of)
        handles = [Line2D([], [], **look_of(method)) for method in shown]
        names = [registry.method(method).NAME for method in shown]
        figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, handlelength=3)
    return figure


def _panel(ax: Any, means: pd.DataFrame, panel: Panel) -> set[str]:
    """Draw one panel; returns the methods in it."""
    data, criterion = panel
    rows = means[(means["data"] == data) & means[criterion].notna()]
    if criterion == "redundancy":
        rows = rows[rows["method"] != REDUNDANT]
    scale = 100 if criterion in PERCENT else 1
    for method, part in rows.groupby("method"):
        part = part[part["n_features"].diff().fillna(1) > 0]  # up to the largest number that the method reached
        look = look_of(str(method))
        ax.plot(part["size"], scale * part[criterion], markevery=_every(len(part)), **look)
        if method == BANDED and criterion == "accuracy" and part["runs"].max() > 1:
            low, high = (scale * (part["accuracy"] + sign * part["accuracy_spread"]) for sign in (-1, 1))
            ax.fill_between(part["size"], low, high, color=look["color"], alpha=0.12, lw=0)
    ax.set(title=data, xlabel="number of features", ylabel=AXES[criterion])
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.grid(alpha=0.3)
    if criterion == "seconds":
        ax.set_yscale("log")
    return set(rows["method"])


def _every(n_points: int) -> int:
    """Return the step between markers: on all of 20 points they would hide each other."""
    return 1 if n_points <= 10 else 2
