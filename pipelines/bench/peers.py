"""Other feature selectors: each selects about k features of a matrix in memory.

If a peer takes a penalty strength instead of a number of features, the strength that gives about k features is searched
on some of the samples and corrected on all. Only the last fit is timed, which favours the peer.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

#: A search accepts numbers of features within these relative distances below and above k.
LESS, MORE = 0.1, 0.25
#: Number of samples on which a strength is searched.
SEARCH_SAMPLES = 5_000
MAX_FITS = 25

Matrix = sp.csr_array
#: Returns the weights of all features at a strength; a larger strength gives more features.
Fit = Callable[[Matrix, np.ndarray, float], np.ndarray]


def timed(select: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function and the seconds it took."""
    began = time.perf_counter()
    found = select()
    return found, time.perf_counter() - began


def largest(weights: np.ndarray, k: int) -> np.ndarray:
    """Return up to k features with the largest |weight|, without zeros."""
    order = np.argsort(-np.abs(weights), kind="stable")[:k]
    return order[weights[order] != 0]


def by_strength(fit: Fit, start: float, X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Search for a strength that gives about k features; returns the features and seconds of the last fit."""
    part = np.random.default_rng(0).permutation(X.shape[0])[:SEARCH_SAMPLES]
    strength = _search(lambda s: int(np.count_nonzero(fit(X[part], y[part], s))), start, k)
    low, high = 0.0, np.inf
    for _ in range(MAX_FITS):
        weights, seconds = timed(partial(fit, X, y, strength))
        count = int(np.count_nonzero(weights))
        print(f"strength {strength:.4g}: {count} features in {seconds:.2f} s", file=sys.stderr, flush=True)
        if (1 - LESS) * k <= count <= (1 + MORE) * k:
            break
        low, high = (strength, high) if count < k else (low, strength)
        middle = np.sqrt(low * high) if low and np.isfinite(high) else strength * (k * 1.1 / max(count, 1)) ** 0.7
        strength = float(np.clip(middle, strength / 4, strength * 4))
    return largest(weights, k), seconds


def _search(count: Callable[[float], int], strength: float, k: int) -> float:
    """Return a strength that gives about k features."""
    low, high = 0.0, np.inf
    for _ in range(MAX_FITS):
        found = count(strength)
        if (1 - LESS) * k <= found <= (1 + MORE) * k:
            break
        low, high = (strength, high) if found < k else (low, strength)
        strength = float(np.sqrt(low * high)) if low and np.isfinite(high) else strength * (4 if found < k else 0.25)
    return strength


def l1_svm(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """L1 LinearSVC of scikit-learn; strength is C times the number of samples."""
    from sklearn.svm import LinearSVC

    def fit(X: Matrix, y: np.ndarray, strength: float) -> np.ndarray:
        machine = LinearSVC(penalty="l1", dual=False, C=strength / X.shape[0], tol=1e-3, max_iter=300)
        return machine.fit(X, y).coef_[0]

    return by_strength(fit, 1e3, X, y, k)


def celer(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """L1 logistic regression by celer."""
    from celer import LogisticRegression

    X = X.tocsc()
    return by_strength(
        lambda X, y, strength: LogisticRegression(C=strength / X.shape[0], tol=1e-3).fit(X, y).coef_[0], 1e3, X, y, k
    )


def skglm(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """L1 logistic regression by skglm."""
    from skglm import SparseLogisticRegression

    X = sp.csc_matrix(X)
    return by_strength(
        lambda X, y, strength: SparseLogisticRegression(1 / strength, tol=1e-3, fit_intercept=False).fit(X, y).coef_[0],
        1e3, X, y, k,
    )  # fmt: skip


def abess(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Best subset of k features for logistic regression, by abess."""
    from abess import LogisticRegression

    matrix = sp.csr_matrix(X)
    machine, seconds = timed(lambda: LogisticRegression(support_size=[k]).fit(matrix, (y > 0).astype(int)))
    return largest(machine.coef_.ravel(), k), seconds


def select_from_model(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """The k largest weights of an L2 LinearSVC."""
    from sklearn.feature_selection import SelectFromModel
    from sklearn.svm import LinearSVC

    selector = SelectFromModel(LinearSVC(tol=1e-3), threshold=-np.inf, max_features=k)
    selector, seconds = timed(lambda: selector.fit(X, y))
    return selector.get_support(indices=True), seconds


def k_best(score: str) -> Callable[[Matrix, np.ndarray, int], tuple[np.ndarray, float]]:
    """The k best features by one of scikit-learn's univariate scores."""

    def select(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        from sklearn import feature_selection

        selector = feature_selection.SelectKBest(getattr(feature_selection, score), k=k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            selector, seconds = timed(lambda: selector.fit(X, y))
        return selector.get_support(indices=True), seconds

    return select


def smart_correlated(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """One feature of each of feature_engine's correlated groups; dense columns only."""
    import pandas as pd
    from feature_engine.selection import SmartCorrelatedSelection

    table = pd.DataFrame(X.toarray())
    selector = SmartCorrelatedSelection(threshold=0.75, selection_method="corr_with_target")
    selector, seconds = timed(lambda: selector.fit(table, y))
    kept = np.setdiff1d(np.arange(X.shape[1]), selector.features_to_drop_)
    return kept[:k], seconds


def mrmr(X: Matrix, y: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """The k best features by mrmr-selection; dense columns only."""
    import pandas as pd
    from mrmr import mrmr_classif

    table = pd.DataFrame(X.toarray())
    return timed(lambda: np.array(mrmr_classif(table, pd.Series(y), k, show_progress=False)))


PEERS: dict[str, Callable[[Matrix, np.ndarray, int], tuple[np.ndarray, float]]] = {
    "L1 LinearSVC": l1_svm,
    "SelectFromModel": select_from_model,
    "SelectKBest chi2": k_best("chi2"),
    "SelectKBest f_classif": k_best("f_classif"),
    "SmartCorrelatedSelection": smart_correlated,
    "mrmr-selection": mrmr,
    "celer": celer,
    "skglm": skglm,
    "abess": abess,
}
