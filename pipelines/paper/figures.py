"""The paper's curves: figure 2 (the synthetic set), figures 3 to 5 (accuracy, time, redundancy on other data)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from . import registry
from .table import summary

#: Colours of Okabe and Ito, which the colour-blind can tell apart; in grey the markers and dashes do.
LOOKS: dict[str, dict[str, Any]] = {
    "gdm": {"color": "#000000", "marker": "o", "linewidth": 2.2},
    "gdm_affiliated": {"color": "#000000", "marker": "o", "markerfacecolor": "white", "linestyle": "--"},
    "fgm": {"color": "#0072B2", "marker": "s"},
    "method_a": {"color": "#0072B2", "marker": "None", "linestyle": "--"},
    "l1_svm": {"color": "#D55E00", "marker": "^"},
    "svm_rfe": {"color": "#E69F00", "marker": "v"},
    "rcfs": {"color": "#009E73", "marker": "D"},
    "fcbf": {"color": "#56B4E9", "marker": "P"},
    "mrmr": {"color": "#CC79A7", "marker": "X"},
    "relieff": {"color": "#999999", "marker": "*"},
}
AXES = {
    "accuracy": "test accuracy (%)",
    "seconds": "training time (s)",
    "redundancy": "redundancy rate",
}
SYNTHETIC = ("synthetic", "quick")
STYLE = {"font.size": 9, "lines.markersize": 4.5, "lines.linewidth": 1.2, "svg.hashsalt": "gdm", "svg.fonttype": "none"}


def draw_all(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw every figure that the results allow, as SVG and PNG; returns the SVG files."""
    folder.mkdir(parents=True, exist_ok=True)
    means = summary(table)
    names = list(dict.fromkeys(means["dataset"]))
    drawn = []
    for name in (name for name in names if name in SYNTHETIC):
        drawn.append(_save(_curves(means, [(name, criterion) for criterion in AXES]), folder / f"figure-2-{name}"))
    others = [name for name in names if name not in SYNTHETIC]
    for number, criterion in enumerate(AXES, start=3):
        if others:
            panels = [(name, criterion) for name in others]
            drawn.append(_save(_curves(means, panels), folder / f"figure-{number}-{criterion}"))
    return drawn


def _curves(means: pd.DataFrame, panels: Sequence[tuple[str, str]]) -> Figure:
    """One panel for each (data set, criterion), over the number of features, with one legend below."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(panels), 3.6), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        handles: dict[str, Any] = {}
        for ax, (dataset, criterion) in zip(axes, panels, strict=True):
            rows = means[means["dataset"] == dataset]
            for method in (name for name in registry.method_names() if name in set(rows["method"])):
                part = rows[rows["method"] == method]
                scale = 100 if criterion == "accuracy" else 1
                (line,) = ax.plot(part["size"], scale * part[criterion], **LOOKS.get(method, {"marker": "."}))
                handles.setdefault(registry.method(method).NAME, line)
                if criterion == "accuracy" and part["runs"].max() > 1:
                    low, high = (part["accuracy"] + sign * part["accuracy_spread"] for sign in (-1, 1))
                    ax.fill_between(part["size"], 100 * low, 100 * high, color=line.get_color(), alpha=0.12, lw=0)
            ax.set(title=registry.dataset(dataset).NAME, xlabel="number of features", ylabel=AXES[criterion])
            ax.grid(alpha=0.3)
            if criterion == "seconds":
                ax.set_yscale("log")
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def _save(figure: Figure, path: Path) -> Path:
    with mpl.rc_context(STYLE):
        figure.savefig(path.with_suffix(".png"), dpi=150)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path.with_suffix(".svg")
