"""One style for all figures, readable in grey and by colour-blind people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .. import registry

#: Okabe and Ito's colours, which colour-blind people can tell apart; in grey, markers and dashes differ.
LOOKS: dict[str, dict[str, Any]] = {
    "gdm": {"color": "#000000", "marker": "o", "linewidth": 2.2, "zorder": 3},
    "gdm_affiliated": {"color": "#000000", "marker": "o", "markerfacecolor": "white", "linestyle": "--"},
    "gdm_default": {"color": "#000000", "marker": "h", "markerfacecolor": "#BBBBBB", "linestyle": ":"},
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


def look_of(method: str) -> dict[str, Any]:
    """Return the look of a method; each without one of its own gets dashes in a colour, the same in all panels."""
    others = [name for name in registry.method_names() if name not in LOOKS]
    return LOOKS[method] if method in LOOKS else {"color": f"C{others.index(method)}", "marker": ".", "linestyle": "-."}


def order_of(method: str) -> int:
    """Return the position of a method in legends and tables: GDM first."""
    return list(LOOKS).index(method) if method in LOOKS else len(LOOKS)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as SVG; returns the file."""
    path = path.with_suffix(".svg")
    with mpl.rc_context(STYLE):
        figure.savefig(path, metadata={"Date": None})
    return path
