"""Ranks of the values of each feature: ties share their mean rank, and all zeros of a sparse row are one tie.

Ranks are counted from the rank of zero. This shifts all ranks of a feature by the same amount, which no correlation
notices, and zeros keep the rank 0: the ranks of a sparse row are as sparse as its values. They are multiples of one
half, so they are exact.

A sample of weight w counts as w equal samples, as everywhere: the ranks are those of a set in which it is repeated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gdm_dask.features.block import Block, narrow_pointers
from gdm_dask.features.moments import dense_moments, sparse_moments, with_weights
from gdm_dask.system.jit import kernel

#: Rows with fewer values than this are sorted by a kernel: calling NumPy would take longer than the sort.
SHORT = 48


def ranks(block: Block) -> Block:
    """Return a block with ranks in place of values, and the moments of the ranks.

    Examples
    --------
    >>> block = Block(0, 1, 5, np.array([[0.0, 7.0, -2.0, 0.0, 7.0]]), np.array([2.4]), np.array([8.5]))
    >>> ranks(block).values.tolist()
    [[0.0, 2.0, -1.5, 0.0, 2.0]]
    """
    indptr, values = flat_rows(block)
    found: np.ndarray = np.empty(len(values))
    rank_rows(
        indptr, block.indices, values, sorted_order(indptr, values, block.weights is not None), block.weights,
        block.total_weight, found,
    )  # fmt: skip
    if block.indptr is None:
        found = found.reshape(block.n_rows, block.n_samples)
        means, norms = dense_moments(found)
    else:
        means, norms = sparse_moments(indptr, found, block.n_samples)
    ranked = replace(block, values=found, means=means, norms=norms, decimals=None)
    if block.weights is not None:
        ranked = with_weights(ranked, block.weights)
    ranked.norms[block.norms == 0.0] = 0.0  # constant up to rounding: such ranks mean nothing
    return ranked


def flat_rows(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the pointers to the rows of a block and their values, row after row, in any units that keep the order."""
    if block.indptr is None:
        assert block.values is not None
        return narrow_pointers(np.arange(block.n_rows + 1) * block.n_samples), block.values.ravel()
    assert block.indices is not None
    return block.indptr, np.ones(len(block.indices), np.uint8) if block.values is None else block.values


def sorted_order(indptr: np.ndarray, values: np.ndarray, is_stable: bool) -> np.ndarray:
    """Return the positions of the values of each row within the row, smallest value first.

    Parameters
    ----------
    indptr : ndarray of shape (rows + 1,)
    values : ndarray
    is_stable : bool
        Whether equal values keep their order: sums of weights depend on it in the last digits, numbers do not.
    """
    order = np.empty(len(values), np.uint32)
    sort_short_rows(indptr, values, order)
    bounds = indptr.astype(np.int64)
    for row in np.flatnonzero(np.diff(bounds) >= SHORT).tolist():
        span = slice(bounds[row], bounds[row + 1])
        order[span] = np.argsort(values[span], kind="stable" if is_stable else None)
    return order


@kernel
def sort_short_rows(indptr, values, order):  # type: ignore[no-untyped-def]
    """Sort the rows with fewer than SHORT values, by insertion."""
    one = np.uint64(1)
    for row in range(len(indptr) - 1):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        if stop - start >= SHORT:
            continue
        for position in range(start, stop):
            place = np.uint64(position)
            value = values[place]
            while place > start and values[start + order[place - one]] > value:
                order[place] = order[place - one]
                place -= one
            order[place] = np.uint64(position) - start


@kernel
def rank_rows(indptr, indices, values, order, weights, total_weight, out):  # type: ignore[no-untyped-def]
    """Compute the rank of each value in its row, from the rank of zero on; `indices` is None for dense rows."""
    for row in range(len(indptr) - 1):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        below = above = 0.0
        for position in range(start, stop):
            weight = 1.0
            if weights is not None:
                weight = weights[position - start if indices is None else indices[position]]
            if values[position] < 0:
                below += weight
            elif values[position] > 0:
                above += weight
        zeros = total_weight - below - above
        first, before = start, -below - 0.5 * zeros  # weight of the smaller values, from the middle of the zeros
        is_above = False
        while first < stop:
            value, tied, last = values[start + order[first]], 0.0, first
            while last < stop and values[start + order[last]] == value:
                place = start + order[last]
                weight = 1.0
                if weights is not None:
                    weight = weights[place - start if indices is None else indices[place]]
                tied += weight
                last += np.uint64(1)
            if value > 0 and not is_above:
                is_above, before = True, 0.5 * zeros
            rank = 0.0 if value == 0 else before + 0.5 * tied
            for position in range(first, last):
                out[start + order[position]] = rank
            before += tied
            first = last
