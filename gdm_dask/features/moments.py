"""Mean and norm of feature rows, the only statistics needed for implicit normalisation.

A feature f enters every formula as (f - mean 1) / norm with norm = ||f - mean 1||. Centring a sparse row would make it
dense, so the values stay raw and these two numbers are stored beside them.

A problem may use only some samples, or weight them. A sample of weight w counts as w equal samples: means, norms and
correlations are those of a set in which it is repeated.
"""

# numba types the kernels:
# mypy: allow-untyped-defs
from __future__ import annotations

from dataclasses import replace

import numpy as np

from gdm_dask.features.block import Block, aligned, is_tame, narrow_pointers, scale_of
from gdm_dask.features.values import number
from gdm_dask.system.jit import kernel

#: A feature whose deviation is below this fraction of its mean is constant up to rounding; its norm is set to 0.
CONSTANT = 4e-13

#: If the zeros of a sparse row have less than this share of the total weight, their weights are summed one by one: the
#: difference of the total weight and the weight of the nonzeros has too few digits left.
LITTLE_WEIGHT = 1e-6


def sparse_moments(
    indptr: np.ndarray, values: np.ndarray | None, n_samples: int, power: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the means and norms of compressed rows.

    Parameters
    ----------
    indptr : ndarray of shape (rows + 1,), uint32
    values : ndarray or None
        The nonzeros; None if all are 1.
    n_samples : int
    power : float, optional
        Power of ten by which the values are to be divided if they are integers.

    Returns
    -------
    means, norms : ndarray of shape (rows,), float64

    Examples
    --------
    >>> means, norms = sparse_moments(np.array([0, 1, 1], np.uint32), np.array([4.0]), 4)
    >>> means.tolist(), (norms ** 2).round(12).tolist()
    ([1.0, 0.0], [12.0, 0.0])
    """
    if values is None:
        counts = np.diff(indptr.astype(np.float64))
        means = counts / n_samples
        return means, np.sqrt(counts * (1.0 - means))
    indptr, values = aligned(indptr), aligned(values)
    sums = np.empty((4, len(indptr) - 1))
    _sum_sparse(indptr, None, values, power, None, float(n_samples), sums)
    means, norms = _finish(sums, n_samples)
    for row in _extreme(sums):
        numbers = values[indptr[row] : indptr[row + 1]] / (power or 1.0)
        scale = scale_of(sums[3, row])
        mean, norm = sparse_moments(np.array([0, len(numbers)], indptr.dtype), numbers / scale, n_samples)
        means[row], norms[row] = float(mean[0]) * scale, float(norm[0]) * scale
    return means, norms


def dense_moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the means and norms of dense rows, (rows, samples)."""
    rows = aligned(np.ascontiguousarray(rows))
    sums = np.empty((4, len(rows)))
    _sum_dense(rows, None, float(rows.shape[1]), sums)
    means, norms = _finish(sums, rows.shape[1])
    for row in _extreme(sums):
        scale = scale_of(sums[3, row])
        mean, norm = dense_moments(rows[row : row + 1] / scale)
        means[row], norms[row] = float(mean[0]) * scale, float(norm[0]) * scale
    return means, norms


def with_samples(block: Block, samples: np.ndarray) -> Block:
    """Return a block restricted to some samples, with the moments over these samples.

    Parameters
    ----------
    block : Block
    samples : ndarray of int64, increasing
    """
    if block.indptr is None:
        assert block.values is not None
        dense = np.ascontiguousarray(block.values[:, samples])
        return Block(block.start, block.stop, len(samples), dense, *dense_moments(dense))
    assert block.indices is not None
    place = np.full(block.n_samples, -1, np.int32)
    place[samples] = np.arange(len(samples))
    indptr, indices = np.zeros(block.n_rows + 1, np.uint64), np.empty(len(block.indices) + 1, block.indices.dtype)
    values = None if block.values is None else np.empty(len(block.values) + 1, block.values.dtype)
    _take_samples(block.indptr, block.indices, block.values, place, indptr, indices, values)
    n_values = int(indptr[-1])
    kept = None if values is None else values[:n_values]
    means, norms = sparse_moments(indptr, kept, len(samples), block.power)
    return Block(
        block.start, block.stop, len(samples), kept, means, norms, narrow_pointers(indptr), indices[:n_values],
        decimals=block.decimals,
    )  # fmt: skip


def with_weights(block: Block, weights: np.ndarray) -> Block:
    """Return a block with the moments of weighted samples.

    Parameters
    ----------
    block : Block
    weights : ndarray of shape (n_samples,), float64
        Not negative.

    Examples
    --------
    >>> block = Block(0, 1, 3, np.array([[0.0, 3.0, 9.0]]), np.zeros(1), np.zeros(1))
    >>> weighted = with_weights(block, np.array([2.0, 1.0, 0.0]))
    >>> weighted.means.tolist(), (weighted.norms ** 2).round(12).tolist()
    ([1.0], [6.0])
    """
    total, sums = float(np.add.reduce(weights)), np.empty((4, block.n_rows))
    if block.indptr is None:
        _sum_dense(block.values, weights, total, sums)
    else:
        _sum_sparse(block.indptr, block.indices, block.values, block.power, weights, total, sums)
    means, norms = _finish(sums, total)
    for row in _extreme(sums):
        one, scale = block.rows(np.array([row])), scale_of(sums[3, row])
        assert one.values is not None  # a row of ones is never extreme
        scaled = with_weights(replace(one, values=one.values / scale), weights)
        means[row], norms[row] = float(scaled.means[0]) * scale, float(scaled.norms[0]) * scale
    return replace(block, means=means, norms=norms, weights=weights)


def reweighted(block: Block, weights: np.ndarray | None) -> Block:
    """Return a block with the moments of other sample weights; None if all are 1."""
    if block.weights is weights:
        return block
    if weights is not None:
        return with_weights(block, weights)
    if block.indptr is None:
        assert block.values is not None
        means, norms = dense_moments(block.values)
    else:
        means, norms = sparse_moments(block.indptr, block.values, block.n_samples, block.power)
    return replace(block, means=means, norms=norms, weights=None)


def _extreme(sums: np.ndarray) -> np.ndarray:
    """Find rows whose squares may overflow or underflow: their largest value is far from one."""
    return np.flatnonzero((sums[3] != 0.0) & ~is_tame(sums[3]))


def _finish(sums: np.ndarray, n_samples: float) -> tuple[np.ndarray, np.ndarray]:
    """Apply the second-pass correction: the mean was off by the mean of the deviations from it."""
    mean, deviations, squares, _ = sums
    with np.errstate(over="ignore", invalid="ignore"):  # extreme rows are recomputed
        shift = deviations / n_samples
        norm = np.sqrt(np.maximum(squares - n_samples * shift * shift, 0.0))
        mean = mean + shift
        norm[norm <= CONSTANT * np.sqrt(n_samples) * np.abs(mean)] = 0.0
    return mean, norm


@kernel
def _sum_sparse(indptr, indices, values, power, weights, total_weight, out):
    """Compute the mean, the sums of deviations and of their squares, and the largest |value|: a column per row.

    `indices` are needed only with `weights` of the samples, and may be None without.
    """
    one = np.uint64(1)
    over = 0.0 if power is None else 1.0 / power
    for row in range(len(indptr) - 1):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        inside = total = largest = 0.0
        for position in range(start, stop):
            weight = 1.0 if weights is None else weights[indices[position]]
            if weight > 0.0:
                value = 1.0 if values is None else number(values[position], power, over)
                inside += weight
                total += weight * value
                largest = max(largest, abs(value))
        mean = total / total_weight
        outside = total_weight - (np.float64(stop - start) if weights is None else inside)
        if weights is not None and outside < LITTLE_WEIGHT * total_weight:
            outside, place = 0.0, start
            for sample in range(len(weights)):
                if place < stop and indices[place] == sample:
                    place += one
                else:
                    outside += weights[sample]
        deviations, squares = -mean * outside, mean * mean * outside
        for position in range(start, stop):
            weight = 1.0 if weights is None else weights[indices[position]]
            if weight > 0.0:
                deviation = (1.0 if values is None else number(values[position], power, over)) - mean
                deviations += weight * deviation
                squares += weight * (deviation * deviation)
        out[0, row], out[1, row], out[2, row], out[3, row] = mean, deviations, squares, largest


@kernel
def _sum_dense(rows, weights, total_weight, out):
    """Do the same for dense rows."""
    for row in range(len(rows)):
        total = largest = 0.0
        for position in range(rows.shape[1]):
            weight = 1.0 if weights is None else weights[position]
            if weight > 0.0:
                value = np.float64(rows[row, position])
                total += weight * value
                largest = max(largest, abs(value))
        mean = total / total_weight
        deviations = squares = 0.0
        for position in range(rows.shape[1]):
            weight = 1.0 if weights is None else weights[position]
            if weight > 0.0:
                deviation = rows[row, position] - mean
                deviations += weight * deviation
                squares += weight * (deviation * deviation)
        out[0, row], out[1, row], out[2, row], out[3, row] = mean, deviations, squares, largest


@kernel
def _take_samples(indptr, indices, values, place, out_indptr, out_indices, out_values):
    """Copy the nonzeros of samples that have a place, row by row.

    Every nonzero is copied, and the next one overwrites it if it has no place: an unpredictable branch would take
    longer.
    """
    n_kept = np.uint64(0)
    for row in range(len(indptr) - 1):
        for position in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            new = place[indices[position]]
            out_indices[n_kept] = new
            if values is not None:
                out_values[n_kept] = values[position]
            n_kept += np.uint64(new >= 0)
        out_indptr[row + 1] = n_kept
