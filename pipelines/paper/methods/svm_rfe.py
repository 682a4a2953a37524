"""SVM-RFE (Guyon and Elisseeff, 2003): recursive feature elimination by the weights of a linear SVM with C = 1.

Each step removes a tenth of the remaining features, at least one.
"""

from __future__ import annotations

import numpy as np
from sklearn.svm import LinearSVC

from ..columns import Matrix, standardised

NAME = "SVM-RFE"
NESTED = True
NEEDS_TRUTH = False
C = 1.0
STEP = 0.1


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the features in reverse order of elimination."""
    X = standardised(X)
    left = np.arange(X.shape[1])
    eliminated: list[np.ndarray] = []
    while len(left) > 1:
        machine = LinearSVC(C=C, dual="auto", random_state=0).fit(X[:, left], y)
        weakest = np.argsort(np.abs(machine.coef_[0]), kind="stable")[: max(1, int(STEP * len(left)))]
        eliminated.append(left[weakest])
        left = np.delete(left, weakest)
    return np.concatenate([*eliminated, left])[::-1][:k]
