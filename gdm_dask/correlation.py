"""Pearson correlations of raw feature rows, centred implicitly."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from gdm_dask.errors import BadInput
from gdm_dask.kernels import dense_correlations, sparse_correlations
from gdm_dask.moments import dense_moments, sparse_moments
from gdm_dask.store.block import Block, narrow_pointers

#: Correlations this close to the limit count as reaching it: |rho| that equals 1 - tau in exact arithmetic may come
#: out on either side of it.
ROUNDING = 1e-9


def correlation_limit(tau: float) -> float:
    """Two features correlate when ``|rho|`` reaches this; tau = 0 means no constraint, and nothing reaches it.

    >>> correlation_limit(0.25), correlation_limit(0)
    (0.749999999, inf)
    """
    return 1.0 - tau - ROUNDING if tau > 0 else np.inf


def correlations(rows: Block, others: Block) -> np.ndarray:
    """Correlation of every row with every other row, (rows, others); 0 where one of them is constant."""
    out = np.empty((rows.n_rows, others.n_rows))
    if rows.indptr is None:
        dense_correlations(rows.values, rows.means, rows.norms, others.values, others.means, others.norms, out)
        return out
    workspace = np.zeros(rows.n_samples)
    sparse_correlations(
        rows.indptr, rows.indices, rows.values, rows.means, rows.norms,
        others.indptr, others.indices, others.values, others.means, others.norms, rows.n_samples, workspace, out,
    )  # fmt: skip
    return out


def as_rows(X: Any) -> Block:
    """Columns of a samples x features matrix as a block of feature rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
    """
    if hasattr(X, "shape") and len(X.shape) == 2 and X.shape[0] == 0:
        raise BadInput("the matrix has no samples")
    if sp.issparse(X):
        matrix = sp.csc_array(X, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _check_finite(matrix.data)
        values = matrix.data if matrix.data.dtype in (np.float32, np.float64) else matrix.data.astype(np.float64)
        indptr, indices = narrow_pointers(matrix.indptr), matrix.indices.astype(np.uint32)
        means, norms = sparse_moments(indptr, values, matrix.shape[0])
        return Block(0, matrix.shape[1], matrix.shape[0], values, means, norms, indptr, indices)
    dense = np.ascontiguousarray(np.asarray(X).T)
    if dense.ndim != 2:
        raise BadInput(f"a matrix of samples x features is needed, not an array of shape {dense.shape}")
    if dense.dtype not in (np.float32, np.float64, np.uint8):
        dense = dense.astype(np.float64)
    _check_finite(dense)
    means, norms = dense_moments(dense)
    return Block(0, dense.shape[0], dense.shape[1], dense, means, norms)


def _check_finite(values: np.ndarray) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadInput("the matrix holds NaN or infinity: replace or remove such values first")


def feature_correlations(X: Any, Y: Any = None) -> np.ndarray:
    """Pearson correlations between the columns of a matrix, or of two.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, p)
    Y : array or sparse matrix of shape (n_samples, q), optional
        `X` itself by default.

    Returns
    -------
    ndarray of shape (p, q)
        0 where a column is constant.

    Examples
    --------
    >>> feature_correlations([[1, 0], [0, 1], [0, 1]]).round(12).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    rows = as_rows(X)
    others = rows if Y is None else as_rows(Y)
    if rows.n_samples != others.n_samples:
        raise BadInput(f"X has {rows.n_samples} samples, Y has {others.n_samples}")
    if rows.is_sparse != others.is_sparse:
        rows, others = (as_rows(block.to_scipy().T.toarray()) for block in (rows, others))
    return correlations(rows, others)


def redundancy_rate(X: Any) -> float:
    """Redundancy rate of the columns of a matrix: the mean |correlation| over all pairs.

    The paper's formula divides the sum over pairs by m (m - 1), where there are half as many pairs; so do we, to be
    comparable with it.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, m)

    Examples
    --------
    >>> round(redundancy_rate([[1, 0], [0, 1], [0, 1]]), 12)
    0.5
    """
    return block_redundancy_rate(as_rows(X))


def block_redundancy_rate(rows: Block) -> float:
    """`redundancy_rate` of feature rows."""
    m = rows.n_rows
    if m < 2:
        return 0.0
    rho = np.abs(correlations(rows, rows))
    return float((rho.sum() - np.trace(rho)) / 2 / (m * (m - 1)))
