"""L1-SVM (Yuan et al., 2011), by liblinear.

C grows from the smallest one that gives a feature, a quarter at each step, until k features have a weight; the k
largest weights of that machine are taken. The training time is that of the path up to there.
"""

from __future__ import annotations

import numpy as np
from sklearn.svm import LinearSVC, l1_min_c

from ..columns import Matrix, best_first, standardised

NAME = "L1-SVM"
NESTED = False
NEEDS_TRUTH = False
GROWTH = 1.25
LARGEST = 1e4  # times the smallest C


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Features by |weight| at the first C of the path with k of them, or at its end."""
    X = standardised(X)
    smallest = l1_min_c(X, y, loss="squared_hinge")
    for factor in GROWTH ** np.arange(1, int(np.log(LARGEST) / np.log(GROWTH)) + 1):
        machine = LinearSVC(penalty="l1", dual=False, C=factor * smallest, tol=1e-3, random_state=0).fit(X, y)
        weights = np.abs(machine.coef_[0])
        if (weights > 0).sum() >= min(k, X.shape[1]):
            break
    order = best_first(weights)
    return order[weights[order] > 0][:k]
