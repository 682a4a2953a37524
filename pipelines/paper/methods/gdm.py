"""GDM as published, with its support features only: tau = 0.25 as in the paper, C = 50, the master over all cuts."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import PAPER, supports

NAME = "GDM"
NESTED = False
NEEDS_TRUTH = False
TAU = 0.25


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Supports by |weight|."""
    return supports(X, y, k, tau=TAU, **PAPER)
