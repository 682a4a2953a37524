"""The features that the cuts hold, implicitly normalised, and the products that the master takes with them.

A feature enters every formula as z_j = (f_j - mean_j 1) / norm_j. Rows with many zeros are kept as the sparse
f_j with the scale 1 / norm_j and the shift mean_j / norm_j beside them, since centring would fill them; they take
no more memory than in a store, and where all values are 1, no values are kept. Rows with few zeros are normalised
and kept densely. A row of density p has mean^2 <= p / (1 - p) variance, so the shifts of the
sparse rows never cancel a digit; a row with a mean of 10^6 and a deviation of 1 is dense, hence centred.

Sparse rows lie sample by sample: the vectors over the few features stay in the first cache, and a sample that
is not active costs no more than the look at its weight.

Sums over many samples are taken over ranges that depend on their number only, so that any number of threads
gives the same bits.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from gdm_dask.compiled import compiled
from gdm_dask.master_gram import BLOCK, BySample, Moments

DENSE_FROM = 0.25
"""Share of nonzeros from which a row is kept densely: there, BLAS outruns the sparse kernels."""

RANGE = 65_536
"""Samples that are worth a task of their own."""

MOST_RANGES = 8
"""Each range has a Gram matrix of its own, which bounds their number."""

GROWTH = 4
"""The room for sparse features grows by a quarter of what is needed."""

LEFT_OUT = np.uint32(2**32 - 1)
"""Stands for the place of a row that is not in a subset."""

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
        self._sparse = _BySample(n_samples)
        self._pending: list[sparse.csr_array] = []
        self._dense = np.empty((0, n_samples))
        self._dense_at = np.zeros(0, dtype=np.int64)
        n_ranges = min(MOST_RANGES, max(1, n_samples // RANGE))
        bounds = np.linspace(0, n_samples, n_ranges + 1).astype(np.int64)
        self._ranges = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

    def copy(self) -> Rows:
        """Rows of their own, to which others can be appended."""
        twin = copy.copy(self)
        twin._sparse = copy.deepcopy(self._sparse)
        twin._dense = self._dense[: self._dense_at.size].copy()
        twin._pending = list(self._pending)
        return twin

    def subset(self, chosen: np.ndarray) -> Rows:
        """Some of the rows, given by increasing positions, as rows of their own."""
        part = Rows(self.n_samples)
        part.n_rows = len(chosen)
        part._scales, part._shifts = self._scales[chosen], self._shifts[chosen]
        place = np.full(self.n_rows, LEFT_OUT, np.uint32)
        place[chosen] = np.arange(len(chosen))
        part._sparse.indptr, part._sparse.positions, part._sparse.values = _subset(*self._by_sample(), place)
        kept = np.flatnonzero(place[self._dense_at] != LEFT_OUT)
        part._dense, part._dense_at = self._dense[kept], place[self._dense_at[kept]].astype(np.int64)
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
        """Set the chosen rows aside until the next product."""
        chosen = sparse.csr_array(rows[which])
        # The dense ones among the new features are empty here, so that positions count all features.
        indptr = np.zeros(rows.shape[0] + 1, dtype=np.int64)
        indptr[which + 1] = np.diff(chosen.indptr)
        shape = (rows.shape[0], self.n_samples)
        self._pending.append(sparse.csr_array((chosen.data, chosen.indices, np.cumsum(indptr)), shape=shape))

    def _by_sample(self) -> BySample:
        """Return the sparse rows, with those that were set aside."""
        if self._pending:
            new = self._pending[0] if len(self._pending) == 1 else sparse.vstack(self._pending, format="csr")
            self._sparse.insert(new.T.tocsr(), first=self.n_rows - new.shape[0])
            self._pending = []
        return self._sparse.indptr, self._sparse.positions, self._sparse.values

    def _over_ranges(self, function: Callable[[int, int], Result]) -> list[Result]:
        """Call a function on every range of samples, on as many threads as there are cores."""
        begins, ends = zip(*self._ranges, strict=True)
        n_threads = min(len(self._ranges), os.cpu_count() or 1)
        if n_threads == 1:
            return list(map(function, begins, ends))
        with ThreadPoolExecutor(n_threads) as threads:
            return list(threads.map(function, begins, ends))

    def project(self, weights: np.ndarray, out: np.ndarray) -> None:
        """Write Z' w into `out`: one value for each sample.

        Parameters
        ----------
        weights : (d,) array
        out : (n,) array
        """
        by_sample = self._by_sample()
        dense, dense_weights = self._dense[: self._dense_at.size], weights[self._dense_at]
        used: Any = np.flatnonzero(dense_weights)
        if 2 * used.size > dense_weights.size:
            used = slice(None)  # picking rows costs more than the products with zero
        offset, scaled = weights @ self._shifts, weights * self._scales

        def fill(begin: int, end: int) -> None:
            _project_sparse(*by_sample, begin, end, scaled, offset, out)
            if dense_weights.size:
                for first in range(begin, end, BLOCK):
                    block = slice(first, min(first + BLOCK, end))
                    out[block] += dense_weights[used] @ dense[used, block]

        self._over_ranges(fill)

    def scores(self, a: np.ndarray) -> np.ndarray:
        """Return c = Z a.

        Parameters
        ----------
        a : (n,) array

        Returns
        -------
        (d,) array
        """
        by_sample = self._by_sample()
        dense = self._dense[: self._dense_at.size]

        def score(begin: int, end: int) -> np.ndarray:
            sums = np.zeros(self.n_rows)
            total = _score_sparse(*by_sample, begin, end, a, sums)
            sums *= self._scales
            sums[self._dense_at] = dense[:, begin:end] @ a[begin:end]
            return sums - total * self._shifts

        return np.sum(self._over_ranges(score), axis=0)

    def gram(self, change: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums over the samples of change_i z_i z_i' and of change_i y_i z_i.

        Parameters
        ----------
        change : (n,) int8 array
            +1 for a sample that enters, -1 for one that leaves, 0 for one that stays as it was.
        y : (n,) array
            Labels.

        Returns
        -------
        gram : (d, d) array
        signed : (d,) array
        """
        by_sample = self._by_sample()

        def sum_range(begin: int, end: int) -> Moments:
            moments = Moments.zeros(self.n_rows)
            moments.add_sparse(by_sample, begin, end, change, y)
            if self._dense_at.size:
                moments.add_dense(self._dense, self._dense_at, by_sample, begin, end, change, y)
            return moments

        total, *others = self._over_ranges(sum_range)
        for moments in others:
            total.add(moments)
        return total.normalised(self._scales, self._shifts)


class _BySample:
    """Sparse features, laid sample by sample, with room to grow in place; `values` is None while all of them are 1."""

    def __init__(self, n_samples: int) -> None:
        self.indptr = np.zeros(n_samples + 1, dtype=np.int64)
        self.positions = np.empty(0, dtype=np.uint32)
        self.values: np.ndarray | None = None

    def insert(self, new: sparse.csr_array, first: int) -> None:
        """Add features, given as samples by features, at the positions from `first` on."""
        used, needed = int(self.indptr[-1]), int(self.indptr[-1]) + new.nnz
        room = self.positions.size if needed <= self.positions.size else needed + needed // GROWTH
        self.positions = _enlarged(self.positions, used, room)
        if self.values is not None or not (new.data == 1).all():
            held = np.ones(used, new.dtype) if self.values is None else self.values
            self.values = _enlarged(held, used, room, _value_type(held.dtype, new.dtype))
        values, new_values = (None, None) if self.values is None else (self.values, new.data.astype(self.values.dtype))
        added = new.indptr.astype(np.int64)
        _spread(self.indptr, self.positions, values, added, new.indices.astype(np.uint32), new_values, first)
        self.indptr += added


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


def _enlarged(array: np.ndarray, used: int, room: int, dtype: np.dtype | None = None) -> np.ndarray:
    """The array with that much room; its used part is copied where it has less, or another type."""
    dtype = dtype or array.dtype
    if array.size == room and array.dtype == dtype:
        return array
    larger = np.empty(room, dtype)
    larger[:used] = array[:used]
    return larger


def _value_type(*types: np.dtype) -> np.dtype:
    """float32 where that holds all values of these types exactly, else float64."""
    return np.dtype(np.float32 if np.result_type(np.float32, *types) == np.float32 else np.float64)


# The kernels. Unsigned positions spare them the check for negative ones, which costs half of their speed.


@compiled
def _spread(indptr, positions, values, added, new_positions, new_values, first):  # type: ignore[no-untyped-def]
    """Move every sample's entries to their new place, last sample first, and put the new ones behind them."""
    for i in range(indptr.size - 2, -1, -1):
        shift = added[i]
        for p in range(indptr[i + 1] - 1, indptr[i] - 1, -1):
            positions[p + shift] = positions[p]
            if values is not None:
                values[p + shift] = values[p]
        for q in range(added[i], added[i + 1]):
            positions[indptr[i + 1] + q] = first + new_positions[q]
            if values is not None:
                values[indptr[i + 1] + q] = new_values[q]


@compiled
def _subset(indptr, positions, values, place):  # type: ignore[no-untyped-def]
    """Entries of the features that have a place, at that place."""
    found = np.zeros_like(indptr)
    for i in range(indptr.size - 1):
        found[i + 1] = found[i]
        for p in range(indptr[i], indptr[i + 1]):
            found[i + 1] += place[positions[p]] != LEFT_OUT
    new_positions = np.empty(found[-1], np.uint32)
    new_values = None if values is None else np.empty(found[-1], values.dtype)
    q = 0
    for p in range(indptr[-1]):
        if place[positions[p]] != LEFT_OUT:
            new_positions[q] = place[positions[p]]
            if values is not None:
                new_values[q] = values[p]
            q += 1
    return found, new_positions, new_values


@compiled
def _project_sparse(indptr, positions, values, begin, end, weights, offset, out):  # type: ignore[no-untyped-def]
    for i in range(begin, end):
        total = -offset
        for p in range(indptr[i], indptr[i + 1]):
            if values is None:
                total += weights[positions[p]]
            else:
                total += values[p] * weights[positions[p]]
        out[i] = total


@compiled
def _score_sparse(indptr, positions, values, begin, end, a, sums):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(begin, end):
        if a[i] != 0.0:
            total += a[i]
            for p in range(indptr[i], indptr[i + 1]):
                if values is None:
                    sums[positions[p]] += a[i]
                else:
                    sums[positions[p]] += values[p] * a[i]
    return total
