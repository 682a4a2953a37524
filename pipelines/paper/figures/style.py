"""One style for all figures, readable in grey and by colour-blind people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind people can tell apart; in grey, markers and dashes differ.
LOOKS: dict[str, dict[str, Any]] = {
    "gdm": {"color": "#000000", "marker": "o", "linewidth": 2.2, "zorder": 3},
    "gdm_affiliated": {"color": "#000000", "marker": "o", "markerfacecolor": "white", "linestyle": "--"},
    "fgm": {"color": "#0072B2", "marker": "s"},
    "method_a": {"color": "#0072B2", "marker": "s", "markerfacecolor": "white", "linestyle": "--"},
    "l1_svm": {"color": "#D55E00", "marker": "^"},
    "svm_rfe": {"color": "#E69F00", "marker": "v"},
    "rcfs": {"color": "#009E73", "marker": "D"},
    "fcbf": {"color": "#56B4E9", "marker": "P"},
    "mrmr": {"color": "#CC79A7", "marker": "X"},
    "relieff": {"color": "#888888", "marker": "*"},
}
STYLE = {"font.size": 9, "lines.markersize": 4.5, "lines.linewidth": 1.2, "svg.hashsalt": "gdm", "svg.fonttype": "none"}


def order_of(method: str) -> int:
    """Return the position of a method in legends and tables: GDM first."""
    return list(LOOKS).index(method) if method in LOOKS else len(LOOKS)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG and SVG; returns the SVG file."""
    with mpl.rc_context(STYLE):
        figure.savefig(path.with_suffix(".png"), dpi=110)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path.with_suffix(".svg")
