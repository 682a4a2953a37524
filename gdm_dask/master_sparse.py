"""Sparse features of the master problem: feature by feature, in spans of samples that stay in the second cache.

A product runs through the entries of one feature after another within a span. Entries that lie sample by sample would
come in runs of a few, whose ends no processor foresees: the same products took five times as long.

Only the Gram matrix needs the entries of one sample together. It collects them span by span, and takes samples with as
many entries one after another, for the same reason.
"""

from __future__ import annotations

import copy
from typing import TypeAlias

import numpy as np
from scipy import sparse

from gdm_dask.compiled import compiled
from gdm_dask.work_space import page_aligned

SPAN = 16_384
"""Samples of a span; a place within it takes 16 bits."""

LANES = 8
"""Features whose products with another one are taken at a time."""

RARE = 8
"""Where fewer samples than one in so many change, their entries are picked out first."""

GROWTH = 4
"""The room for sparse features grows by a quarter of what is needed."""

Entries: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Where the entries of each feature begin in each span and end in the last, the places of all entries within their
spans, and their values; no values where all are 1."""


class SparseRows:
    """Sparse features with room to grow in place; no values are kept while all of them are 1.

    Parameters
    ----------
    n_samples : int

    Examples
    --------
    >>> rows = SparseRows(3)
    >>> rows.append(sparse.csr_array(np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])))
    >>> [part if part is None else part.tolist() for part in rows.entries]
    [[[0, 2], [2, 3]], [1, 2, 0], None]
    """

    def __init__(self, n_samples: int) -> None:
        self._bounds = np.zeros((0, -(-n_samples // SPAN) + 1), dtype=np.int64)
        self._places = np.empty(0, dtype=np.uint16)
        self._values: np.ndarray | None = None

    @property
    def entries(self) -> Entries:
        """All features, for the kernels."""
        return self._bounds, self._places, self._values

    def subset(self, chosen: np.ndarray) -> SparseRows:
        """Some of the features; their entries stay where they are."""
        part = copy.copy(self)
        part._bounds = self._bounds[chosen]
        return part

    def append(self, new: sparse.csr_array) -> None:
        """Add features; their samples are sorted."""
        used = int(self._bounds[-1, -1]) if len(self._bounds) else 0
        needed = used + new.nnz
        room = self._places.size if needed <= self._places.size else needed + needed // GROWTH
        self._places = _enlarged(self._places, used, room)
        if self._values is not None or not (new.data == 1).all():
            held = np.ones(used, new.dtype) if self._values is None else self._values
            self._values = _enlarged(held, used, room, _value_type(held.dtype, new.dtype))
            self._values[used:needed] = new.data
        np.bitwise_and(new.indices, SPAN - 1, out=self._places[used:needed], casting="unsafe")
        bounds = np.empty((new.shape[0], self._bounds.shape[1]), dtype=np.int64)
        _find_bounds(new.indptr, new.indices, used, bounds)
        self._bounds = np.concatenate([self._bounds, bounds])


def _enlarged(array: np.ndarray, used: int, room: int, dtype: np.dtype | None = None) -> np.ndarray:
    """The array with that much room; its used part is copied where it has less, or another type."""
    dtype = dtype or array.dtype
    if array.size == room and array.dtype == dtype:
        return array
    larger = page_aligned(room * dtype.itemsize).view(dtype)
    larger[:used] = array[:used]
    return larger


def _value_type(*types: np.dtype) -> np.dtype:
    """float32 where that holds all values of these types exactly, else float64."""
    return np.dtype(np.float32 if np.result_type(np.float32, *types) == np.float32 else np.float64)


# The kernels work on the spans that make up the samples from `begin` to `end`; `begin` is where a span begins. Unsigned
# places spare them the check for negative ones.


@compiled
def _find_bounds(indptr, indices, used, bounds):  # type: ignore[no-untyped-def]
    for j in range(bounds.shape[0]):
        p = indptr[j]
        for span in range(bounds.shape[1] - 1):
            while p < indptr[j + 1] and indices[p] < span * SPAN:
                p += 1
            bounds[j, span] = used + p
        bounds[j, -1] = used + indptr[j + 1]


@compiled
def project_sparse(bounds, places, values, begin, end, weights, offset, y, out):  # type: ignore[no-untyped-def]
    """Write the weighted sum of the features less `offset`, times the labels if they are given."""
    for first in range(begin, end, SPAN):
        span, part = first // SPAN, out[first : min(first + SPAN, end)]
        part[:] = -offset
        for j in range(weights.size):
            weight = weights[j]
            if weight != 0.0:
                for p in range(bounds[j, span], bounds[j, span + 1]):
                    part[places[p]] += weight if values is None else weight * values[p]
        if y is not None:
            part *= y[first : first + part.size]


@compiled
def score_sparse(bounds, places, values, begin, end, a, sums):  # type: ignore[no-untyped-def]
    """Add the products of the features with `a` to `sums`; return the sum of `a`."""
    total = 0.0
    for first in range(begin, end, SPAN):
        part = a[first : min(first + SPAN, end)]
        total += part.sum()
        _score_span(bounds, places, values, first // SPAN, part, sums)
    return total


@compiled
def _score_span(bounds, places, values, span, part, sums):  # type: ignore[no-untyped-def]
    """Add the products of the features with `part` within a span.

    Four sums at a time keep the processor busy. They are written out: left to the compiler (fastmath), their order
    would depend on whether it has the code of this kernel at hand, or its result from an earlier process.
    """
    for j in range(sums.size):
        begin, end = bounds[j, span], bounds[j, span + 1]
        whole = end - (end - begin) % 4
        one = two = three = four = 0.0
        for p in range(begin, whole, 4):
            if values is None:
                one += part[places[p]]
                two += part[places[p + 1]]
                three += part[places[p + 2]]
                four += part[places[p + 3]]
            else:
                one += part[places[p]] * values[p]
                two += part[places[p + 1]] * values[p + 1]
                three += part[places[p + 2]] * values[p + 2]
                four += part[places[p + 3]] * values[p + 3]
        for p in range(whole, end):
            one += part[places[p]] if values is None else part[places[p]] * values[p]
        sums[j] += (one + two) + (three + four)


@compiled
def cross_sparse(bounds, places, values, begin, end, change, row, sums):  # type: ignore[no-untyped-def]
    """Add the products of the features with a dense row, times `change`, to `sums`."""
    part = np.empty(SPAN)
    for first in range(begin, end, SPAN):
        for i in range(first, min(first + SPAN, end)):
            part[i - first] = change[i] * row[i]
        _score_span(bounds, places, values, first // SPAN, part, sums)


@compiled
def total_sparse(bounds, places, values, begin, end, y, sums, signed):  # type: ignore[no-untyped-def]
    """Add the features to `sums`, and times the label to `signed`."""
    ones = np.ones(SPAN)
    for first in range(begin, end, SPAN):
        _score_span(bounds, places, values, first // SPAN, ones, sums)
        _score_span(bounds, places, values, first // SPAN, y[first : min(first + SPAN, end)], signed)


@compiled
def pair_sparse(bounds, places, values, begin, end, first_row, gram):  # type: ignore[no-untyped-def]
    """Add the products of the features from `first_row` on with those up to them to the lower `gram`.

    Each product is summed up span by span, in the order of the samples, whatever other features there are.
    """
    laid = np.zeros((SPAN, LANES))
    for first in range(begin, end, SPAN):
        span = first // SPAN
        for group in range(first_row, bounds.shape[0], LANES):
            last = min(group + LANES, bounds.shape[0])
            for j in range(group, last):
                _lay(bounds, places, values, span, j, 1.0, laid[:, j - group])
            for k in range(last):
                _add_lanes(bounds, places, values, span, k, laid, gram[max(group, k) : last, k], max(k - group, 0))
            for j in range(group, last):
                _lay(bounds, places, values, span, j, 0.0, laid[:, j - group])


@compiled
def _lay(bounds, places, values, span, j, factor, out):  # type: ignore[no-untyped-def]
    """Write a feature's values times a factor, 0 or 1, to their samples."""
    for p in range(bounds[j, span], bounds[j, span + 1]):
        out[places[p]] = factor if values is None else factor * values[p]


@compiled
def _add_lanes(bounds, places, values, span, k, laid, out, skipped):  # type: ignore[no-untyped-def]
    """Add the products of feature k with those that are laid out, but for the first few."""
    totals = np.zeros(LANES)
    for p in range(bounds[k, span], bounds[k, span + 1]):
        row, value = laid[places[p]], 1.0 if values is None else np.float64(values[p])
        for lane in range(LANES):
            totals[lane] += row[lane] * value
    for at in range(out.size):
        out[at] += totals[skipped + at]


@compiled
def gram_sparse(bounds, places, values, begin, end, change, y, gram, sums, signed):  # type: ignore[no-untyped-def]
    """Add the features times `change` to `sums`, times the label too to `signed`, their products to the lower `gram`.

    Returns the sum of `change`, and that of `change` times the label.
    """
    room = _most_entries(bounds, begin, end)
    some_bounds, some_places = np.empty((bounds.shape[0], 2), np.int64), np.empty(room, np.uint16)
    some_values = None if values is None else np.empty(room, values.dtype)
    features, held = np.empty(room + 1, np.uint32), None if values is None else np.empty(room + 1)
    cursors, weights = np.empty(SPAN, np.uint32), np.empty(SPAN + 1)
    sizes = np.empty(bounds.shape[0] + 1, np.int64)
    count, labels = 0, 0.0
    for first in range(begin, end, SPAN):
        part = change[first : min(first + SPAN, end)]
        n_changed = np.count_nonzero(part)
        if n_changed == 0:
            continue
        span = first // SPAN
        labelled = part * y[first : first + part.size]
        count += part.sum()
        labels += labelled.sum()
        if RARE * n_changed < part.size:
            _pick(bounds, places, values, span, part, some_bounds, some_places, some_values)
            _score_span(some_bounds, some_places, some_values, 0, part, sums)
            _score_span(some_bounds, some_places, some_values, 0, labelled, signed)
            _sort_by_size(some_bounds, some_places, 0, part, cursors, sizes, weights)
            _collect(some_bounds, some_places, some_values, 0, part, cursors, features, held)
        else:
            _score_span(bounds, places, values, span, part, sums)
            _score_span(bounds, places, values, span, labelled, signed)
            _sort_by_size(bounds, places, span, part, cursors, sizes, weights)
            _collect(bounds, places, values, span, part, cursors, features, held)
        _add_products(sizes, weights, features, held, gram)
    return count, labels


@compiled
def _pick(bounds, places, values, span, change, some_bounds, some_places, some_values):  # type: ignore[no-untyped-def]
    """Copy the entries of the samples that change, which are few."""
    at = 0
    for j in range(bounds.shape[0]):
        some_bounds[j, 0] = at
        for p in range(bounds[j, span], bounds[j, span + 1]):
            if change[places[p]] != 0:
                some_places[at] = places[p]
                if values is not None:
                    some_values[at] = values[p]
                at += 1
        some_bounds[j, 1] = at


@compiled
def _most_entries(bounds, begin, end):  # type: ignore[no-untyped-def]
    most = 0
    for first in range(begin, end, SPAN):
        span = first // SPAN
        most = max(most, (bounds[:, span + 1] - bounds[:, span]).sum())
    return most


@compiled
def _sort_by_size(bounds, places, span, change, cursors, sizes, weights):  # type: ignore[no-untyped-def]
    """Find the place for the first entry of each sample that changes, in the order of their numbers of entries.

    Writes how many samples have each number, and their changes in that order. Samples that do not change share the
    place behind all others.
    """
    cursors[: change.size] = 0
    for j in range(bounds.shape[0]):
        for p in range(bounds[j, span], bounds[j, span + 1]):
            cursors[places[p]] += 1
    sizes[:] = 0
    for i in range(change.size):
        sizes[cursors[i] if change[i] != 0 else 0] += 1
    slots, starts = np.empty_like(sizes), np.empty_like(sizes)
    slot, start = 0, 0
    for size in range(1, sizes.size):
        slots[size], starts[size] = slot, start
        slot += sizes[size]
        start += sizes[size] * size
    slots[0], starts[0] = change.size, start
    for i in range(change.size):
        size = cursors[i] if change[i] != 0 else 0
        cursors[i] = starts[size]
        weights[slots[size]] = change[i]
        starts[size] += size
        slots[size] += size > 0


@compiled
def _collect(bounds, places, values, span, change, cursors, features, held):  # type: ignore[no-untyped-def]
    """Put the entries of each sample that changes together, by feature."""
    for j in range(bounds.shape[0]):
        for p in range(bounds[j, span], bounds[j, span + 1]):
            i = places[p]
            at = cursors[i]
            features[at] = j
            if values is not None:
                held[at] = values[p]
            cursors[i] = at + (change[i] != 0)


@compiled
def _add_products(sizes, weights, features, held, gram):  # type: ignore[no-untyped-def]
    """Add the products of each sample's entries, for one number of entries after another."""
    slot, start = 0, 0
    for size in range(1, sizes.size):
        for _ in range(sizes[size]):
            for p in range(start, start + size):
                value = weights[slot] if held is None else weights[slot] * held[p]
                row = gram[features[p]]
                for q in range(start, p + 1):
                    row[features[q]] += value if held is None else value * held[q]
            slot += 1
            start += size
