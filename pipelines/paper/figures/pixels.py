"""Selected pixels on images: figure 1 (faces: supports and affiliated features) and figure 6 (digits: all methods)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import registry
from ..table import done
from .style import STYLE, order_of, save

#: Number of features to show: the first of these with results. The paper's digits have 70.
WANTED = {"faces": (50, 20, 10), "usps": (70, 50, 100)}
#: Brightest grey of a portrait, and the grey of a selected pixel.
FAINT, WHITE = 0.75, 1.0


def draw_pixels(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw figures 1 and 6, if there are results and images to show them on."""
    drawn = []
    for name, draw, file in (("faces", _faces, "figure-1-faces"), ("usps", _digits, "figure-6-digits")):
        rows = _rows(table, name)
        reason = registry.missing(name)
        if len(rows) and reason:
            print(f"leaving out {file}: {reason}", file=sys.stderr)
        elif len(rows):
            drawn.append(save(draw(rows, registry.dataset(name).load(0).portraits), folder / file))
    return drawn


def _rows(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return one row per method: the first seed, with the first of the wanted numbers that GDM was run with.

    Of a whole set and its parts, take the one on which most methods have a result.
    """
    rows = done(table)
    rows = rows[(rows["dataset"] == name) & (rows["seed"] == 0)]
    for size in WANTED[name]:
        found = rows[rows["size"] == size]
        if "gdm" in set(found["method"]):
            return found[found["data"] == found["data"].value_counts().idxmax()].set_index("method")
    return rows.iloc[:0].set_index("method")


def _faces(rows: pd.DataFrame, portraits: dict[str, np.ndarray]) -> Figure:
    """Draw the mean face of each class, plain, with the supports and with the affiliated features as white pixels."""
    supports = _pixels(rows, "gdm")
    columns = [("mean of the class", np.zeros(0, np.int64)), (f"{len(supports)} support features", supports)]
    if "gdm_affiliated" in rows.index:
        affiliated = np.setdiff1d(_pixels(rows, "gdm_affiliated"), supports)
        columns.append((f"{len(affiliated)} affiliated features", affiliated))
    pictures = [[_marked(face, pixels) for _, pixels in columns] for face in portraits.values()]
    return _grid(pictures, [title for title, _ in columns], list(portraits), 1.9, 2.3)


def _digits(rows: pd.DataFrame, portraits: dict[str, np.ndarray]) -> Figure:
    """Draw the pixels that each method selects, and the mean 0 and the mean 1 as seen through them."""
    methods = sorted(rows.index, key=order_of)
    everything = np.arange(next(iter(portraits.values())).size)
    columns = [("all", everything)] + [(registry.method(name).NAME, _pixels(rows, name)) for name in methods]
    blank = np.zeros_like(next(iter(portraits.values())))
    pictures = [[_marked(blank, pixels) for _, pixels in columns]]
    pictures += [[_through(digit, pixels) for _, pixels in columns] for digit in portraits.values()]
    titles = [f"{title}\n{len(pixels)}" for title, pixels in columns]
    figure = _grid(pictures, titles, ["pixels", *(f"mean {name}" for name in portraits)], 0.95, 1.0)
    figure.suptitle(f"trained on {rows['data'].iloc[0]}", fontsize="small")
    return figure


def _pixels(rows: pd.DataFrame, method: str) -> np.ndarray:
    return np.asarray(rows.loc[method, "features"], np.int64)


def _marked(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Mark pixels of an image in white."""
    picture = FAINT * image / max(float(image.max()), 1.0)
    picture.flat[pixels] = WHITE
    return picture


def _through(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Keep some pixels of an image; the others become NaN."""
    picture = np.full(image.shape, np.nan)
    picture.flat[pixels] = image.flat[pixels] / max(float(image.max()), 1.0)
    return picture


def _grid(
    pictures: Sequence[Sequence[np.ndarray]], titles: Sequence[str], names: Sequence[str], width: float, height: float
) -> Figure:
    """Draw pictures in rows and columns; NaN is blue."""
    colours = mpl.colormaps["gray"].with_extremes(bad="#12324f")
    with mpl.rc_context(STYLE):
        size = (width * len(titles) + 0.3, height * len(names) + 0.4)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(names), len(titles), squeeze=False)
        for row, (name, line) in enumerate(zip(names, pictures, strict=True)):
            for ax, title, picture in zip(axes[row], titles, line, strict=True):
                ax.imshow(picture, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
                ax.set(xticks=[], yticks=[])
                if row == 0:
                    ax.set_title(title, fontsize="small")
            axes[row, 0].set_ylabel(name)
    return figure
