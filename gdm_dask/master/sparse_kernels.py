"""Sparse features of the master problem: feature by feature, in spans of samples that fit into the L2 cache.

Within a span, a product runs through the entries of one feature after another. Entries stored sample by sample would
form short runs whose ends the processor cannot predict: the same products took five times as long.

Only the Gram matrix needs the entries of a sample together. It collects them span by span, and groups samples by their
number of entries, for the same reason.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from gdm_dask.system.jit import kernel
from gdm_dask.system.scratch import page_aligned

SPAN = 16_384
"""Samples of a span; a position within it takes 16 bits."""

RARE = 8
"""If fewer than one in this many samples change, their entries are extracted first."""

GROWTH = 4
"""The space for sparse features grows by a quarter of the space needed."""

Entries: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Start of the entries of each feature in each span, and their end in the last; positions of all entries within their
spans; and their values, or None if all are 1."""

Changed: TypeAlias = tuple[slice | np.ndarray, np.ndarray, tuple[Any, ...]]
"""Samples, their change times their weights, and the entries at these samples, with the number of their span."""


class SparseRows:
    """Sparse features with space to grow in place; no values are kept while all of them are 1.

    Parameters
    ----------
    n_samples : int

    Examples
    --------
    >>> rows = SparseRows(3)
    >>> rows.append(np.array([2, 1]), np.array([1, 2, 0]), np.ones(3))
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
        """Return some of the features; their entries are shared."""
        part = copy.copy(self)
        part._bounds = self._bounds[chosen]
        return part

    def append(self, counts: np.ndarray, samples: np.ndarray, values: np.ndarray) -> None:
        """Append features with these numbers of entries, whose samples must increase within each feature."""
        used = int(self._bounds[-1, -1]) if len(self._bounds) else 0
        needed = used + samples.size
        room = self._places.size if needed <= self._places.size else needed + needed // GROWTH
        self._places = _enlarged(self._places, used, room)
        if self._values is not None or not (values == 1).all():
            held = np.ones(used, values.dtype) if self._values is None else self._values
            self._values = _enlarged(held, used, room, _value_type(held.dtype, values.dtype))
            self._values[used:needed] = values
        np.bitwise_and(samples, SPAN - 1, out=self._places[used:needed], casting="unsafe")
        bounds = np.empty((counts.size, self._bounds.shape[1]), dtype=np.int64)
        starts = (SPAN * np.arange(bounds.shape[1] - 1)).astype(samples.dtype)  # another type would copy the samples
        ends = np.cumsum(counts)
        for row, begin, end in zip(bounds, (ends - counts).tolist(), ends.tolist(), strict=True):
            row[:-1] = used + begin + np.searchsorted(samples[begin:end], starts)
            row[-1] = used + end
        self._bounds = np.concatenate([self._bounds, bounds])


def _enlarged(array: np.ndarray, used: int, room: int, dtype: np.dtype | None = None) -> np.ndarray:
    """Return the array with this much room; its used part is copied if it has less room or another type."""
    dtype = dtype or array.dtype
    if array.size == room and array.dtype == dtype:
        return array
    larger = page_aligned(room * dtype.itemsize).view(dtype)
    larger[:used] = array[:used]
    return larger


def _value_type(*types: np.dtype) -> np.dtype:
    """Return float32 if it holds all values of these types exactly, else float64."""
    return np.dtype(np.float32 if np.result_type(np.float32, *types) == np.float32 else np.float64)


# The kernels work within one span and allocate nothing. Unsigned positions avoid the check for negative ones.


def spans(begin: int, end: int) -> Iterator[tuple[int, slice]]:
    """Yield the spans of the samples from `begin`, the start of a span, to `end`, with their samples."""
    for first in range(begin, end, SPAN):
        yield first // SPAN, slice(first, min(first + SPAN, end))


@kernel
def project_span(bounds, places, values, span, weights, out):  # type: ignore[no-untyped-def]
    """Add the weighted sum of the features to `out`."""
    for j in range(weights.size):
        weight = weights[j]
        if weight != 0.0:
            for p in range(bounds[j, span], bounds[j, span + 1]):
                out[places[p]] += weight if values is None else weight * values[p]


@kernel
def project_range(bounds, places, values, begin, end, weights, offset, out):  # type: ignore[no-untyped-def]
    """Write the weighted sum of the features, minus the offset, to `out` at the samples from `begin` to `end`."""
    for first in range(begin, end, SPAN):
        part = out[first : min(first + SPAN, end)]
        for i in range(part.size):
            part[i] = -offset
        project_span(bounds, places, values, first // SPAN, weights, part)


@kernel
def score_range(bounds, places, values, begin, end, row, sums):  # type: ignore[no-untyped-def]
    """Add the products of the features with `row` from `begin` to `end` to `sums`; return the sum of `row` there."""
    total = 0.0
    for first in range(begin, end, SPAN):
        part = row[first : min(first + SPAN, end)]
        total += sum_span(part)
        score_span(bounds, places, values, first // SPAN, part, sums)
    return total


@kernel
def score_span(bounds, places, values, span, part, sums):  # type: ignore[no-untyped-def]
    """Add the products of the features with `part` to `sums`.

    Four separate sums keep the processor busy. They are written out: with fastmath, their order would depend on whether
    the compiler inlines this kernel or loads it from the cache of an earlier process.
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


@kernel
def sum_span(part):  # type: ignore[no-untyped-def]
    """Return the sum of `part`, added up as in `score_span`."""
    whole = part.size - part.size % 4
    one = two = three = four = 0.0
    for i in range(0, whole, 4):
        one += part[i]
        two += part[i + 1]
        three += part[i + 2]
        four += part[i + 3]
    for i in range(whole, part.size):
        one += part[i]
    return (one + two) + (three + four)


@kernel
def cross_span(bounds, places, values, span, part, by_sample, out):  # type: ignore[no-untyped-def]
    """Add the products of the features with dense ones, at the samples where `part` is nonzero and times it."""
    for j in range(out.shape[0]):
        for p in range(bounds[j, span], bounds[j, span + 1]):
            change = part[places[p]]
            if change != 0.0:
                product = change if values is None else change * values[p]
                for k in range(out.shape[1]):
                    out[j, k] += product * by_sample[places[p], k]


@kernel
def normalise(gram, scales, shifts, scaled, sums, means, out):  # type: ignore[no-untyped-def]
    """Write the Gram matrix of normalised features, centred on `means`, given the lower `gram` as stored.

    The sums of the features are given scaled, and scaled and shifted.
    """
    for i in range(len(gram)):
        for j in range(i + 1):
            product = gram[i, j] * (scales[i] * scales[j]) - scaled[i] * shifts[j] - shifts[i] * sums[j]
            out[i, j] = out[j, i] = product - sums[i] * means[j]


def weighted(change: np.ndarray, w: np.ndarray | None, samples: slice | np.ndarray) -> np.ndarray:
    """Return the change of some samples times their weights."""
    return change[samples].astype(np.float64) if w is None else change[samples] * w[samples]


def add_gram(
    rows: Entries, begin: int, end: int, change: np.ndarray, w: np.ndarray | None, gram: np.ndarray, sums: np.ndarray,
    also: Callable[[Changed], None] | None = None,
) -> None:  # fmt: skip
    """Add the features times `change` to `sums`, and their products to `gram`; call `also` with each changed span.

    All samples of a span are summed, or only those that change if they are few.
    """
    bounds, places, values = rows
    room = _most_entries(bounds, begin, end)
    some_bounds, some_places = np.empty((len(bounds), 2), np.int64), np.empty(room, np.uint16)
    some_values = None if values is None else np.empty(room, values.dtype)
    changed, numbers, parts = np.empty(SPAN, np.int64), np.empty(SPAN, np.uint16), np.empty(SPAN)
    features, held = np.empty(room + 1, np.uint32), None if values is None else np.empty(room + 1)
    cursors, weights = np.empty(SPAN, np.uint32), np.empty(SPAN + 1)
    sizes = np.empty((3, len(bounds) + 1), np.int64)
    for span, samples in spans(begin, end):
        n_changed = _find_changed(change, w, samples.start, samples.stop, changed, numbers, parts)
        if not n_changed:
            continue
        if RARE * n_changed >= samples.stop - samples.start:
            seen: Changed = samples, parts[: samples.stop - samples.start], (bounds, places, values, span)
        else:
            _pick(bounds, places, values, span, numbers, some_bounds, some_places, some_values)
            seen = changed[:n_changed], parts[:n_changed], (some_bounds, some_places, some_values, 0)
        _, part, entries = seen
        score_span(*entries, part, sums)
        _gram_span(*entries, part, cursors, sizes, weights, features, held, gram)
        if also is not None:
            also(seen)


@kernel
def _most_entries(bounds, begin, end):  # type: ignore[no-untyped-def]
    """Return the largest number of entries in a span."""
    most = 0
    for span in range(begin // SPAN, -(-end // SPAN)):
        total = 0
        for j in range(bounds.shape[0]):
            total += bounds[j, span + 1] - bounds[j, span]
        most = max(most, total)
    return most


@kernel
def _find_changed(change, w, begin, end, changed, numbers, part):  # type: ignore[no-untyped-def]
    """Find the samples of a span that change, give them numbers from 1 on, and return how many there are.

    `part` receives the change times the weight of these samples; of all samples of the span unless they are few.
    """
    n_changed = 0
    for i in range(begin, end):
        numbers[i - begin] = 0
        if change[i] != 0:
            changed[n_changed] = i
            n_changed += 1
            numbers[i - begin] = n_changed
    if RARE * n_changed >= end - begin:
        for i in range(begin, end):
            part[i - begin] = change[i] if w is None else change[i] * w[i]
    else:
        for k in range(n_changed):
            i = changed[k]
            part[k] = change[i] if w is None else change[i] * w[i]
    return n_changed


@kernel
def _pick(bounds, places, values, span, numbers, some_bounds, some_places, some_values):  # type: ignore[no-untyped-def]
    """Copy the entries of the samples that have a number, from 1 on."""
    at = 0
    for j in range(bounds.shape[0]):
        some_bounds[j, 0] = at
        for p in range(bounds[j, span], bounds[j, span + 1]):
            number = numbers[places[p]]
            if number != 0:
                some_places[at] = number - 1
                if values is not None:
                    some_values[at] = values[p]
                at += 1
        some_bounds[j, 1] = at


@kernel
def _gram_span(bounds, places, values, span, change, cursors, sizes, weights, features, held, gram):  # type: ignore[no-untyped-def]
    """Add the products of the entries of each sample, times its change, to the lower `gram`.

    The entries of the samples that change are collected by feature, with samples grouped by their number of entries.
    Samples that do not change share the position after all others.
    """
    n_rows = bounds.shape[0]
    for i in range(change.size):
        cursors[i] = 0
    for j in range(n_rows):
        for p in range(bounds[j, span], bounds[j, span + 1]):
            cursors[places[p]] += 1
    for size in range(n_rows + 1):
        sizes[0, size] = 0
    for i in range(change.size):
        sizes[0, cursors[i] if change[i] != 0 else 0] += 1
    slot = start = 0
    for size in range(1, n_rows + 1):  # for each size, the position of its first sample and of its first entry
        sizes[1, size], sizes[2, size] = slot, start
        slot += sizes[0, size]
        start += sizes[0, size] * size
    sizes[1, 0], sizes[2, 0] = change.size, start
    for i in range(change.size):
        size = cursors[i] if change[i] != 0 else 0
        cursors[i] = sizes[2, size]
        weights[sizes[1, size]] = change[i]
        sizes[2, size] += size
        sizes[1, size] += size > 0
    for j in range(n_rows):
        for p in range(bounds[j, span], bounds[j, span + 1]):
            i = places[p]
            at = cursors[i]
            features[at] = j
            if values is not None:
                held[at] = values[p]
            cursors[i] = at + (change[i] != 0)
    slot = start = 0
    for size in range(1, n_rows + 1):
        for _ in range(sizes[0, size]):
            for p in range(start, start + size):
                value = weights[slot] if held is None else weights[slot] * held[p]
                row = gram[features[p]]
                for q in range(start, p + 1):
                    row[features[q]] += value if held is None else value * held[q]
            slot += 1
            start += size
