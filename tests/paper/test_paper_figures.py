"""Figures of the paper's comparison that need the images of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.paper.datasets.usps import SIDE
from pipelines.paper.figures.pixels import draw_pixels

WHOLE, PART = "USPS 0 v 1", "USPS 0 v 1, 9 samples"


@pytest.fixture(autouse=True)
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of two digits, a 0 and a 1, for both training and test."""
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    (tmp_path / "usps").mkdir()
    milli = np.random.default_rng(0).integers(-1000, 1001, (2, SIDE * SIDE))
    labels = np.array([0, 1])
    parts = {"x_train_milli": milli, "x_test_milli": milli, "y_train": labels, "y_test": labels}
    np.savez(tmp_path / "usps" / "usps.npz", **parts)


def row(data: str, method: str, features: list[int], size: int = 50, status: str = "ok") -> dict[str, Any]:
    return {
        "dataset": "usps", "data": data, "method": method, "size": size, "seed": 0, "status": status,
        "features": features,
    }  # fmt: skip


def test_digits_are_of_the_data_with_the_most_methods(tmp_path: Path) -> None:
    rows = [
        row(WHOLE, "gdm", [1, 2]), row(WHOLE, "relieff", [], status="time"), row(PART, "gdm", [3, 4, 5]),
        row(PART, "relieff", [6, 7, 8, 9]), row(PART, "fgm", [6], size=10),
    ]  # fmt: skip
    assert draw_pixels(pd.DataFrame(rows), tmp_path) == [tmp_path / "figure-6-digits.svg"]
    drawing = (tmp_path / "figure-6-digits.svg").read_text()
    assert f"trained on {PART}" in drawing
    assert all(f">{word}<" in drawing for word in ("all", "GDM", "ReliefF", "3", "4", "mean 0", "mean 1"))
    assert ">2<" not in drawing
    assert "FGM" not in drawing


def test_no_figure_without_a_result_of_gdm(tmp_path: Path) -> None:
    assert draw_pixels(pd.DataFrame([row(WHOLE, "fgm", [1])]), tmp_path) == []
