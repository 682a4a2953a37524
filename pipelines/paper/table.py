"""Results as one table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from . import registry
from .grid import read_cell

#: Columns that identify a row; `data` is the name of the data in figures, which also marks lookalikes and parts.
KEYS = ["suite", "dataset", "samples", "data", "method", "size", "seed"]
COLUMNS = [
    *KEYS, "status", "n_features", "score", "accuracy", "average_precision", "redundancy", "precision", "recall",
    "seconds", "peak_memory", "message", "features",
]  # fmt: skip
CRITERIA = ["n_features", "accuracy", "redundancy", "precision", "recall", "seconds", "peak_memory"]
_NUMBERS = {"samples": "Int64", "n_features": "Int64", "peak_memory": "Int64"} | dict.fromkeys(
    ("score", "accuracy", "average_precision", "redundancy", "precision", "recall", "seconds"), "float64"
)
#: Rows with a result.
DONE = ("ok", "fewer", "weak")


def collect(folder: Path) -> pd.DataFrame:
    """Collect the rows of all cells that have a file, without duplicates."""
    rows = [{**row, "data": title(row)} for path in sorted(folder.glob("*.json")) for row in read_cell(path)]
    table = pd.DataFrame(rows).reindex(columns=COLUMNS).astype(_NUMBERS)
    return table.drop_duplicates(KEYS).sort_values(KEYS, kind="stable").reset_index(drop=True)


def merged(before: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Put the rows of new cells in place of earlier ones; rows whose cells did not run again stay."""
    table = pd.concat([found, before[COLUMNS].astype(_NUMBERS)])
    return table.drop_duplicates(KEYS).sort_values(KEYS, kind="stable").reset_index(drop=True)


def title(row: dict[str, object]) -> str:
    """Name the data of a row for figures."""
    parts = [registry.dataset(str(row["dataset"])).NAME]
    if row.get("lookalike"):
        parts.append("lookalike")
    if row.get("samples") is not None:
        parts.append(f"{row['samples']:,} samples")
    return ", ".join(parts)


def done(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows with a result."""
    return table[table["status"].isin(DONE)]


def missing(table: pd.DataFrame) -> list[str]:
    """List each method without a result on a set, with the reason."""
    rows = table[~table["status"].isin(DONE)]
    reasons = rows.groupby(["dataset", "method", "status"])["message"].first()
    return [f"{', '.join(key)}: {message}" for key, message in reasons.items()]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Average over the seeds, with the spread, for each data set, method and number of features."""
    groups = done(table).groupby(["dataset", "data", "size", "method"])
    means = groups[CRITERIA].mean().astype("float64")
    means.insert(2, "accuracy_spread", groups["accuracy"].std(ddof=0))
    means.insert(0, "runs", groups.size())
    return means.reset_index()
