"""Ablation: the merged master problem, but with the C of version 0.1."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import supports

NAME = "GDM, merged, C = 50"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    return supports(X, y, k, C=50.0, master="merged")
