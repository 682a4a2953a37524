"""Columns of a matrix in the forms that the methods need."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

Matrix = np.ndarray | sp.csr_array


def dense(X: Matrix) -> np.ndarray:
    """Convert to a dense matrix of floats, for methods that accept nothing else."""
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    return X if X.dtype.kind == "f" else X.astype(np.float32)


def standardised(X: Matrix) -> Matrix:
    """Scale columns to unit variance; dense ones are centred, sparse ones stay sparse."""
    if sp.issparse(X):
        means = np.asarray(X.mean(axis=0)).ravel()
        variances = np.asarray(X.multiply(X).mean(axis=0)).ravel() - means**2
        return sp.csr_array(X.multiply(1 / np.sqrt(np.where(variances > 0, variances, 1.0))))
    X = dense(X)
    means, deviations = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    return (X - means) / np.where(deviations > 0, deviations, 1.0)


def varying(X: Matrix) -> np.ndarray:
    """Return the numbers of the columns that are not constant; only these can be selected."""
    if sp.issparse(X):
        X = sp.csc_array(X)
        return np.flatnonzero(X.max(axis=0).toarray().ravel() != X.min(axis=0).toarray().ravel())
    return np.flatnonzero(X.max(axis=0) != X.min(axis=0))


def best_first(scores: np.ndarray) -> np.ndarray:
    """Sort features by decreasing score; ties by number."""
    return np.argsort(-scores, kind="stable")
