"""L1-SVM (Yuan et al., 2011), by liblinear, along a path over C.

C grows from the smallest one that gives a feature, a quarter at each step. The reach, see `_path`, is chosen on the
training data. The training time is that of the path up to the machine, without this choice.
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
    """C along the path."""
    return smallest * GROWTH ** np.arange(1, int(np.log(LARGEST) / np.log(GROWTH)) + 1)


def rankings(X: Matrix, y: np.ndarray, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """For each wanted number of features, increasing, all features of the first machine with so many, by |weight|."""
    X = standardised(X)
    machines = (
        LinearSVC(penalty="l1", dual=False, C=C, tol=1e-3, random_state=0)
        for C in growing(l1_min_c(X, y, loss="squared_hinge"))
    )
    return reached((machine.fit(X, y).coef_[0] for machine in machines), wanted)


_ALONG = Along(rankings)
select, path, tune = _ALONG.select, _ALONG.path, _ALONG.tune
