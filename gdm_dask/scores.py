"""Scores c = Z (alpha * y): how much each feature would change the margin, for all features of a block."""

from __future__ import annotations

import numpy as np

from gdm_dask.kernels import dense_scores, sparse_scores
from gdm_dask.store.block import Block


def scores(block: Block, vectors: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Scores of a block's implicitly normalised features.

    Parameters
    ----------
    block : Block
    vectors : ndarray of shape (p, n_samples), float64
        One vector ``a = alpha * y`` for each problem that shares the pass.
    out : ndarray of shape (p, rows), optional
        Where to put them.

    Returns
    -------
    ndarray of shape (p, rows)
        ``(f_j . a - mean_j sum(a)) / norm_j``; 0 for constant features.

    Examples
    --------
    >>> block = Block(0, 1, 2, np.array([[0.0, 2.0]]), np.array([1.0]), np.array([np.sqrt(2)]))
    >>> scores(block, np.array([[-0.5, 0.5]])).round(6).tolist()
    [[0.707107]]
    """
    out = np.empty((len(vectors), block.n_rows)) if out is None else out
    if block.indptr is None:
        dense_scores(block.values, block.means, block.norms, vectors, out)
    else:
        sums = np.array([vector.sum() for vector in vectors])
        sparse_scores(
            block.indptr, block.indices, block.values, block.power, block.means, block.norms, vectors, sums, out
        )  # fmt: skip
    return out
