"""Groups: all features that correlate with a support, found block by block for all supports at once.

The result equals brute force, because features are skipped only by a proven bound. Let z_k be the normalised support
and J the r of n samples where feature j is nonzero. Then rho(j, k) = f_j . z_k / norm_j, because z_k sums to zero. The
Cauchy-Schwarz inequality on J gives

    |rho(j, k)| <= ||f_j|| / norm_j * sqrt(sum of the r largest squares of z_k),

where ||f_j|| / norm_j is at most (1 - r/n)^(-1/2). So a feature with few nonzeros cannot correlate with a support whose
weight is spread over many samples. Most features of text and log data are rare: they are compared with the rarest
supports only, or with none and are not read at all. A feature that shares no sample with these supports is done when
its samples are known. A frequent feature is compared with a support only up to the point where, by Cauchy-Schwarz on
the rest of both rows, each centred on its own mean there, the rest can no longer reach the limit.

With sample weights, all sums are weighted, and J has a total weight instead of a number of samples. The bound is then
the largest sum of squares on samples of that total weight, where fractions of a sample are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gdm_dask.features.block import AlignedArrays, Block, narrow_pointers
from gdm_dask.features.correlation import CANCELLATION, centred, correlations
from gdm_dask.features.ranking import ALL_SAMPLES, Fold
from gdm_dask.features.values import number
from gdm_dask.system.blas import single_threaded_blas
from gdm_dask.system.jit import kernel

#: Widens the bound against rounding.
SLACK = 1.0 + 1e-9
#: Replaces a weight of 0 in a division.
TINY = 1e-300
#: A feature that can no longer correlate is given up after all samples but this many times ``limit``: an independent
#: feature cannot be given up before all samples but ``limit`` of them were seen.
CHECKS = (0.97, 0.9, 0.8, 0.6, 0.3, 0.0)
#: Rows with fewer remaining nonzeros than this are compared to the end without a further check.
CHECKED_FROM = 64
#: A dense block is screened with BLAS, whose rounding depends on shapes; pairs this near the limit are recomputed.
SCREEN = 1e-6


@dataclass(frozen=True)
class Pairs:
    """Correlated pairs, ordered by feature and then by support."""

    support: np.ndarray  # its position among the supports
    feature: np.ndarray
    rho: np.ndarray
    n_scanned: int  # features compared with supports
    n_skipped: int  # features ruled out by a bound


class Search(Protocol):
    """Supports, prepared to be compared with all features."""

    def find(self, block: Block) -> Pairs:
        """Return the features of a block that correlate with a support."""


@dataclass(frozen=True)
class Supports(AlignedArrays):
    """Support rows with precomputed data for the search, shared by all blocks."""

    rows: Block  # ordered by the number of nonzeros that a feature needs to reach them
    order: np.ndarray  # position of each of them among the given supports
    limit: float
    #: A feature whose nonzeros have at most this weight (number, without weights) reaches neither this support nor any
    #: later one; increasing, (supports,).
    least: np.ndarray
    checks: np.ndarray  # samples at which the search checks whether to continue; the last one is the number of samples
    rest_weights: np.ndarray  # of the samples from each check on, (checks,)
    rest_means: np.ndarray  # weighted means of the raw rows over these samples, (checks, supports)
    rests: np.ndarray  # norms over these samples after centring on the means
    at_first: np.ndarray  # first support with a nonzero at each sample; the number of supports if there is none
    at_indptr: np.ndarray  # the same rows by sample, times the weight of the sample
    at_support: np.ndarray
    at_value: np.ndarray

    def find(self, block: Block) -> Pairs:
        """Return the features of a block that correlate with a support."""
        return find_pairs(block, self)

    def near(self, block: Block) -> np.ndarray:
        """Return how many supports each row can reach at most, by its nonzeros: the first ones in their order."""
        if block.indptr is None:
            return np.full(block.n_rows, self.rows.n_rows)
        return np.searchsorted(self.least, nonzero_weights(block))


def prepare(rows: Block, limit: float) -> Supports:
    """Order support rows by the number of nonzeros needed to reach them, and index them by sample."""
    rows = rows.tamed()
    checks = np.array([round((1.0 - min(limit, 1.0) * part) * rows.n_samples) for part in CHECKS], np.uint32)
    if rows.indptr is None:
        none, nothing = np.zeros(0, np.uint32), np.zeros(0)
        return Supports(
            rows, np.arange(rows.n_rows), limit, none, checks, nothing, nothing, nothing, none, none, none, nothing
        )
    least = least_weights(rows, limit)
    order = np.argsort(least, kind="stable")
    rows = rows.rows(order)
    by_sample = rows.to_scipy().astype(np.float64).tocsc()
    by_sample.sort_indices()
    if rows.weights is not None:
        by_sample.data *= np.repeat(rows.weights, np.diff(by_sample.indptr))
    rest_weights, rest_means, rests = _rests(rows, checks)
    at_first = np.full(rows.n_samples, rows.n_rows, np.uint32)
    filled = np.diff(by_sample.indptr) > 0
    at_first[filled] = by_sample.indices[by_sample.indptr[:-1][filled]]
    return Supports(
        rows,
        order,
        limit,
        least[order],
        checks,
        rest_weights,
        rest_means,
        rests,
        at_first,
        narrow_pointers(by_sample.indptr),
        by_sample.indices.astype(np.uint32),
        by_sample.data,
    )


def _rests(rows: Block, checks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weight of the samples from each check on, and means and centred norms of the rows over them."""
    raw, sums = rows.to_scipy(), np.empty((2, len(checks), rows.n_rows))
    for k in range(rows.n_rows):
        span = slice(raw.indptr[k], raw.indptr[k + 1])
        samples, values = raw.indices[span], raw.data[span].astype(np.float64)
        weighted = values if rows.weights is None else rows.weights[samples] * values
        for first, out in zip(np.searchsorted(samples, checks), sums[:, :, k].T, strict=True):
            out[:] = weighted[first:].sum(), (weighted[first:] * values[first:]).sum()
    if rows.weights is None:
        weights = (rows.n_samples - checks).astype(np.float64)
    else:
        weights = np.array([rows.weights[check:].sum() for check in checks])
    means = sums[0] / np.maximum(weights, TINY)[:, None]
    return weights, means, np.sqrt(np.maximum(sums[1] - weights[:, None] * means**2, 0.0))


@dataclass(frozen=True)
class GroupPass:
    """Find all features that correlate with a support."""

    supports: Search
    fold: Fold = ALL_SAMPLES  # samples of the correlations, as in the rows of the supports
    name = "groups"

    def begin(self) -> list[Pairs]:
        """Return no pairs."""
        return []

    def see(self, part: list[Pairs], block: Block) -> None:
        """Add the pairs of a block."""
        part.append(self.supports.find(self.fold.of(block).tamed()))

    def merge(self, parts: Sequence[list[Pairs]]) -> list[Pairs]:
        """Return all pairs, in order."""
        return [merge_pairs([pairs for part in parts for pairs in part])]

    def finish(self, part: list[Pairs]) -> Pairs:
        """Return the pairs of all features."""
        return part[0]


def least_weights(rows: Block, limit: float) -> np.ndarray:
    """Return the weight that a feature's nonzeros must exceed to reach each support; infinite for a constant one.

    Without sample weights, it is a number of nonzeros.
    """
    raw = rows.to_scipy().astype(np.float64)
    total = rows.total_weight
    least = np.full(rows.n_rows, np.inf)
    for k in np.flatnonzero(rows.norms):
        span = slice(raw.indptr[k], raw.indptr[k + 1])
        at_zero = (rows.means[k] / rows.norms[k]) ** 2
        inside = ((raw.data[span] - rows.means[k]) / rows.norms[k]) ** 2
        # All entries at zero are equal: bound the largest by the nonzero entries, none of them below `at_zero`.
        squares = np.maximum(inside, at_zero)
        order = np.argsort(-squares, kind="stable")
        weights = np.ones(len(order)) if rows.weights is None else rows.weights[raw.indices[span]][order]
        sums, reach = np.cumsum(weights * squares[order]), np.cumsum(weights)
        reached = sums * SLACK >= limit**2 * (1.0 - reach / total)
        first = int(np.argmax(reached)) if reached.any() else len(reach)
        least[k] = reach[first - 1] if first else 0.0
    return least


def nonzero_weights(block: Block) -> np.ndarray:
    """Return the weight, or the number, of the nonzeros of each sparse row, with a margin for rounding."""
    if block.weights is None:
        return block.counts()
    assert block.indptr is not None
    inside = np.empty(block.n_rows)
    sum_weights(block.indptr, block.indices, block.weights, inside)
    inside *= SLACK
    return inside


def find_pairs(block: Block, supports: Supports) -> Pairs:
    """Return the features of a block that correlate with a support."""
    if block.indptr is None:
        return _find_dense(block, supports)
    rows = supports.rows
    counters, sums = np.zeros(2, np.int64), np.empty(rows.n_rows)
    n_near = supports.near(block)
    n_near[block.norms == 0.0] = 0
    farthest = float(np.max(np.abs(rows.means[rows.norms > 0]) / rows.norms[rows.norms > 0], initial=0.0))
    capacity = max(1024, block.n_rows // 8)
    while True:
        support, row, rho = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity)
        counters[:] = 0
        n_pairs = sparse_groups(
            block.indptr, block.indices, block.values, block.power, block.means, block.norms,
            n_near, supports.checks, supports.rest_weights, supports.rest_means, supports.rests, rows.means, rows.norms,
            supports.at_first, supports.at_indptr, supports.at_support, supports.at_value,
            block.weights, block.total_weight, supports.limit, farthest,
            sums, support, row, rho, counters,
        )  # fmt: skip
        if n_pairs >= 0:
            break
        capacity *= 4
    support, row, rho = support[:n_pairs], row[:n_pairs], rho[:n_pairs]
    cancelled = np.flatnonzero(np.isnan(rho))
    if len(cancelled):
        rho[cancelled] = centred(block, row[cancelled], rows, support[cancelled])
    kept = np.abs(rho) >= supports.limit
    found, row, rho = supports.order[support[kept]], row[kept] + block.start, rho[kept]
    order = np.lexsort((found, row))
    return Pairs(found[order], row[order], rho[order], int(counters[0]), int(counters[1]))


def _find_dense(block: Block, supports: Supports) -> Pairs:
    rows = supports.rows
    assert block.values is not None
    assert rows.values is not None
    z = (rows.values - rows.means[:, None]) / np.where(rows.norms > 0, rows.norms, 1.0)[:, None]
    if rows.weights is not None:
        z *= rows.weights
    there = np.flatnonzero(block.norms > 0)
    step = max(1, (16 << 20) // (8 * block.n_samples))
    found = []
    for start in range(0, len(there), step):
        local = there[start : start + step]
        centred = block.values[local] - block.means[local, None]
        with single_threaded_blas():  # tasks take all cores, and idle threads of BLAS would wait at full speed
            products = centred @ z.T
        screened = np.abs(products) >= (supports.limit - SCREEN) * block.norms[local, None]
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
    """Concatenate the pairs of several blocks, in the order of the features."""
    support, feature, rho = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("support", "feature", "rho")
    )
    order = np.lexsort((support, feature))
    scanned, skipped = sum(part.n_scanned for part in parts), sum(part.n_skipped for part in parts)
    return Pairs(support[order], feature[order], rho[order], scanned, skipped)


@kernel
def sum_weights(indptr, indices, weights, out):  # type: ignore[no-untyped-def]
    """Sum the weights of each row's samples."""
    for row in range(len(out)):
        out[row] = 0.0
        for position in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            out[row] += weights[indices[position]]


@kernel
def sparse_groups(  # type: ignore[no-untyped-def]
    indptr, indices, values, power, means, norms, n_near_of, checks, rest_weights, s_rest_means, s_rests,
    s_means, s_norms, at_first, at_indptr, at_support, at_value, weights, total_weight, limit, farthest,
    sums, pair_support, pair_row, pair_rho, counters,
):  # fmt: skip
    """Find pairs (support, row) with ``|rho| >= limit``; return their number, or -1 if the output is too short.

    The supports are given as means and norms (``s_``) and by sample (``at_``: the first support with a nonzero there,
    all of them, and their values). A row provably reaches no support from ``n_near_of[row]`` on, see `groups`. Supports
    are in that order, so the scan of each sample ends there. A support without a common sample is left out when its
    correlation, minus the product of both ``sqrt(n) |mean| / norm``, cannot reach the limit; `farthest` is the largest
    ``|mean| / norm`` of a support. The values of a row are not read if it shares no sample with any support.

    At the samples `checks`, the last supports are given up that the rest of the row cannot reach, given its weight
    there (``rest_weights``) and the supports' means and centred norms (``s_rest_means``, ``s_rests``). Rare supports,
    whose few nonzeros may all lie in the rest, are in reach for longer, but few samples have one.

    `sums` has room for a float64 per support. ``counters`` receives (rows compared to the end, other rows). If the
    products cancel beyond CANCELLATION, the pair is returned with rho NaN.
    """
    one = np.uint64(1)
    over = 0.0 if power is None else 1.0 / power
    n_pairs = 0
    for row in range(len(norms)):
        position, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        mean, norm, n_near = means[row], norms[row], n_near_of[row]
        if n_near == 0:
            counters[1] += 1
            continue
        is_far = total_weight * abs(mean) * farthest < limit * norm * (1.0 - 1e-9)
        first = position
        while first < stop and at_first[indices[first]] >= n_near:
            first += one
        if first == stop and is_far:
            counters[0] += 1
            continue
        for k in range(n_near):
            sums[k] = 0.0
        left = whole = norm * norm + total_weight * mean * mean
        left_sum = total_weight * mean
        for check in range(len(checks)):
            if n_near == 0:
                break
            while position < stop and indices[position] < checks[check]:
                value = 1.0 if values is None else number(values[position], power, over)
                sample = np.uint64(indices[position])
                if at_first[sample] < n_near:
                    for entry in range(np.uint64(at_indptr[sample]), np.uint64(at_indptr[sample + one])):
                        k = at_support[entry]
                        if k >= n_near:
                            break
                        sums[k] += value * at_value[entry]
                part = value if weights is None else weights[sample] * value
                left_sum -= part
                left -= part * value
                position += one
            if stop - position >= CHECKED_FROM:
                left_mean = left_sum / rest_weights[check]
                square = left - left_sum * left_mean
                rest = np.sqrt((square if square > 0.0 else 0.0) + 1e-9 * whole)  # centred norm of the rest of the row
                while n_near > 0:  # give up the last supports, as many as are out of reach
                    k = n_near - 1
                    scale = norm * s_norms[k]
                    shift = total_weight * (mean * s_means[k])
                    most = abs(sums[k] + left_sum * s_rest_means[check, k] - shift) + rest * s_rests[check, k]
                    if abs(shift) > CANCELLATION * scale or most >= limit * scale * (1.0 - 1e-9):
                        break
                    n_near = k
        if n_near == 0:
            counters[1] += 1
            continue
        counters[0] += 1
        for k in range(n_near):
            scale = norm * s_norms[k]
            if scale == 0.0 or (is_far and sums[k] == 0.0):
                continue
            shift = total_weight * (mean * s_means[k])
            rho = np.nan if abs(shift) > CANCELLATION * scale else (sums[k] - shift) / scale
            if not abs(rho) < limit:
                if n_pairs == len(pair_row):
                    return -1
                pair_support[n_pairs], pair_row[n_pairs], pair_rho[n_pairs] = k, row, rho
                n_pairs += 1
    return n_pairs
