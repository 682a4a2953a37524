"""The paper's figures, drawn from the available results."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from .curves import draw_curves
from .pixels import draw_pixels


def draw_all(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw every figure that the results allow; returns the files in order."""
    folder.mkdir(parents=True, exist_ok=True)
    return sorted(draw_curves(table, folder) + draw_pixels(table, folder))
