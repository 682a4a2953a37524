"""The F test of each feature by itself, as scikit-learn's SelectKBest has it: the simplest of filters."""

from __future__ import annotations

import numpy as np
from sklearn.feature_selection import f_classif

from ..columns import Matrix, best_first

NAME = "F test"
NESTED = True
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Features by their F; one that is constant within each class has an infinite F."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values, _ = f_classif(X, y)
    return best_first(np.nan_to_num(values))[:k]
