"""The features that the cuts hold, implicitly normalised, and the products that the master takes with them.

A feature enters every formula as z_j = (f_j - mean_j 1) / norm_j. Rows with many zeros are kept as the sparse
f_j with the scale 1 / norm_j and the shift mean_j / norm_j beside them, since centring would fill them; they take
no more memory than in a store, and where all values are 1, no values are kept. Rows with few zeros are normalised
and kept densely. A row of density p has mean^2 <= p / (1 - p) variance, so the shifts of the
sparse rows never cancel a digit; a row with a mean of 10^6 and a deviation of 1 is dense, hence centred.

Sums over many samples are taken over ranges that depend on their number only, so that any number of threads
gives the same bits.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from gdm_dask.master_gram import BLOCK, Moments
from gdm_dask.master_sparse import SPAN, SparseRows, project_sparse, score_sparse

DENSE_FROM = 0.25
"""Share of nonzeros from which a row is kept densely: there, BLAS outruns the sparse kernels."""

RANGE = 32_768
"""Samples that are worth a task of their own."""

MOST_RANGES = 8
"""Each range has a Gram matrix of its own, which bounds their number."""

Result = TypeVar("Result")


class Rows:
    """Feature rows z_j = (f_j - mean_j 1) / norm_j, kept raw where they are sparse.

    Parameters
    ----------
    n_samples : int
        Length n of every row.

    Examples
    --------
    >>> rows = Rows(4)
    >>> rows.append(np.array([[0.0, 0.0, 0.0, 4.0]]), means=np.array([1.0]), norms=np.array([12.0**0.5]))
    >>> rows.scores(np.array([0.0, 0.0, 0.0, 1.0])).round(3)
    array([0.866])
    """

    def __init__(self, n_samples: int) -> None:
        self.n_samples = n_samples
        self.n_rows = 0
        self._scales, self._shifts = np.zeros(0), np.zeros(0)
        self._sparse = SparseRows(n_samples)
        self._dense = np.empty((0, n_samples))
        self._dense_at = np.zeros(0, dtype=np.int64)
        n_ranges = min(MOST_RANGES, max(1, n_samples // RANGE))
        bounds = np.linspace(0, n_samples, n_ranges + 1).astype(np.int64)
        bounds[1:-1] -= bounds[1:-1] % SPAN
        self._ranges = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

    def copy(self) -> Rows:
        """Rows of their own, to which others can be appended."""
        twin = copy.copy(self)
        twin._sparse = copy.deepcopy(self._sparse)
        twin._dense = self._dense[: self._dense_at.size].copy()
        return twin

    def subset(self, chosen: np.ndarray) -> Rows:
        """Some of the rows, given by increasing positions, for products; none can be appended to them."""
        if len(chosen) == self.n_rows:
            return self
        part = Rows(self.n_samples)
        part.n_rows = len(chosen)
        part._scales, part._shifts = self._scales[chosen], self._shifts[chosen]
        part._sparse = self._sparse.subset(chosen)
        kept = np.flatnonzero(np.isin(self._dense_at, chosen))
        part._dense, part._dense_at = self._dense[kept], np.searchsorted(chosen, self._dense_at[kept])
        return part

    def append(
        self,
        rows: sparse.csr_array | sparse.csr_matrix | np.ndarray,
        means: np.ndarray,
        norms: np.ndarray,
    ) -> None:
        """Add raw rows, which get the next positions.

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
        """Keep the chosen rows sparsely."""
        chosen = sparse.csr_array(rows if which.size == rows.shape[0] else rows[which])
        # The dense ones among the new features are empty here, so that positions count all features.
        indptr = np.zeros(rows.shape[0] + 1, dtype=np.int64)
        indptr[which + 1] = np.diff(chosen.indptr)
        shape = (rows.shape[0], self.n_samples)
        self._sparse.append(sparse.csr_array((chosen.data, chosen.indices, np.cumsum(indptr)), shape=shape))

    def over_ranges(self, function: Callable[[int, int], Result]) -> list[Result]:
        """Call a function on every range of samples, on as many threads as there are cores; results are in order."""
        begins, ends = zip(*self._ranges, strict=True)
        n_threads = min(len(self._ranges), os.cpu_count() or 1)
        if n_threads == 1:
            return list(map(function, begins, ends))
        return list(_threads(n_threads, os.getpid()).map(function, begins, ends))

    def project(self, weights: np.ndarray, out: np.ndarray, y: np.ndarray | None = None) -> None:
        """Write Z' w into `out`: one value for each sample, times its label where labels are given.

        Parameters
        ----------
        weights : (d,) array
        out : (n,) array
        y : (n,) array, optional
        """
        entries = self._sparse.entries
        dense, dense_weights = self._dense[: self._dense_at.size], weights[self._dense_at]
        used: Any = np.flatnonzero(dense_weights)
        if 2 * used.size > dense_weights.size:
            used = slice(None)  # picking rows costs more than the products with zero
        offset, scaled = weights @ self._shifts, weights * self._scales

        def fill(begin: int, end: int) -> None:
            project_sparse(*entries, begin, end, scaled, offset, None if dense_weights.size else y, out)
            if dense_weights.size:
                for first in range(begin, end, BLOCK):
                    block = slice(first, min(first + BLOCK, end))
                    out[block] += dense_weights[used] @ dense[used, block]
                    if y is not None:
                        out[block] *= y[block]

        self.over_ranges(fill)

    def scores(self, a: np.ndarray) -> np.ndarray:
        """Return c = Z a.

        Parameters
        ----------
        a : (n,) array

        Returns
        -------
        (d,) array
        """
        entries = self._sparse.entries
        dense = self._dense[: self._dense_at.size]

        def score(begin: int, end: int) -> np.ndarray:
            sums = np.zeros(self.n_rows)
            total = score_sparse(*entries, begin, end, a, sums)
            sums *= self._scales
            sums[self._dense_at] = dense[:, begin:end] @ a[begin:end]
            return sums - total * self._shifts

        return np.sum(self.over_ranges(score), axis=0)

    @property
    def is_sparse(self) -> bool:
        """Whether no row is kept densely."""
        return not self._dense_at.size

    def totals(self, known: Moments, y: np.ndarray) -> Moments:
        """Return the sums over all samples, if no row is kept densely; each has the same bits whenever it is taken.

        Parameters
        ----------
        known : Moments
            The sums for the first rows.
        y : (n,) array
            Labels.

        Returns
        -------
        Moments
        """
        entries, first_row = self._sparse.entries, known.sums.size

        def sum_range(begin: int, end: int) -> Moments:
            moments = Moments.zeros(self.n_rows)
            moments.add_new(entries, begin, end, first_row, y)
            return moments

        total = known.padded(self.n_rows)
        if self.n_rows > first_row:
            for moments in self.over_ranges(sum_range):
                total.add(moments)
        total.count, total.labels = self.n_samples, float(y.sum())
        return total

    def gram(self, change: np.ndarray, y: np.ndarray, start: Moments | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums over the samples of change_i z_i z_i' and of change_i y_i z_i.

        Parameters
        ----------
        change : (n,) int8 array
            +1 for a sample that enters, -1 for one that leaves, 0 for one that stays as it was.
        y : (n,) array
            Labels.
        start : Moments, optional
            Sums over other samples, to which these are added.

        Returns
        -------
        gram : (d, d) array
        signed : (d,) array
        """
        entries = self._sparse.entries

        def sum_range(begin: int, end: int) -> Moments:
            moments = Moments.zeros(self.n_rows)
            moments.add_sparse(entries, begin, end, change, y)
            if self._dense_at.size:
                moments.add_dense(self._dense, self._dense_at, entries, begin, end, change, y)
            return moments

        total = Moments.zeros(self.n_rows) if start is None else start.padded(self.n_rows)
        for moments in self.over_ranges(sum_range):
            total.add(moments)
        return total.normalised(self._scales, self._shifts)


@cache
def _threads(n_threads: int, pid: int) -> ThreadPoolExecutor:
    """Threads that wait for the next pass, which may take less time than to start them; a fork has none of them."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"gdm-rows-{pid}")


def _checked(rows: Any, means: np.ndarray, norms: np.ndarray, n_samples: int) -> Any:
    """Return the rows as a CSR or numpy array, after a look at all that would spoil the sums."""
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
