"""GDM with its defaults; only the number of features is set."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import supports

NAME = "GDM, defaults"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    return supports(X, y, k)
