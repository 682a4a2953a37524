"""How a selection is judged: test accuracy of a refitted linear SVM, redundancy rate, true groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask.cutting_plane.svm import refit
from gdm_dask.features.correlation import as_rows, block_redundancy_rate
from gdm_dask.ingestion.sources.lookalikes.paper_data import compare_groups

from .columns import Matrix
from .problem import Problem

#: Numbers of features in the paper.
SIZES = tuple(range(10, 201, 10))
#: The paper's least accuracy; a selection below it is marked as weak.
MIN_ACCURACY = 0.5


def judge(problem: Problem, features: np.ndarray) -> dict[str, Any]:
    """All criteria but time and memory.

    Returns
    -------
    dict
        accuracy; redundancy, the paper's RED; precision, the features in a true group of all features, and recall, the
        true groups with a selected feature of all true groups (None where the truth is not known).
    """
    found: dict[str, Any] = {
        "n_features": len(features),
        "accuracy": accuracy(problem.X, problem.y, problem.X_test, problem.y_test, features),
        "redundancy": block_redundancy_rate(as_rows(problem.X[:, features])),
        "precision": None,
        "recall": None,
    }
    if problem.groups:
        recovery = compare_groups({int(feature): features for feature in features}, problem.groups)
        found |= {"precision": recovery.precision, "recall": recovery.n_found / recovery.n_planted}
    return found


def accuracy(X: Matrix, y: np.ndarray, X_test: Matrix, y_test: np.ndarray, features: np.ndarray) -> float:
    """Of a linear SVM that is refitted on some features, on samples that it has not seen."""
    coef, intercept = refit(as_rows(X[:, features]), y.astype(np.float64))
    decision = np.asarray(X_test[:, features] @ coef).ravel() + intercept
    return float(np.mean((decision > 0) == (y_test > 0)))
