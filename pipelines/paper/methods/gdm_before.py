"""GDM with the defaults of version 0.1: one C for all sizes, a master problem over all cuts."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import supports

NAME = "GDM, cuts, C = 50"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    return supports(X, y, k, C=50.0, master="cuts")
