"""The results as one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from .cell import Cell
from .grid import read_cell

COLUMNS = [
    "dataset", "samples", "seed", "method", "size", "status", "n_features", "accuracy", "redundancy", "precision",
    "recall", "seconds", "peak_memory", "message", "features",
]  # fmt: skip
_NUMBERS = {"samples": "Int64", "n_features": "Int64", "peak_memory": "Int64"} | dict.fromkeys(
    ("accuracy", "redundancy", "precision", "recall", "seconds"), "float64"
)
#: Rows with a result.
DONE = ("ok", "fewer", "weak")


def collect(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """Rows of the cells that have a file."""
    paths = [folder / f"{cell.name}.json" for cell in cells]
    rows = [row for path in paths if path.exists() for row in read_cell(path)]
    table = pd.DataFrame(rows).reindex(columns=COLUMNS).astype(_NUMBERS)
    return table.sort_values(["dataset", "samples", "method", "size", "seed"], kind="stable").reset_index(drop=True)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread over the seeds, for each data set, method and number of features."""
    criteria = ["n_features", "accuracy", "redundancy", "precision", "recall", "seconds", "peak_memory"]
    done = table[table["status"].isin(DONE)]
    groups = done.groupby(["dataset", "size", "method"])
    means = groups[criteria].mean().astype("float64")
    means.insert(2, "accuracy_spread", groups["accuracy"].std(ddof=0))
    means.insert(0, "runs", groups.size())
    return means.reset_index()
