"""Univariate F test, as in scikit-learn's SelectKBest: the simplest filter."""

from __future__ import annotations

import numpy as np
from sklearn.feature_selection import f_classif

from ..columns import Matrix, best_first

NAME = "F test"
NESTED = True
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Sort features by F, which is infinite for features that are constant within each class."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values, _ = f_classif(X, y)
    return best_first(np.nan_to_num(values))[:k]
