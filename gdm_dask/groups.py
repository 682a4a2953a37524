"""Groups: all features that correlate with a support, found block by block for all supports at once.

The answer equals brute force. What is skipped is skipped by a bound: with z_k the normalised support and J the samples
where feature j is nonzero, rho(j, k) = f_j . z_k / norm_j, because z_k sums to zero. Cauchy and Schwarz on J give

    |rho(j, k)| <= ||f_j|| / norm_j * sqrt(sum of the |J| largest squares of z_k),

so a feature with few nonzeros cannot correlate with a support whose weight is spread over many samples. Most features
of text and log data are rare, and whole rows are left unread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.correlation import correlations
from gdm_dask.kernels import sparse_groups
from gdm_dask.store.block import Block

#: Nonzeros up to which the bound is tabulated; rows with more of them are always scanned.
MAX_REACH = 1 << 20
#: Widens the bound against rounding.
SLACK = 1.0 + 1e-9
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
        Features whose nonzeros were read, and features that a bound ruled out.
    """

    support: np.ndarray
    feature: np.ndarray
    rho: np.ndarray
    n_scanned: int
    n_skipped: int


@dataclass(frozen=True)
class Supports:
    """Support rows with what the search needs of them, made once for many blocks."""

    rows: Block
    limit: float
    reach: np.ndarray
    at_indptr: np.ndarray
    at_support: np.ndarray
    at_value: np.ndarray


def prepare(rows: Block, limit: float) -> Supports:
    """Index support rows by sample and tabulate how far features with few nonzeros can reach."""
    if rows.indptr is None:
        none = np.zeros(0, np.uint32)
        return Supports(rows, limit, np.ones(1), none, none, np.zeros(0))
    by_sample = rows.to_scipy().astype(np.float64).tocsc()
    return Supports(
        rows,
        limit,
        reach_of(rows),
        by_sample.indptr.astype(np.uint32),
        by_sample.indices.astype(np.uint32),
        by_sample.data,
    )


def reach_of(rows: Block) -> np.ndarray:
    """``reach[r]``: the largest sqrt(sum of the r largest squares of z_k) over the supports k; the last entry is 1."""
    assert rows.indptr is not None
    raw = rows.to_scipy().astype(np.float64)
    length = min(rows.n_samples, MAX_REACH)
    reach = np.zeros(length + 1)
    for k in np.flatnonzero(rows.norms):
        values = raw.data[raw.indptr[k] : raw.indptr[k + 1]]
        at_zero = (rows.means[k] / rows.norms[k]) ** 2
        inside = ((values - rows.means[k]) / rows.norms[k]) ** 2
        # the entries at zero are all alike: bound the r largest by the inside ones, none of them below `at_zero`
        largest = np.sort(np.maximum(inside, at_zero))[::-1][:length]
        sums = np.concatenate([[0.0], np.cumsum(largest)])
        rest = sums[-1] + at_zero * np.arange(1, length + 1 - len(largest))
        np.maximum(reach, np.concatenate([sums, rest]), out=reach)
    reach = np.minimum(np.sqrt(reach) * SLACK, 1.0)
    reach[-1] = 1.0
    return reach


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
            block.indptr, block.indices, block.values, block.means, block.norms, supports.reach,
            rows.indptr, rows.indices, rows.values, rows.means, rows.norms,
            supports.at_indptr, supports.at_support, supports.at_value, block.n_samples, supports.limit,
            support, row, rho, counters,
        )  # fmt: skip
        if n_pairs >= 0:
            break
        capacity *= 4
    order = np.lexsort((support[:n_pairs], row[:n_pairs]))
    return Pairs(support[order], row[order] + block.start, rho[order], int(counters[0]), int(counters[1]))


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
