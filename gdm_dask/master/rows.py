"""The features of the cuts, implicitly normalised, and their products for the master problem.

A feature enters every formula as z_j = (f_j - mean_j 1) / norm_j. Rows with many zeros are kept as the sparse f_j, with
the scale 1 / norm_j and the shift mean_j / norm_j beside them, because centring would fill them; they take no more
memory than in a store, and no values are kept if all are 1. Rows with few zeros are normalised and kept densely. A row
of density p has mean^2 <= p / (1 - p) variance, so the shifts of sparse rows never cancel a digit; a row with a mean of
10^6 and a deviation of 1 is dense, hence centred.

Sums over many samples are taken over ranges that depend only on the number of samples, so that any number of threads
gives the same bits.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from gdm_dask.master.sparse_kernels import (
    SPAN,
    Changed,
    SparseRows,
    add_gram,
    cross_span,
    normalise,
    project_range,
    score_range,
    weighted,
)
from gdm_dask.system.resources import n_cores

DENSE_FROM = 0.25
"""Share of nonzeros from which a row is kept densely: there, BLAS is faster than the sparse kernels."""

BLOCK = 1024
"""Samples of dense rows processed at a time, so that they stay in the L2 cache."""

RANGE = 32_768
"""Number of samples worth a separate task."""

MOST_RANGES = 8
"""Maximum number of ranges: each has its own Gram matrix."""

Result = TypeVar("Result")


class Rows:
    """Feature rows z_j = (f_j - mean_j 1) / norm_j, kept raw where they are sparse.

    Parameters
    ----------
    n_samples : int
        Length n of each row.
    most_ranges : int
        Most parts of the samples that are summed apart, each on a thread of its own.

    Examples
    --------
    >>> rows = Rows(4)
    >>> rows.append(np.array([[0.0, 0.0, 0.0, 4.0]]), means=np.array([1.0]), norms=np.array([12.0**0.5]))
    >>> rows.scores(np.array([[0.0, 0.0, 0.0, 1.0]])).round(3)
    array([[0.866]])
    """

    def __init__(self, n_samples: int, most_ranges: int = MOST_RANGES) -> None:
        self.n_samples = n_samples
        self.n_rows = 0
        self._scales, self._shifts = np.zeros(0), np.zeros(0)
        self._sparse = SparseRows(n_samples)
        self._dense = np.empty((0, n_samples))
        self._dense_at = np.zeros(0, dtype=np.int64)
        n_ranges = min(most_ranges, max(1, n_samples // RANGE))
        bounds = np.linspace(0, n_samples, n_ranges + 1).astype(np.int64)
        bounds[1:-1] -= bounds[1:-1] % SPAN
        self._ranges = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

    def copy(self) -> Rows:
        """Return a copy to which other rows can be appended."""
        twin = copy.copy(self)
        twin._sparse = copy.deepcopy(self._sparse)
        twin._dense = self._dense[: self._dense_at.size].copy()
        return twin

    def subset(self, chosen: np.ndarray) -> Rows:
        """Return some of the rows, given by increasing positions, for products; no rows can be appended to them."""
        if len(chosen) == self.n_rows:
            return self
        part = Rows(self.n_samples, len(self._ranges))
        part.n_rows = len(chosen)
        part._scales, part._shifts = self._scales[chosen], self._shifts[chosen]
        part._sparse = self._sparse.subset(chosen)
        kept = np.flatnonzero(np.isin(self._dense_at, chosen))
        part._dense, part._dense_at = self._dense[kept], np.searchsorted(chosen, self._dense_at[kept])
        return part

    def in_one_range(self) -> Rows:
        """Return the rows for sums on one thread; no rows can be appended to them."""
        part = copy.copy(self)
        part._ranges = [(0, self.n_samples)]
        return part

    def over_samples(self, n_samples: int, entries: SparseRows) -> Rows:
        """Return rows with these entries over other samples, normalised as here; none may be dense."""
        part = Rows(n_samples, len(self._ranges))
        part.n_rows, part._scales, part._shifts, part._sparse = self.n_rows, self._scales, self._shifts, entries
        return part

    def append(
        self,
        rows: sparse.csr_array | sparse.csr_matrix | np.ndarray,
        means: np.ndarray,
        norms: np.ndarray,
    ) -> None:
        """Append raw rows at the next positions.

        Parameters
        ----------
        rows : (k, n) sparse or dense array
            Raw values of the new features, of any numeric type or bool.
        means, norms : (k,) arrays
            Mean of each row, and norm of the row after centring.
        """
        means, norms = np.asarray(means, dtype=np.float64), np.asarray(norms, dtype=np.float64)
        rows = _checked(rows, means, norms, self.n_samples)
        if not means.size:
            return
        is_dense = _count_nonzeros(rows) > DENSE_FROM * self.n_samples
        self._append_dense(rows, np.flatnonzero(is_dense), means, norms)
        self._append_sparse(rows, np.flatnonzero(~is_dense))
        self._scales = np.append(self._scales, np.where(is_dense, 1.0, 1.0 / norms))
        self._shifts = np.append(self._shifts, np.where(is_dense, 0.0, means / norms))
        self.n_rows += means.size

    def _append_dense(self, rows: Any, which: np.ndarray, means: np.ndarray, norms: np.ndarray) -> None:
        """Centre and scale the chosen rows into the dense store, which grows by doubling."""
        used = self._dense_at.size
        if used + which.size > self._dense.shape[0]:
            grown = np.empty((max(used + which.size, 2 * used), self.n_samples))
            grown[:used] = self._dense[:used]
            self._dense = grown
        for at, row in enumerate(which, start=used):
            raw = rows[[row]].toarray()[0] if sparse.issparse(rows) else rows[row]
            np.subtract(raw, means[row], out=self._dense[at], dtype=np.float64)
            self._dense[at] /= norms[row]
        self._dense_at = np.append(self._dense_at, self.n_rows + which)

    def _append_sparse(self, rows: Any, which: np.ndarray) -> None:
        """Keep the chosen rows as sparse rows."""
        # Dense rows among the new features are empty here, so that positions count all features.
        counts = np.zeros(rows.shape[0], dtype=np.int64)
        samples, values = np.zeros(0, np.int32), np.zeros(0, np.uint8)
        if which.size:
            chosen = sparse.csr_array(rows if which.size == rows.shape[0] else rows[which])
            counts[which], samples, values = np.diff(chosen.indptr), chosen.indices, chosen.data
        self._sparse.append(counts, samples, values)

    def over_ranges(self, function: Callable[[int, int], Result]) -> list[Result]:
        """Call a function on every range of samples, on as many threads as cores; results are in order."""
        return in_parallel(lambda part: function(*part), self._ranges)

    def project(self, weights: np.ndarray, out: np.ndarray) -> None:
        """Write W Z into `out`: one value for each output and sample.

        Parameters
        ----------
        weights : (K, d) array
        out : (K, n) array
        """
        entries = self._sparse.entries
        dense, dense_weights = self._dense[: self._dense_at.size], weights[:, self._dense_at]
        used: Any = np.flatnonzero(dense_weights.any(axis=0))
        if 2 * used.size > self._dense_at.size:
            used = slice(None)  # picking rows costs more than multiplying by zero
        offsets, scaled = weights @ self._shifts, weights * self._scales
        dense_weights = dense_weights[:, used]

        def fill(begin: int, end: int) -> None:
            for k, offset in enumerate(offsets):
                project_range(*entries, begin, end, scaled[k], offset, out[k])
            for first in range(begin, end, BLOCK) if dense_weights.size else ():
                block = slice(first, min(first + BLOCK, end))
                out[:, block] += dense_weights @ dense[used, block]

        self.over_ranges(fill)

    def scores(self, a: np.ndarray) -> np.ndarray:
        """Return c = A Z'.

        Parameters
        ----------
        a : (K, n) array

        Returns
        -------
        (K, d) array
        """
        entries = self._sparse.entries
        dense = self._dense[: self._dense_at.size]

        def score(begin: int, end: int) -> np.ndarray:
            sums, totals = np.zeros((len(a), self.n_rows)), np.zeros((len(a), 1))
            for k, row in enumerate(a) if self.has_sparse else ():
                totals[k] = score_range(*entries, begin, end, row, sums[k])
            sums *= self._scales
            sums[:, self._dense_at] = a[:, begin:end] @ dense[:, begin:end].T
            return sums - totals * self._shifts

        total: np.ndarray = np.sum(self.over_ranges(score), axis=0)
        return total

    @property
    def sparse(self) -> SparseRows:
        """The rows that are kept sparsely; the others are empty here."""
        return self._sparse

    @property
    def is_sparse(self) -> bool:
        """Whether no row is kept densely."""
        return not self._dense_at.size

    @property
    def has_sparse(self) -> bool:
        """Whether some rows are kept sparsely."""
        return self._dense_at.size < self.n_rows

    def moments(self, change: np.ndarray, w: np.ndarray | None, first: int = 0) -> Moments:
        """Sum the products of pairs of rows over the samples.

        Parameters
        ----------
        change : (n,) int8 array
            +1 for a sample that enters, -1 for a sample that leaves, 0 otherwise.
        w : (n,) array or None
            Sample weights.
        first : int
            Leave out pairs in which both rows precede this one.

        Returns
        -------
        Moments
        """

        def sum_range(begin: int, end: int) -> Moments:
            moments, samples = Moments.zeros(self.n_rows), (begin, end, change, w)
            moments.count = float(weighted(change, w, slice(begin, end)).sum())
            across = np.zeros((self.n_rows if self.has_sparse else 0, self._dense_at.size))
            if self.has_sparse:
                also = partial(self._add_across, across, first) if across.size else None
                add_gram(self._sparse.entries, *samples, moments.gram, moments.sums, also)
                moments.gram[:first, :first] = moments.sums[:first] = 0.0
            if across.size:
                moments.add_across(self._dense_at, across)
            if self._dense_at.size:
                self._add_dense(moments, *samples, first)
            return moments

        total, *others = self.over_ranges(sum_range)
        for moments in others:
            total.add(moments)
        return total

    def _add_dense(
        self, moments: Moments, begin: int, end: int, change: np.ndarray, w: np.ndarray | None, first: int
    ) -> None:
        """Add the sums of the dense rows from `first` on, and their products with all dense rows up to them."""
        at, new = self._dense_at, int(np.searchsorted(self._dense_at, first))
        square, changed = np.zeros((at.size - new, at.size)), begin + np.flatnonzero(change[begin:end] != 0)
        for start in range(0, changed.size, BLOCK):
            samples = changed[start : start + BLOCK]
            block, weights = np.take(self._dense[: at.size], samples, axis=1), weighted(change, w, samples)
            moments.sums[at[new:]] += block[new:] @ weights
            # Numpy releases the GIL here; scipy's dsyrk does not.
            square += (block[new:] * weights) @ block.T
        moments.gram[np.ix_(at[new:], at) if self.has_sparse else slice(new, None)] += square

    def _add_across(self, across: np.ndarray, first: int, changed: Changed) -> None:
        """Add the products of sparse and dense rows over some samples; at least one of a pair is `first` or later."""
        samples, part, (bounds, *entries) = changed
        new = int(np.searchsorted(self._dense_at, first))
        for dense, start in ((slice(new), first), (slice(new, self._dense_at.size), 0)):
            by_sample = np.ascontiguousarray(self._dense[dense, samples].T)
            cross_span(bounds[start:], *entries, part, by_sample, across[start:, dense])

    def normalised(self, moments: Moments, centred: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return the Gram matrix of the normalised rows, `centred` on their means or not, and their sums."""
        scaled = moments.sums * self._scales
        sums, gram = scaled - moments.count * self._shifts, np.empty_like(moments.gram)
        means = sums / moments.count if centred and moments.count > 0 else np.zeros_like(sums)
        normalise(moments.gram, self._scales, self._shifts, scaled, sums, means, gram)
        return gram, sums


@dataclass
class Moments:
    """Weighted sums over samples of the features as stored."""

    gram: np.ndarray  # sums of the products of two features, in the lower triangle, (d, d)
    sums: np.ndarray  # of the features, (d,)
    count: float = 0.0  # sum of the weights

    @classmethod
    def zeros(cls, n_rows: int) -> Moments:
        """Return the sums over no samples."""
        return cls(np.zeros((n_rows, n_rows)), np.zeros(n_rows))

    def padded(self, n_rows: int) -> Moments:
        """Return a copy with zeros for further features."""
        found, known = Moments.zeros(n_rows), self.sums.size
        found.gram[:known, :known], found.sums[:known], found.count = self.gram, self.sums, self.count
        return found

    def subset(self, chosen: np.ndarray) -> Moments:
        """Return the sums of some features, given by increasing positions."""
        return Moments(self.gram[np.ix_(chosen, chosen)], self.sums[chosen], self.count)

    def add_across(self, dense: np.ndarray, across: np.ndarray) -> None:
        """Add the products of all features with the dense ones at these positions."""
        for position, products in zip(dense.tolist(), across.T, strict=True):
            self.gram[position, :position] += products[:position]
            self.gram[position:, position] += products[position:]

    def add(self, other: Moments) -> None:
        """Add the sums over other samples, or of other features."""
        self.gram += other.gram
        self.sums += other.sums
        self.count += other.count


_in_pool = threading.local()


def in_parallel(function: Callable[..., Result], *items: Iterable[Any]) -> list[Result]:
    """Call a function on every item, or on the items of several lists, on as many threads as cores; keep the order.

    Calls from one of these threads run in sequence, since the other threads are busy.

    >>> in_parallel(pow, [2, 3], [3, 2])
    [8, 9]
    """
    calls = list(zip(*items, strict=True))
    if len(calls) <= 1 or n_cores() == 1 or getattr(_in_pool, "is_here", False):
        return [function(*call) for call in calls]
    return list(_threads(n_cores(), os.getpid()).map(lambda call: function(*call), calls))


@cache
def _threads(n_threads: int, pid: int) -> ThreadPoolExecutor:
    """Threads kept for the next call, which may be shorter than starting them; a forked process has none of them."""
    return ThreadPoolExecutor(n_threads, f"gdm-{pid}", lambda: setattr(_in_pool, "is_here", True))


def _checked(rows: Any, means: np.ndarray, norms: np.ndarray, n_samples: int) -> Any:
    """Return the rows as a CSR or numpy array, after checking for anything that would spoil the sums."""
    if rows.ndim != 2 or rows.shape[1] != n_samples:
        raise ValueError(f"rows must have shape (k, {n_samples}), got {rows.shape}")
    if means.shape != rows.shape[:1] or norms.shape != rows.shape[:1]:
        raise ValueError(f"{rows.shape[0]} rows need as many means and norms: {means.shape}, {norms.shape}")
    if not (np.isfinite(means).all() and np.isfinite(norms).all() and (norms > 0).all()):
        raise ValueError("means and norms must be finite, and norms positive: leave constant features out")
    if sparse.issparse(rows):
        rows = sparse.csr_array(rows)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    if not np.isfinite(rows.data if sparse.issparse(rows) else rows).all():
        raise ValueError("rows must be finite: replace missing values before selecting features")
    return rows


def _count_nonzeros(rows: Any) -> np.ndarray:
    """Return the number of nonzeros of each row."""
    return np.diff(rows.indptr) if sparse.issparse(rows) else np.count_nonzero(rows, axis=1)
