"""Ablation: the merged master problem, with C from the numbers of samples and features instead of folds."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import supports

NAME = "GDM, merged, C by rule"
NESTED = False
NEEDS_TRUTH = False
#: C is this times the effective number of samples per feature, clipped to the limits.
SHARE = 0.06
LEAST, MOST = 0.01, 30.0


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    return supports(X, y, k, C=rule(y, k), master="merged")


def rule(y: np.ndarray, k: int) -> float:
    """Return C for k features.

    >>> rule(np.repeat([-1, 1], 500), 20), rule(np.repeat([-1, 1], [20, 4]), 200)
    (3.0, 0.01)
    """
    n_positive = int((y > 0).sum())
    n_effective = 4 * n_positive * (len(y) - n_positive) / len(y)
    return float(np.clip(SHARE * n_effective / k, LEAST, MOST))
