"""Ablation: the defaults, without the limit on correlations."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import supports

NAME = "GDM, tau = 0"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    return supports(X, y, k, tau=0.0)
