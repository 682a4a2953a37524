"""A small set of the kind of section 4.1, on which every method runs within seconds."""

from __future__ import annotations

from gdm_dask.synthetic import make_paper_data

from ..problem import Problem

NAME = "synthetic, small"
RANDOM = True
FILES = ()


def load(seed: int) -> Problem:
    """300 samples, 60 features, 12 groups of which 6 have 2 to 5 members."""
    data = make_paper_data(300, 60, n_groups=12, n_multiple=6, largest_group=5, seed=seed)
    return Problem(data.X, data.y, data.X_test, data.y_test, data.groups)
