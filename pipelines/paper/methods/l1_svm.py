"""L1-SVM (Yuan et al., 2011) by liblinear, along a path over C.

C starts at the smallest value that selects a feature and grows by a quarter at each step. The reach (see `_path`) is
chosen on the training data. The training time covers the path up to the selected model, without the choice of the
reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.svm import LinearSVC, l1_min_c

from ..columns import Matrix, standardised
from ._path import Along, reached

NAME = "L1-SVM"
NESTED = False
NEEDS_TRUTH = False
GROWTH = 1.25
LARGEST = 1e4  # times the smallest C


def growing(smallest: float) -> np.ndarray:
    """Return the values of C along the path."""
    return smallest * GROWTH ** np.arange(1, int(np.log(LARGEST) / np.log(GROWTH)) + 1)


def rankings(X: Matrix, y: np.ndarray, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield, for each wanted number of features, all features of the first model with as many, by |weight|."""
    X = standardised(X)
    machines = (
        LinearSVC(penalty="l1", dual=False, C=C, tol=1e-3, random_state=0)
        for C in growing(l1_min_c(X, y, loss="squared_hinge"))
    )
    return reached((machine.fit(X, y).coef_[0] for machine in machines), wanted)


_ALONG = Along(rankings)
select, path, tune = _ALONG.select, _ALONG.path, _ALONG.tune
