"""Effective samples of a feature: the number of samples that carry its variation."""

from __future__ import annotations

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.values import number
from gdm_dask.system.jit import kernel


def effective_samples(block: Block) -> np.ndarray:
    """Compute ``1 / sum_i w_i z_i^4`` of each normalised feature; 0 for constant ones.

    The result is n for a feature that divides the samples into halves, n/3 for normally distributed values, and 1 for a
    feature that differs in a single sample.

    Examples
    --------
    >>> halves, one = np.repeat([1.0, -1.0], 50), np.eye(100)[0]
    >>> rows = np.stack([halves, one])
    >>> means = rows.mean(axis=1)
    >>> block = Block(0, 2, 100, rows, means, np.linalg.norm(rows - means[:, None], axis=1))
    >>> effective_samples(block).round(2).tolist()
    [100.0, 1.02]
    """
    fourths = np.empty(block.n_rows)
    if block.indptr is None:
        _sum_dense(block.values, block.means, block.norms, block.weights, fourths)
    else:
        _sum_sparse(
            block.indptr, block.indices, block.values, block.power, block.means, block.norms, block.weights,
            block.total_weight, fourths,
        )  # fmt: skip
    return np.divide(1.0, fourths, out=np.zeros(block.n_rows), where=block.norms > 0.0)


@kernel
def _sum_dense(rows, means, norms, weights, out):  # type: ignore[no-untyped-def]
    for row in range(len(norms)):
        out[row] = 0.0
        if norms[row] > 0.0:
            for sample in range(rows.shape[1]):
                weight = 1.0 if weights is None else weights[sample]
                out[row] += weight * ((rows[row, sample] - means[row]) / norms[row]) ** 4


@kernel
def _sum_sparse(indptr, indices, values, power, means, norms, weights, total_weight, out):  # type: ignore[no-untyped-def]
    over = 0.0 if power is None else 1.0 / power
    for row in range(len(norms)):
        out[row] = 0.0
        if norms[row] > 0.0:
            inside = 0.0
            for position in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
                value = 1.0 if values is None else number(values[position], power, over)
                weight = 1.0 if weights is None else weights[indices[position]]
                inside += weight
                out[row] += weight * ((value - means[row]) / norms[row]) ** 4
            out[row] += (total_weight - inside) * (means[row] / norms[row]) ** 4
