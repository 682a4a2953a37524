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
from gdm_dask.features.values import number
from gdm_dask.system.jit import kernel
from gdm_dask.system.resources import n_cores

#: Correlations this close to the limit count as reaching it: rounding may put an |rho| that equals 1 - tau in exact
#: arithmetic on either side.
ROUNDING = 1e-9

#: f_j . f_k - n mean_j mean_k loses as many digits as n |mean_j mean_k| / (norm_j norm_k) has. Beyond this limit
#: a correlation is computed from centred values.
CANCELLATION = 1e5

#: From this many products for each sample and each value of both sides, they are found by an index of the others.
INDEXED_FROM = 8
#: Values of the others up to which they are indexed: an entry of the index takes 12 bytes.
MOST_INDEXED = 1 << 22

#: Threads share correlations that take at least this many products; each thread needs a vector over the samples.
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
    if others.indptr is None:
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
    sparse = rows.indptr, rows.indices, rows.values, others.indptr[start : stop + 1], others.indices, others.values
    n_others = int(others.indptr[stop]) - int(others.indptr[start])
    pays = rows.n_values * (stop - start) > INDEXED_FROM * (rows.n_samples + rows.n_values + n_others)
    if pays and n_others <= MOST_INDEXED:
        index = np.zeros(rows.n_samples + 1, np.uint64), np.empty(n_others, np.uint32), np.empty(n_others)
        add_indexed(*sparse, rows.weights, *index, out)
    else:
        add_laid_out(*sparse, rows.weights, np.zeros(rows.n_samples), out)
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
        values = matrix.data if matrix.data.dtype in (np.float32, np.float64) else matrix.data.astype(np.float64)
        indptr, indices = narrow_pointers(matrix.indptr), matrix.indices.astype(np.uint32)
        means, norms = sparse_moments(indptr, values, matrix.shape[0])
        return Block(0, matrix.shape[1], matrix.shape[0], values, means, norms, indptr, indices)
    dense = np.ascontiguousarray(np.asarray(X).T)
    if dense.ndim != 2:
        raise BadInput(f"expected a matrix of samples x features, got an array of shape {dense.shape}")
    if dense.dtype not in (np.float32, np.float64, np.uint8):
        dense = dense.astype(np.float64)
    _check_finite(dense)
    means, norms = dense_moments(dense)
    return Block(0, dense.shape[0], dense.shape[1], dense, means, norms)


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
def add_laid_out(indptr, indices, values, o_indptr, o_indices, o_values, weights, laid, out):  # type: ignore[no-untyped-def]
    """Add the products of every row with every other row to ``out[j, k]``: lay out the others, one after the other.

    `laid` has one float64 per sample, zero on entry and on return.
    """
    for k in range(len(o_indptr) - 1):
        o_start, o_stop = np.uint64(o_indptr[k]), np.uint64(o_indptr[k + 1])
        for position in range(o_start, o_stop):
            sample = o_indices[position]
            laid[sample] = 1.0 if o_values is None else o_values[position]
            if weights is not None:
                laid[sample] *= weights[sample]
        for j in range(len(indptr) - 1):
            total = 0.0
            for position in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
                if values is None:
                    total += laid[indices[position]]
                else:
                    total += values[position] * laid[indices[position]]
            out[j, k] += total
        for position in range(o_start, o_stop):
            laid[o_indices[position]] = 0.0


@kernel
def add_indexed(  # type: ignore[no-untyped-def]
    indptr, indices, values, o_indptr, o_indices, o_values, weights, ends, owners, weighted, out
):  # fmt: skip
    """Add the same products, in the same order of samples, by an index of the others by sample.

    `ends` has an entry per sample and one more, all 0; `owners` and `weighted` have room for all values of the others.
    """
    n_others = len(o_indptr) - 1
    for position in range(np.uint64(o_indptr[0]), np.uint64(o_indptr[n_others])):
        ends[np.uint64(o_indices[position]) + np.uint64(1)] += np.uint64(1)
    for sample in range(1, len(ends)):  # where the entries of each sample begin
        ends[sample] += ends[sample - 1]
    for k in range(n_others):
        for position in range(np.uint64(o_indptr[k]), np.uint64(o_indptr[k + 1])):
            sample = o_indices[position]
            at = ends[sample]
            owners[at] = k
            weighted[at] = 1.0 if o_values is None else o_values[position]
            if weights is not None:
                weighted[at] *= weights[sample]
            ends[sample] = at + np.uint64(1)  # in the end, where they end
    for j in range(len(indptr) - 1):
        for position in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            sample, value = indices[position], 1.0 if values is None else np.float64(values[position])
            for entry in range(ends[sample - 1] if sample > 0 else np.uint64(0), ends[sample]):
                out[j, owners[entry]] += value * weighted[entry]


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
