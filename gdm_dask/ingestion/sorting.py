"""Kernels that turn sample-major nonzeros into feature rows. Arrays in, arrays out; they release the GIL."""

from __future__ import annotations

import threading

import numpy as np
from numba import njit

#: Digits of at most this many bits: each has a place to write to, and these should stay in the fast caches.
DIGIT_BITS = 10

_buffers = threading.local()


def _buffer(name: str, length: int, dtype: np.dtype) -> np.ndarray:
    """Work space that this thread keeps: touching fresh memory costs more than the sorting itself."""
    held = getattr(_buffers, name, None)
    if held is None or held.nbytes < length * dtype.itemsize:
        held = np.empty(length * dtype.itemsize * 9 // 8, np.uint8)
        setattr(_buffers, name, held)
    return held[: length * dtype.itemsize].view(dtype)


def sort_by_feature(
    features: np.ndarray, samples: np.ndarray, values: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Sort nonzeros by feature; those of one feature keep their order.

    Least-significant-digit radix sort: its cost does not depend on how many features there are, and the order of equal
    keys (the samples) is kept for free.

    Parameters
    ----------
    features, samples : ndarray of shape (k,), uint32
    values : ndarray of shape (k,), or None
        None where all values are 1.

    Returns
    -------
    features : ndarray of shape (u,), uint32
        The distinct features, increasing.
    pointers : ndarray of shape (u + 1,), uint32
        Where the nonzeros of each begin, and the end.
    samples, values : ndarray of shape (k,)
        Sorted. They and the values are work space of this thread, good until its next call.

    Examples
    --------
    >>> f, p, s, v = sort_by_feature(np.array([7, 2, 7], np.uint32), np.array([0, 1, 2], np.uint32), np.array([1., 2., 3.]))
    >>> f.tolist(), p.tolist(), s.tolist(), v.tolist()
    ([2, 7], [0, 1, 3], [1, 0, 2], [2.0, 1.0, 3.0])
    """
    length = len(features)
    bits = max(1, int(features.max(initial=0)).bit_length())
    n_passes = -(-bits // DIGIT_BITS)
    width = -(-bits // n_passes)
    keys = _buffer("keys", length, np.dtype(np.uint64))
    other_keys = _buffer("other_keys", length, np.dtype(np.uint64))
    payload = np.zeros(0, np.uint8) if values is None else values
    moved = _buffer("values", len(payload), payload.dtype)
    other_moved = _buffer("other_values", len(payload), payload.dtype)
    _first_pass(features, samples, payload, keys, moved, width)
    for number in range(1, n_passes):
        _next_pass(keys, moved, other_keys, other_moved, 32 + number * width, width)
        keys, other_keys = other_keys, keys
        moved, other_moved = other_moved, moved
    unique, pointers, samples = _split(keys, other_keys.view(np.uint32)[:length])
    return unique, pointers, samples, None if values is None else moved


@njit(cache=True, nogil=True)
def _first_pass(features, samples, values, out_keys, out_values, width):  # type: ignore[no-untyped-def]
    """Make keys, feature above and sample below, sorted by the lowest digit of the feature."""
    mask = np.uint32((1 << width) - 1)
    starts = np.zeros(mask + 2, np.uint64)
    for feature in features:
        starts[(feature & mask) + 1] += 1
    for digit in range(mask + 1):
        starts[digit + 1] += starts[digit]
    for position in range(np.uint64(len(features))):
        feature = features[position]
        place = starts[feature & mask]
        starts[feature & mask] = place + np.uint64(1)
        out_keys[place] = (np.uint64(feature) << np.uint64(32)) | np.uint64(samples[position])
        if len(values):
            out_values[place] = values[position]


@njit(cache=True, nogil=True)
def _next_pass(keys, values, out_keys, out_values, shift, width):  # type: ignore[no-untyped-def]
    """Sort by the digit of the key at `shift`."""
    mask = np.uint64((1 << width) - 1)
    low = np.uint64(shift)
    starts = np.zeros(mask + 2, np.uint64)
    for key in keys:
        starts[((key >> low) & mask) + np.uint64(1)] += 1
    for digit in range(mask + 1):
        starts[digit + 1] += starts[digit]
    for position in range(np.uint64(len(keys))):
        key = keys[position]
        digit = (key >> low) & mask
        place = starts[digit]
        starts[digit] = place + np.uint64(1)
        out_keys[place] = key
        if len(values):
            out_values[place] = values[position]


@njit(cache=True, nogil=True)
def _split(keys, out_samples):  # type: ignore[no-untyped-def]
    """Distinct features, their pointers, and the samples of sorted keys."""
    n_unique = 0
    for position in range(len(keys)):
        if position == 0 or (keys[position] >> np.uint64(32)) != (keys[position - 1] >> np.uint64(32)):
            n_unique += 1
    unique = np.empty(n_unique, np.uint32)
    pointers = np.empty(n_unique + 1, np.uint32)
    n_unique = 0
    for position in range(len(keys)):
        feature = np.uint32(keys[position] >> np.uint64(32))
        if n_unique == 0 or unique[n_unique - 1] != feature:
            unique[n_unique] = feature
            pointers[n_unique] = position
            n_unique += 1
        out_samples[position] = np.uint32(keys[position])
    pointers[n_unique] = len(keys)
    return unique, pointers, out_samples


@njit(cache=True, nogil=True)
def samples_of(indptr):  # type: ignore[no-untyped-def]
    """Sample of each nonzero of sample-major compressed rows, uint32."""
    out = np.empty(indptr[-1], np.uint32)
    for sample in range(len(indptr) - 1):
        for position in range(indptr[sample], indptr[sample + 1]):
            out[position] = sample
    return out


@njit(cache=True, nogil=True)
def append_run(features, pointers, samples, first_feature, first_sample, cursors, out):  # type: ignore[no-untyped-def]
    """Append a run's samples to the rows of a block at their `cursors`; returns nothing, moves the cursors.

    `pointers` are relative to `samples`. Called once for the samples and, by `append_values`, for the values.
    """
    for k in range(len(features)):
        row = np.int64(features[k]) - first_feature
        place = cursors[row]
        for position in range(np.int64(pointers[k]), np.int64(pointers[k + 1])):
            out[place] = samples[position] + first_sample
            place += 1
        cursors[row] = place


@njit(cache=True, nogil=True)
def append_values(features, pointers, values, first_feature, cursors, out):  # type: ignore[no-untyped-def]
    """Append a run's values to the rows of a block; `cursors` are those from before `append_run`."""
    for k in range(len(features)):
        place = cursors[np.int64(features[k]) - first_feature]
        for position in range(np.int64(pointers[k]), np.int64(pointers[k + 1])):
            out[place] = values[position]
            place += 1


@njit(cache=True, nogil=True)
def rows_increase(indptr, indices):  # type: ignore[no-untyped-def]
    """Whether the samples of every row increase."""
    for row in range(len(indptr) - 1):
        for position in range(np.int64(indptr[row]) + 1, np.int64(indptr[row + 1])):
            if indices[position] <= indices[position - 1]:
                return False
    return True


@njit(cache=True, nogil=True)
def sort_rows(indptr, indices, values):  # type: ignore[no-untyped-def]
    """Sort each row by sample, in place; returns the first row that names a sample twice, or -1."""
    for row in range(len(indptr) - 1):
        start, stop = np.int64(indptr[row]), np.int64(indptr[row + 1])
        order = np.argsort(indices[start:stop], kind="mergesort")
        indices[start:stop] = indices[start:stop][order]
        values[start:stop] = values[start:stop][order]
        for position in range(start + 1, stop):
            if indices[position] == indices[position - 1]:
                return row
    return -1
