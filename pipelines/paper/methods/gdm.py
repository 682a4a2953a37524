"""GDM as published, supports only: the paper's tau = 0.25, C = 50, a master problem over all cuts."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import PAPER, supports

NAME = "GDM"
NESTED = False
NEEDS_TRUTH = False
TAU = 0.25


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    return supports(X, y, k, tau=TAU, **PAPER)
