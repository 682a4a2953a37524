"""Pearson correlations of raw feature rows, centred implicitly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from gdm_dask.errors import BadInput
from gdm_dask.kernels import dense_correlations, sparse_correlations
from gdm_dask.moments import dense_moments, sparse_moments
from gdm_dask.resources import n_cores
from gdm_dask.store.block import Block, narrow_pointers

#: Correlations this close to the limit count as reaching it: |rho| that equals 1 - tau in exact arithmetic may come
#: out on either side of it.
ROUNDING = 1e-9

#: From so many products on, correlations are shared out among threads; each of them has a vector over the samples.
WORTH_A_THREAD = 10**7
MOST_THREADS = 4


def correlation_limit(tau: float) -> float:
    """Two features correlate when ``|rho|`` reaches this; tau = 0 means no constraint, and nothing reaches it.

    >>> correlation_limit(0.25), correlation_limit(0)
    (0.749999999, inf)
    """
    return 1.0 - tau - ROUNDING if tau > 0 else np.inf


def correlations(rows: Block, others: Block) -> np.ndarray:
    """Correlation of every row with every other row, (rows, others); 0 where one of them is constant."""
    rows, others = rows.as_numbers(), others.as_numbers()
    n_values = rows.n_rows * rows.n_samples if rows.indices is None else len(rows.indices)
    n_parts = min(n_cores(), others.n_rows, MOST_THREADS) if n_values * others.n_rows >= WORTH_A_THREAD else 1
    if n_parts == 1:
        return _correlations(rows, others, 0, others.n_rows)
    bounds = [others.n_rows * part // n_parts for part in range(n_parts + 1)]
    with ThreadPoolExecutor(n_parts) as threads:
        return np.hstack(list(threads.map(partial(_correlations, rows, others), bounds[:-1], bounds[1:])))


def _correlations(rows: Block, others: Block, start: int, stop: int) -> np.ndarray:
    """Correlation of every row with some of the other rows."""
    out = np.empty((rows.n_rows, stop - start))
    means, norms = others.means[start:stop], others.norms[start:stop]
    if others.indptr is None:
        assert others.values is not None
        dense_correlations(rows.values, rows.means, rows.norms, others.values[start:stop], means, norms, out)
        return out
    workspace = np.zeros(rows.n_samples)
    sparse_correlations(
        rows.indptr, rows.indices, rows.values, rows.means, rows.norms, others.indptr[start : stop + 1], others.indices,
        others.values, means, norms, rows.n_samples, workspace, out,
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
    return mean_redundancy(correlations(rows, rows))


def mean_redundancy(rho: np.ndarray) -> float:
    """`redundancy_rate` of features with these correlations, (m, m)."""
    m, size = len(rho), np.abs(rho)
    return float((size.sum() - np.trace(size)) / 2 / (m * (m - 1))) if m > 1 else 0.0
