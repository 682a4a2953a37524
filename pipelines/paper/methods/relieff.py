"""ReliefF (Robnik-Sikonja and Kononenko, 2003), by skrebate.

The 10 nearest hits and misses of every sample, as its authors suggest. The paper reports the best of 1 to 100
neighbours, which is a choice on the test set.
"""

from __future__ import annotations

import numpy as np
from skrebate import ReliefF

from ..columns import Matrix, best_first, dense

NAME = "ReliefF"
NESTED = True
NEEDS_TRUTH = False
N_NEIGHBORS = 10


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Features by how much more they differ between near samples of the two classes than within a class."""
    machine = ReliefF(n_features_to_select=k, n_neighbors=N_NEIGHBORS).fit(dense(X).astype(np.float64), y)
    return best_first(machine.feature_importances_)[:k]
