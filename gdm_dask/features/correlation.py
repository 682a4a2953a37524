"""Pearson correlations of raw feature rows, centred implicitly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block, narrow_pointers
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.scores import LANES, dense_products
from gdm_dask.features.values import as_array, number
from gdm_dask.system.jit import kernel
from gdm_dask.system.resources import n_cores

#: Correlations this close to the limit count as reaching it: rounding may put an |rho| that equals 1 - tau in exact
#: arithmetic on either side.
ROUNDING = 1e-9

#: f_j . f_k - n mean_j mean_k loses as many digits as n |mean_j mean_k| / (norm_j norm_k) has. Beyond this limit
#: a correlation is computed from centred values.
CANCELLATION = 1e5

#: Samples over which sparse rows are multiplied at a time, so that a row laid out over them stays in the cache.
SAMPLES_AT_ONCE = 1 << 15

#: Threads share correlations that take at least this many products; for dense rows, each needs a vector over the
#: samples.
WORTH_A_THREAD = 10**7
MOST_THREADS = 4


def correlation_limit(tau: float) -> float:
    """Return the |rho| from which two features count as correlated; infinity for tau = 0, which means no constraint.

    >>> correlation_limit(0.25), correlation_limit(0)
    (0.749999999, inf)
    """
    return 1.0 - tau - ROUNDING if tau > 0 else np.inf


def chance_correlation(n_samples: float) -> float:
    """Mean ``|rho|`` of independent features over this many samples.

    >>> round(chance_correlation(100), 4)
    0.0798
    """
    return float(np.sqrt(2.0 / (np.pi * n_samples)))


def angle(rho: float) -> float:
    """Return the angle between two lines with this |rho|: a metric, so all lines close to one are close to each other.

    >>> angle(1.0), round(angle(0.5) * 180 / np.pi)
    (0.0, 60)
    """
    return float(np.arccos(min(rho, 1.0)))


def correlations(rows: Block, others: Block) -> np.ndarray:
    """Return the correlation of every row with every other row, (rows, others); 0 if one of them is constant.

    Both blocks must have moments for the same sample weights.
    """
    rows, others = rows.as_numbers().tamed(), others.as_numbers().tamed()
    n_values = rows.n_rows * rows.n_samples if rows.indices is None else len(rows.indices)
    n_parts = min(n_cores(), others.n_rows, MOST_THREADS) if n_values * others.n_rows >= WORTH_A_THREAD else 1
    if n_parts == 1:
        return _correlations(rows, others, 0, others.n_rows)
    bounds = [others.n_rows * part // n_parts for part in range(n_parts + 1)]
    with ThreadPoolExecutor(n_parts) as threads:
        return np.hstack(list(threads.map(partial(_correlations, rows, others), bounds[:-1], bounds[1:])))


def _correlations(rows: Block, others: Block, start: int, stop: int) -> np.ndarray:
    """Return the correlation of every row with some of the other rows."""
    means, norms = others.means[start:stop], others.norms[start:stop]
    if rows.indptr is None or others.indptr is None:
        assert others.values is not None
        products = np.empty((stop - start, rows.n_rows))
        lanes = np.empty(LANES)
        for k in range(stop - start):  # float64 for the comparison, row by row: a copy of all rows may not fit
            one = slice(k, k + 1)
            other, mean = others.values[start + k : start + k + 1].astype(np.float64, copy=False), means[one]
            if rows.weights is not None:
                other, mean = rows.weights * (other - mean), np.zeros(1)
            dense_products(rows.values, rows.means, rows.norms, other, mean, norms[one], lanes, products[one])
        return np.ascontiguousarray(products.T)
    out = np.zeros((rows.n_rows, stop - start))
    laid = np.zeros(min(SAMPLES_AT_ONCE, rows.n_samples))
    ends, o_ends = rows.indptr[:-1].astype(np.uint64), others.indptr[start:stop].astype(np.uint64)
    add_products(
        rows.indptr, rows.indices, rows.values, others.indptr[start : stop + 1], others.indices, others.values,
        rows.weights, rows.n_samples, laid, ends.copy(), ends, o_ends, out,
    )  # fmt: skip
    normalise_products(rows.means, rows.norms, means, norms, rows.total_weight, out)
    cancelled = np.nonzero(np.isnan(out))
    if len(cancelled[0]):
        out[cancelled] = centred(rows, cancelled[0], others, start + cancelled[1])
    return out


def centred(block: Block, rows: np.ndarray, others: Block, o_rows: np.ndarray) -> np.ndarray:
    """Return the correlations of pairs of sparse rows, given by position, from centred values: no digits cancel."""
    out = np.empty(len(rows))
    centred_correlations(
        block.indptr, block.indices, block.values, block.power, block.means, block.norms, others.indptr, others.indices,
        others.values, others.means, others.norms, block.weights, block.n_samples, rows, o_rows, out,
    )  # fmt: skip
    return out


def as_rows(X: Any) -> Block:
    """Return the columns of a samples x features matrix as a block of feature rows.

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
        values = matrix.data if matrix.data.dtype in (np.float32, np.float64) else _as_real(matrix.data)
        indptr, indices = narrow_pointers(matrix.indptr), matrix.indices.astype(np.uint32)
        means, norms = sparse_moments(indptr, values, matrix.shape[0])
        return Block(0, matrix.shape[1], matrix.shape[0], values, means, norms, indptr, indices)
    dense = np.ascontiguousarray(as_array(X, "the matrix").T)
    if dense.ndim != 2:
        raise BadInput(f"expected a matrix of samples x features, got an array of shape {dense.shape}")
    if dense.dtype not in (np.float32, np.float64, np.uint8):
        dense = _as_real(dense)
    _check_finite(dense)
    means, norms = dense_moments(dense)
    return Block(0, dense.shape[0], dense.shape[1], dense, means, norms)


def _as_real(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "c":
        raise BadInput("the matrix holds complex numbers: pass their real parts or absolute values")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the matrix must hold real numbers: {error}") from error


def _check_finite(values: np.ndarray) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadInput("the matrix holds NaN or infinity: replace or remove such values first")


def feature_correlations(X: Any, Y: Any = None) -> np.ndarray:
    """Compute the Pearson correlations between the columns of one matrix, or of two.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, p)
    Y : array or sparse matrix of shape (n_samples, q), optional
        `X` itself by default.

    Returns
    -------
    ndarray of shape (p, q)
        0 if a column is constant.

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
    """Compute the redundancy rate of the columns of a matrix: the mean |correlation| over all pairs.

    The paper divides the sum over pairs by m (m - 1), although there are half as many pairs. The same formula is used
    here, for comparable values.

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
    """Compute the `redundancy_rate` of feature rows."""
    return mean_redundancy(correlations(rows, rows))


def mean_redundancy(rho: np.ndarray) -> float:
    """Compute the `redundancy_rate` of features with these correlations, (m, m)."""
    m, size = len(rho), np.abs(rho)
    return float((size.sum() - np.trace(size)) / 2 / (m * (m - 1))) if m > 1 else 0.0


@kernel
def centred_correlations(  # type: ignore[no-untyped-def]
    indptr, indices, values, power, means, norms, o_indptr, o_indices, o_values, o_means, o_norms, weights,
    n_samples, rows, o_rows, out,
):  # fmt: skip
    """Correlate pairs of sparse rows from centred values, without cancellation, by walking over both."""
    one = np.uint64(1)
    over = 0.0 if power is None else 1.0 / power
    for pair in range(len(rows)):
        row, o_row = rows[pair], o_rows[pair]
        i, i_end = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        j, j_end = np.uint64(o_indptr[o_row]), np.uint64(o_indptr[o_row + 1])
        mean, o_mean = means[row], o_means[o_row]
        total = 0.0
        outside, after = np.float64(n_samples) if weights is None else 0.0, np.uint32(0)
        while i < i_end or j < j_end:
            here = indices[i] if i < i_end else np.uint32(0xFFFFFFFF)
            o_here = o_indices[j] if j < j_end else np.uint32(0xFFFFFFFF)
            a = b = 0.0
            if here <= o_here:
                a = 1.0 if values is None else number(values[i], power, over)
                i += one
            if o_here <= here:
                b = 1.0 if o_values is None else np.float64(o_values[j])
                j += one
            if weights is None:
                total += (a - mean) * (b - o_mean)
                outside -= 1.0
            else:
                sample = min(here, o_here)
                total += weights[sample] * ((a - mean) * (b - o_mean))
                for zero in range(after, sample):  # one by one: a difference of sums would cancel
                    outside += weights[zero]
                after = sample + np.uint32(1)
        if weights is not None:
            for zero in range(after, n_samples):
                outside += weights[zero]
        out[pair] = (total + outside * (mean * o_mean)) / (norms[row] * o_norms[o_row])


@kernel
def add_products(  # type: ignore[no-untyped-def]
    indptr, indices, values, o_indptr, o_indices, o_values, weights, n_samples, laid, starts, ends, o_ends, out
):  # fmt: skip
    """Add the products of every row with every other row to ``out[j, k]``.

    Over ``len(laid)`` samples at a time, the others are laid out, one after the other. The order in which products are
    added does not depend on that number. `laid` is zero on entry and on return; `starts`, `ends` and `o_ends` are the
    first positions of the rows and of the others, and move on with the samples.
    """
    one = np.uint64(1)
    for first in range(0, n_samples, len(laid)):
        last, begin = first + len(laid), np.uint32(first)
        for j in range(len(starts)):
            position, stop = ends[j], np.uint64(indptr[j + 1])
            starts[j] = position
            while position < stop and indices[position] < last:
                position += one
            ends[j] = position
        for k in range(len(o_ends)):
            o_start, position, stop = o_ends[k], o_ends[k], np.uint64(o_indptr[k + 1])
            while position < stop and o_indices[position] < last:
                sample = o_indices[position]
                laid[sample - begin] = 1.0 if o_values is None else o_values[position]
                if weights is not None:
                    laid[sample - begin] *= weights[sample]
                position += one
            if position == o_start:
                continue
            o_ends[k] = position
            for j in range(len(starts)):
                total = out[j, k]
                for place in range(starts[j], ends[j]):
                    if values is None:
                        total += laid[indices[place] - begin]
                    else:
                        total += values[place] * laid[indices[place] - begin]
                out[j, k] = total
            for place in range(o_start, position):
                laid[o_indices[place] - begin] = 0.0


@kernel
def normalise_products(means, norms, o_means, o_norms, total_weight, out):  # type: ignore[no-untyped-def]
    """Turn products of raw rows into correlations: 0 if a norm is 0, NaN beyond CANCELLATION."""
    for j in range(len(norms)):
        for k in range(len(o_norms)):
            scale = norms[j] * o_norms[k]
            shift = total_weight * (means[j] * o_means[k])  # this order gives the same bits for (k, j)
            if scale == 0.0:
                out[j, k] = 0.0
            elif abs(shift) > CANCELLATION * scale:
                out[j, k] = np.nan
            else:
                out[j, k] = (out[j, k] - shift) / scale
