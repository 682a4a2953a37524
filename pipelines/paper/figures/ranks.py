"""Figure 8: average ranks over the sets of the wide suite, with the critical difference, one panel for each size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import registry
from ..compare import Ranks, cliques, ranks
from .style import STYLE, save

FILE = "figure-8-ranks"


def draw_ranks(table: pd.DataFrame, methods: Sequence[str], sizes: Sequence[int], folder: Path) -> Path | None:
    """Draw the figure if at least two methods can be ranked; returns its file."""
    found = {size: ranks(table, methods, size) for size in sizes}
    found = {size: one for size, one in found.items() if np.isfinite(one.critical)}
    if not found:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 2.0 * len(found)), layout="constrained")
        for ax, (size, one) in zip(figure.subplots(len(found), 1, squeeze=False).ravel(), found.items(), strict=True):
            _panel(ax, one, size)
    return save(figure, folder / FILE)


def _panel(ax: Any, found: Ranks, size: int) -> None:
    """Draw the axis of ranks, the names on lines below it, and bars over ranks within the critical difference."""
    values, n_methods = found.average.tolist(), len(found.average)
    ax.set(xlim=(0.5, n_methods + 0.5), ylim=(-n_methods / 2 - 2, 1.6), yticks=[])
    ax.xaxis.tick_top()
    ax.spines[["left", "right", "bottom"]].set_visible(False)
    title = f"{size} features, {found.n_sets} sets: average rank, critical difference {found.critical:.2f} (coloured)"
    ax.set_title(title, fontsize="small", loc="left")
    middle = (n_methods + 1) // 2
    for place, (method, rank) in enumerate(found.average.items()):
        on_left = place < middle
        depth = -1.6 - (place if on_left else n_methods - 1 - place)
        edge = 0.6 if on_left else n_methods + 0.4
        ax.plot([rank, rank, edge], [1.6, depth, depth], color="black", linewidth=0.7)
        label = f"{registry.method(str(method)).NAME} ({rank:.2f})"
        ax.text(edge, depth + 0.1, label, ha="left" if on_left else "right", va="bottom", fontsize="x-small")
    for row, (first, last) in enumerate(cliques(values, found.critical)):
        height = 0.8 - 0.45 * row
        ax.plot([values[first] - 0.04, values[last] + 0.04], [height, height], color="black", linewidth=2.5)
    ax.plot([0.5, 0.5 + found.critical], [1.3, 1.3], color="#D55E00", linewidth=2.5)
