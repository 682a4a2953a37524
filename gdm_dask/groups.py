"""Groups: all features that correlate with a support, found block by block for all supports at once.

The answer equals brute force. What is skipped is skipped by a bound: with z_k the normalised support and J the samples
where feature j is nonzero, r of n, rho(j, k) = f_j . z_k / norm_j, because z_k sums to zero. Cauchy and Schwarz on J
give

    |rho(j, k)| <= ||f_j|| / norm_j * sqrt(sum of the r largest squares of z_k),

where ||f_j|| / norm_j is at most (1 - r/n)^(-1/2);
so a feature with few nonzeros cannot correlate with a support whose weight is spread over many samples. Most features
of text and log data are rare: they are compared with the rarest supports alone, or with none and are left unread. Of
frequent ones only a part is read: when the rest of it, by Cauchy and Schwarz again, can no longer make a correlation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.correlation import correlations
from gdm_dask.kernels import sparse_groups
from gdm_dask.store.block import Block, narrow_pointers

#: Widens the bound against rounding.
SLACK = 1.0 + 1e-9
#: Parts of the samples after which a feature is given up that can no longer correlate.
CHECKS = (0.3, 0.4, 0.55, 0.75, 1.0)
#: A dense block is screened with BLAS, whose rounding depends on shapes; pairs this near the limit are computed anew.
SCREEN = 1e-6


@dataclass(frozen=True)
class Pairs:
    """Correlated pairs, in the order of features and, for one feature, of supports.

    Attributes
    ----------
    support : ndarray of int64
        Position of the support among the supports.
    feature : ndarray of int64
    rho : ndarray of float64
    n_scanned, n_skipped : int
        Features that were compared with supports, and features that a bound ruled out.
    """

    support: np.ndarray
    feature: np.ndarray
    rho: np.ndarray
    n_scanned: int
    n_skipped: int


@dataclass(frozen=True)
class Supports:
    """Support rows with what the search needs of them, made once for all blocks.

    Attributes
    ----------
    rows : Block
        The supports, those that few nonzeros reach first.
    order : ndarray of int64
        Where each of them was among the supports as given.
    limit : float
    least : ndarray of shape (supports,), int64
        A feature with fewer nonzeros reaches neither this support nor any behind it; increasing.
    checks : ndarray of uint32
        Samples at which it is checked whether it is worth to go on; the last one is their number.
    rests : ndarray of shape (checks, supports)
        Lengths of the raw rows from there on.
    at_indptr, at_support, at_value : ndarray
        The same rows by sample.
    """

    rows: Block
    order: np.ndarray
    limit: float
    least: np.ndarray
    checks: np.ndarray
    rests: np.ndarray
    at_indptr: np.ndarray
    at_support: np.ndarray
    at_value: np.ndarray


def prepare(rows: Block, limit: float) -> Supports:
    """Order support rows by how many nonzeros it takes to reach them, and index them by sample."""
    checks = np.array([round(part * rows.n_samples) for part in CHECKS], np.uint32)
    if rows.indptr is None:
        none, nothing = np.zeros(0, np.uint32), np.zeros(0)
        return Supports(rows, np.arange(rows.n_rows), limit, none, checks, nothing, none, none, nothing)
    least = least_nonzeros(rows, limit)
    order = np.argsort(least, kind="stable")
    rows = rows.rows(order)
    by_sample = rows.to_scipy().astype(np.float64).tocsc()
    squares = by_sample.power(2)
    rests = np.sqrt([np.asarray(squares[:, check:].sum(axis=1)).ravel() for check in checks])
    return Supports(
        rows,
        order,
        limit,
        least[order],
        checks,
        rests,
        narrow_pointers(by_sample.indptr),
        by_sample.indices.astype(np.uint32),
        by_sample.data,
    )


def least_nonzeros(rows: Block, limit: float) -> np.ndarray:
    """How many nonzeros a feature needs at least to reach each support; no number is enough for a constant one."""
    raw = rows.to_scipy().astype(np.float64)
    least = np.full(rows.n_rows, rows.n_samples + 1)
    for k in np.flatnonzero(rows.norms):
        values = raw.data[raw.indptr[k] : raw.indptr[k + 1]]
        at_zero = (rows.means[k] / rows.norms[k]) ** 2
        inside = ((values - rows.means[k]) / rows.norms[k]) ** 2
        # the entries at zero are all alike: bound the largest by the inside ones, none of them below `at_zero`
        sums = np.cumsum(np.sort(np.maximum(inside, at_zero))[::-1])
        counts = np.arange(1, len(sums) + 1)
        reached = sums * SLACK >= limit**2 * (1.0 - counts / rows.n_samples)
        least[k] = 1 + np.argmax(reached) if reached.any() else len(sums) + 1
    return least


def find_pairs(block: Block, supports: Supports) -> Pairs:
    """Features of a block that correlate with a support."""
    if block.indptr is None:
        return _find_dense(block, supports)
    rows = supports.rows
    counters = np.zeros(2, np.int64)
    capacity = max(1024, block.n_rows // 8)
    while True:
        support, row, rho = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity)
        counters[:] = 0
        n_pairs = sparse_groups(
            block.indptr, block.indices, block.values, block.power, block.means, block.norms,
            supports.least, supports.checks, supports.rests,
            rows.indptr, rows.indices, rows.values, rows.means, rows.norms,
            supports.at_indptr, supports.at_support, supports.at_value, block.n_samples, supports.limit,
            support, row, rho, counters,
        )  # fmt: skip
        if n_pairs >= 0:
            break
        capacity *= 4
    found = supports.order[support[:n_pairs]]
    order = np.lexsort((found, row[:n_pairs]))
    return Pairs(found[order], row[order] + block.start, rho[order], int(counters[0]), int(counters[1]))


def _find_dense(block: Block, supports: Supports) -> Pairs:
    rows = supports.rows
    assert block.values is not None
    assert rows.values is not None
    z = (rows.values - rows.means[:, None]) / np.where(rows.norms > 0, rows.norms, 1.0)[:, None]
    there = np.flatnonzero(block.norms > 0)
    step = max(1, (16 << 20) // (8 * block.n_samples))
    found = []
    for start in range(0, len(there), step):
        local = there[start : start + step]
        centred = block.values[local] - block.means[local, None]
        screened = np.abs(centred @ z.T) >= (supports.limit - SCREEN) * block.norms[local, None]
        found.append(np.argwhere(screened) + np.array([start, 0]))
    near = np.concatenate(found) if found else np.zeros((0, 2), np.int64)
    near[:, 0] = there[near[:, 0]]
    rho = np.zeros(len(near))
    for k in np.unique(near[:, 1]):
        mine = np.flatnonzero(near[:, 1] == k)
        rho[mine] = correlations(block.rows(near[mine, 0]), rows.rows(np.array([k])))[:, 0]
    kept = np.abs(rho) >= supports.limit
    return Pairs(near[kept, 1], near[kept, 0] + block.start, rho[kept], len(there), block.n_rows - len(there))


def merge_pairs(parts: list[Pairs]) -> Pairs:
    """Pairs of several blocks, in the order of the features."""
    support, feature, rho = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("support", "feature", "rho")
    )
    order = np.lexsort((support, feature))
    scanned, skipped = sum(part.n_scanned for part in parts), sum(part.n_skipped for part in parts)
    return Pairs(support[order], feature[order], rho[order], scanned, skipped)
