"""A small set like the data of section 4.1: every method takes seconds, and GDM differs from FGM."""

from __future__ import annotations

from gdm_dask.ingestion.sources.lookalikes.paper_data import make_paper_data

from ..problem import Problem

NAME = "synthetic, small"
RANDOM = True
FILES = ()
FIRST = 3


def load(seed: int) -> Problem:
    """Generate 400 samples, 120 features and 12 groups, of which 8 have 2 to 10 members."""
    data = make_paper_data(400, 120, n_groups=12, n_multiple=8, largest_group=10, seed=FIRST + seed)
    return Problem(data.X, data.y, data.X_test, data.y_test, data.groups)
