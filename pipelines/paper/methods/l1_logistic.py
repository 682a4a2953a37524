"""L1-logistic regression by liblinear, along the same path over C as L1-SVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import l1_min_c

from ..columns import Matrix, standardised
from ._path import Along, reached
from .l1_svm import growing

NAME = "L1-logistic"
NESTED = False
NEEDS_TRUTH = False


def rankings(X: Matrix, y: np.ndarray, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield, for each wanted number of features, all features of the first model with as many, by |weight|."""
    X = standardised(X)
    machines = (
        LogisticRegression(l1_ratio=1.0, solver="liblinear", C=C, tol=1e-3, random_state=0)
        for C in growing(l1_min_c(X, y, loss="log"))
    )
    return reached((machine.fit(X, y).coef_[0] for machine in machines), wanted)


_ALONG = Along(rankings)
select, path, tune = _ALONG.select, _ALONG.path, _ALONG.tune
