"""Criteria of a selection: test score of a linear SVM refitted on it, redundancy rate, true groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from gdm_dask.cutting_plane.svm import refit
from gdm_dask.features.correlation import as_rows, block_redundancy_rate
from gdm_dask.ingestion.sources.lookalikes.paper_data import compare_groups

from .columns import Matrix, dense
from .problem import Problem

#: Numbers of features in the paper.
SIZES = tuple(range(10, 201, 10))
#: Smallest accuracy in the paper; a selection below it is marked as weak.
MIN_ACCURACY = 0.5
#: Below this share of the smaller class, accuracy says little and the AUC replaces it.
RARE = 0.2
#: Candidates for C of the tuned SVM, and for the strength of the tuned ridge regression, for columns of unit variance;
#: and the number of folds that choose one.
GRID = (0.001, 0.01, 0.1, 1.0, 10.0)
STRENGTHS = 10.0 ** np.arange(5, -2.5, -0.5)
N_FOLDS = 5


def judge(problem: Problem, features: np.ndarray) -> dict[str, Any]:
    """Judge by the paper's criteria: accuracy of an SVM with a fixed C, and those of `describe`."""
    found = accuracy(problem.X, problem.y, problem.X_test, problem.y_test, features)
    return {"accuracy": found, **describe(problem, features)}


def judge_tuned(problem: Problem, features: np.ndarray) -> dict[str, Any]:
    """Judge by an SVM whose C is chosen on the training set.

    Returns
    -------
    dict
        score (accuracy, or AUC if a class is rare), accuracy, average_precision of the smaller class, and the criteria
        of `describe`.
    """
    decision = tuned_decision(problem.X[:, features], problem.y, problem.X_test[:, features])
    sign = smaller_class(problem.y)
    right = float(np.mean((decision > 0) == (problem.y_test > 0)))
    is_smaller = problem.y_test == sign
    found: dict[str, Any] = {
        "accuracy": right,
        "score": float(roc_auc_score(is_smaller, sign * decision)) if is_rare(problem.y) else right,
        "average_precision": float(average_precision_score(is_smaller, sign * decision)),
    }
    return found | describe(problem, features)


def describe(problem: Problem, features: np.ndarray) -> dict[str, Any]:
    """Compute the criteria that need no test samples.

    Returns
    -------
    dict
        n_features; redundancy, the paper's RED; precision, the share of the features that are in a true group; and
        recall, the share of the true groups with a selected feature. The last two are None if the truth is unknown.
    """
    found: dict[str, Any] = {
        "n_features": len(features),
        "redundancy": block_redundancy_rate(as_rows(problem.X[:, features])),
        "precision": None,
        "recall": None,
    }
    if problem.groups:
        recovery = compare_groups({int(feature): features for feature in features}, problem.groups)
        found |= {"precision": recovery.precision, "recall": recovery.n_found / recovery.n_planted}
    return found


def accuracy(X: Matrix, y: np.ndarray, X_test: Matrix, y_test: np.ndarray, features: np.ndarray) -> float:
    """Return the test accuracy of a linear SVM refitted on some features."""
    return float(np.mean((_decision(X, y, X_test, features) > 0) == (y_test > 0)))


def quality(X: Matrix, y: np.ndarray, X_test: Matrix, y_test: np.ndarray, features: np.ndarray) -> float:
    """Return the accuracy, or the AUC if a class is rare."""
    if not is_rare(y):
        return accuracy(X, y, X_test, y_test, features)
    return float(roc_auc_score(y_test > 0, _decision(X, y, X_test, features)))


def tuned_decision(X: Matrix, y: np.ndarray, X_test: Matrix) -> np.ndarray:
    """Return test decision values of a linear SVM with the best C on folds of the training set; ties go to the smaller.

    Only training samples enter the scaling and the choice of C.
    """
    X, X_test = dense(X).astype(np.float64), dense(X_test).astype(np.float64)
    means, deviations = X.mean(axis=0), X.std(axis=0)
    X, X_test = (X - means) / deviations, (X_test - means) / deviations
    n_folds = min(N_FOLDS, np.unique(y, return_counts=True)[1].min())
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    scoring = "roc_auc" if is_rare(y) else "accuracy"
    means = [cross_val_score(_svm(C), X, y, cv=folds, scoring=scoring).mean() for C in GRID]
    return _svm(GRID[int(np.argmax(means))]).fit(X, y).decision_function(X_test)


def tuned_ridge(X: Matrix, y: np.ndarray, X_test: Matrix) -> np.ndarray:
    """Predict numbers by a ridge regression with the best strength on folds of the training set; ties go to the larger.

    `y` holds one number or several per sample.
    """
    X, X_test = dense(X).astype(np.float64), dense(X_test).astype(np.float64)
    scores = [
        [r2_score(y[held_out], found) for found in _ridges(X[train], y[train], X[held_out], STRENGTHS)]
        for train, held_out in KFold(N_FOLDS, shuffle=True, random_state=0).split(X)
    ]
    best = STRENGTHS[[np.argmax(np.mean(scores, axis=0))]]
    return _ridges(X, y, X_test, best)[0]


def _ridges(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """Predict by a ridge regression of each strength, (strengths, *y_test.shape); one decomposition serves all."""
    outputs = y.reshape(len(y), -1)
    machine = make_pipeline(StandardScaler(), Ridge(np.repeat(strengths, outputs.shape[1]), solver="svd"))
    found = machine.fit(X, np.tile(outputs, len(strengths))).predict(X_test).reshape(len(X_test), len(strengths), -1)
    return np.moveaxis(found, 1, 0).reshape(len(strengths), len(X_test), *y.shape[1:])


def is_rare(y: np.ndarray) -> bool:
    """Whether the smaller class is rare."""
    return bool(np.mean(y == smaller_class(y)) < RARE)


def smaller_class(y: np.ndarray) -> int:
    """Return the label, -1 or +1, with fewer samples; +1 if both have the same number."""
    return 1 if (y > 0).sum() <= (y <= 0).sum() else -1


def _svm(C: float) -> LinearSVC:
    return LinearSVC(C=C, dual=False, max_iter=5000)


def _decision(X: Matrix, y: np.ndarray, X_test: Matrix, features: np.ndarray) -> np.ndarray:
    (coef,), (intercept,) = refit(as_rows(X[:, features]), y.astype(np.float64)[None])
    return np.asarray(X_test[:, features] @ coef).ravel() + intercept
