"""The synthetic data of section 4.1: 2,048 x 10,000, 200 predictive groups, 30 of them with several members."""

from __future__ import annotations

from gdm_dask.ingestion.sources.lookalikes.paper_data import make_paper_data

from ..problem import Problem

NAME = "synthetic"
RANDOM = True
FILES = ()


def load(seed: int) -> Problem:
    """Generate another set for each seed."""
    data = make_paper_data(seed=seed)
    return Problem(data.X, data.y, data.X_test, data.y_test, data.groups)
