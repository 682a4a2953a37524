"""Kernels that convert sample-major nonzeros to feature rows. Arrays in, arrays out; they release the GIL."""

# numba types the kernels:
# mypy: allow-untyped-defs, no-check-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gdm_dask.system.jit import allocating, inner, kernel
from gdm_dask.system.scratch import work_space

#: The first pass distributes the nonzeros over at most 2**TOP_BITS buckets, small enough for the caches.
TOP_BITS = 11
#: Widest digit used to sort a bucket.
DIGIT_BITS = 11
#: Buckets up to this length use an insertion sort: clearing the counters would take longer.
SHORT = np.uint64(64)

_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_NONE = np.zeros(0, np.uint32)


def sort_by_feature(
    features: np.ndarray, samples: np.ndarray, values: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Sort nonzeros by feature; the nonzeros of a feature keep their order.

    This is a radix sort: one pass distributes the nonzeros over buckets by the highest digit of the feature, then each
    bucket is sorted by the lower digits while it is in the caches. The cost hardly depends on the number of features.
    The pass moves compact keys: the lower digits of the feature, the sample, and the value if it has 32 bits and fits.

    Returns the distinct features, increasing; the start of the nonzeros of each, and the end; the sorted samples in the
    narrowest type; and the sorted values, None if all are 1. All are work space of this thread until the next call.

    Examples
    --------
    >>> features, samples = np.array([7, 2, 7], np.uint32), np.array([0, 1, 2], np.uint32)
    >>> [array.tolist() for array in sort_by_feature(features, samples, np.array([1.0, 2.0, 3.0]))]
    [[2, 7], [0, 1, 3], [1, 0, 2], [2.0, 1.0, 3.0]]
    """
    length, largest = len(features), int(features.max(initial=0))
    key = _key(largest, int(samples.max(initial=0)), values)
    given = _NONE if values is None else values
    inside, beside = (given.view(np.uint32), _NONE) if key.value_bits else (_NONE, given)
    twice = key.n_passes > 1  # then the keys are moved back and forth
    keys, other_keys = (work_space(f"keys {k}", length if k == 0 or twice else 0, key.dtype) for k in (0, 1))
    moved, other_moved = (
        work_space(f"values {k}", len(beside) if k == 0 or twice else 0, beside.dtype) for k in (0, 1)
    )
    ends = np.zeros((largest >> key.low_bits) + 2, np.uint64)
    _deal(features, samples, inside, beside, np.uint64(key.low_bits), np.uint64(key.sample_bits), ends, keys, moved)
    unique = work_space("features", length, np.uint32)
    pointers = work_space("pointers", length + 1, np.uint32)
    out_samples = work_space("samples", length, np.uint16 if key.sample_bits <= 16 else np.uint32)
    out = work_space("values 2", len(given), given.dtype)
    width = key.low_bits // key.n_passes
    n_unique = _sort_buckets(
        ends[:-1], keys, moved, other_keys if twice else None, other_moved, key.n_passes, np.uint64(width),
        np.uint64(key.value_bits), np.uint64(key.sample_bits), np.empty(1 << width, np.uint32), unique, pointers,
        out_samples, *((out.view(np.uint32), _NONE) if key.value_bits else (_NONE, out)),
    )  # fmt: skip
    pointers[n_unique] = length
    return unique[:n_unique], pointers[: n_unique + 1], out_samples, None if values is None else out


class _Key(NamedTuple):
    """Layout of the sort keys: the bits of each field, and the number of digits of the feature field."""

    low_bits: int
    sample_bits: int
    value_bits: int
    n_passes: int

    @property
    def dtype(self) -> type:
        """Narrowest type that holds a key."""
        return np.uint32 if self.low_bits + self.sample_bits + self.value_bits <= 32 else np.uint64


def _key(largest: int, last_sample: int, values: np.ndarray | None) -> _Key:
    """Return the key layout for features and samples up to these."""
    low_bits, sample_bits = max(1, largest.bit_length() - TOP_BITS), last_sample.bit_length()
    n_passes = -(-low_bits // DIGIT_BITS)
    low_bits = -(-low_bits // n_passes) * n_passes
    has_room = values is not None and values.itemsize == 4 and low_bits + sample_bits <= 32
    return _Key(low_bits, sample_bits, 32 if has_room else 0, n_passes)


@kernel
def _deal(features, samples, inside, beside, low_bits, sample_bits, ends, out_keys, out_values):
    """Distribute keys over buckets of equal ``feature >> low_bits``; set `ends`.

    A key consists of the rest of the feature, the sample and, if there are values `inside`, 32 bits of value.
    """
    low = np.uint32(low_bits)
    rest = (_1 << low_bits) - _1
    for feature in features:
        ends[np.uint64(feature >> low) + _1] += _1
    for bucket in range(len(ends) - 1):
        ends[bucket + 1] += ends[bucket]
    is_inside, is_beside = len(inside) > 0, len(beside) > 0
    position, length = _0, np.uint64(len(features))
    while position < length:
        bucket = features[position] >> low
        place = ends[bucket]
        while position < length and features[position] >> low == bucket:  # often many consecutive features of a sample
            key = (np.uint64(features[position]) & rest) << sample_bits | np.uint64(samples[position])
            if is_inside:
                key = key << _32 | np.uint64(inside[position])
            out_keys[place] = key
            if is_beside:
                out_values[place] = beside[position]
            place += _1
            position += _1
        ends[bucket] = place


@kernel
def _sort_buckets(
    ends, keys, values, other_keys, other_values, n_passes, width, value_bits, sample_bits, counts, unique, pointers,
    out_samples, out_inside, out_values,
):  # fmt: skip
    """Sort each bucket by feature and split its keys; return the number of distinct features.

    The lowest `value_bits` of a key hold the value, the next bits the sample. If the features of a bucket differ in one
    digit only, there are no `other_keys`, and each key is moved directly to its place.
    """
    below = value_bits + sample_bits
    n_unique = begin = first = _0
    for end in ends:
        is_sorted = True
        if end - begin <= SHORT:
            _insertion_sort(keys, values, begin, end, below)
        elif other_keys is None:
            n_unique = _count_sort(
                keys, values, begin, end, first, value_bits, sample_bits, counts, unique, pointers, n_unique,
                out_samples, out_inside, out_values,
            )  # fmt: skip
            is_sorted = False
        else:
            _radix_sort(keys, values, other_keys, other_values, begin, end, below, n_passes, width, counts)
        if is_sorted:
            n_unique = _split(
                keys, values, begin, end, first, value_bits, sample_bits, unique, pointers, n_unique, out_samples,
                out_inside, out_values,
            )  # fmt: skip
        begin = end
        first += _1 << np.uint64(n_passes) * width
    return n_unique


@inner
def _count_sort(
    keys, values, begin, end, first, value_bits, sample_bits, counts, unique, pointers, n_unique, out_samples,
    out_inside, out_values,
):  # fmt: skip
    """Sort a bucket whose features differ in one digit only, moving each key directly to its place."""
    below, sample = value_bits + sample_bits, (_1 << sample_bits) - _1
    for digit in range(len(counts)):
        counts[digit] = 0
    for position in range(begin, end):
        counts[np.uint64(keys[position]) >> below] += np.uint32(1)
    place = begin
    for digit in range(np.uint64(len(counts))):
        count = counts[digit]
        if count:
            unique[n_unique] = first | digit
            pointers[n_unique] = place
            n_unique += _1
            counts[digit] = place
            place += np.uint64(count)
    is_inside, is_beside = value_bits > _0, len(values) > 0
    for position in range(begin, end):
        key = np.uint64(keys[position])
        digit = key >> below
        place = np.uint64(counts[digit])
        counts[digit] = place + _1
        out_samples[place] = key >> value_bits & sample
        if is_inside:
            out_inside[place] = np.uint32(key)
        if is_beside:
            out_values[place] = values[position]
    return n_unique


@inner
def _radix_sort(keys, values, other_keys, other_values, begin, end, below, n_passes, width, counts):
    """Sort a bucket digit by digit, between two arrays."""
    for number in range(n_passes):
        low = below + np.uint64(number) * width
        if number % 2:
            _radix_pass(other_keys, other_values, begin, end, low, counts, keys, values)
        else:
            _radix_pass(keys, values, begin, end, low, counts, other_keys, other_values)
    if n_passes % 2:
        for position in range(begin, end):
            keys[position] = other_keys[position]
            if len(values):
                values[position] = other_values[position]


@inner
def _radix_pass(keys, values, begin, end, low, counts, out_keys, out_values):
    """Sort a bucket by the digit of the keys that begins at bit `low`; equal digits keep their order."""
    mask = np.uint64(len(counts) - 1)
    for digit in range(len(counts)):
        counts[digit] = 0
    for position in range(begin, end):
        counts[np.uint64(keys[position]) >> low & mask] += np.uint32(1)
    place = begin
    for digit in range(len(counts)):
        count = counts[digit]
        counts[digit] = place
        place += np.uint64(count)
    has_values = len(values) > 0
    for position in range(begin, end):
        digit = np.uint64(keys[position]) >> low & mask
        place = np.uint64(counts[digit])
        counts[digit] = place + _1
        out_keys[place] = keys[position]
        if has_values:
            out_values[place] = values[position]


@inner
def _insertion_sort(keys, values, begin, end, below):
    """Sort a few keys by the bits above `below`."""
    has_values = len(values) > 0
    for position in range(begin + _1, end):
        key = keys[position]
        feature = np.uint64(key) >> below
        place = position
        while place > begin and np.uint64(keys[place - _1]) >> below > feature:
            keys[place] = keys[place - _1]
            place -= _1
        keys[place] = key
        if has_values and place < position:
            value = values[position]
            for back in range(position - place):
                values[position - back] = values[position - back - _1]
            values[place] = value


@inner
def _split(
    keys, values, begin, end, first, value_bits, sample_bits, unique, pointers, n_unique, out_samples, out_inside,
    out_values,
):  # fmt: skip
    """Split the sorted keys of a bucket; return the number of distinct features so far."""
    below, sample = value_bits + sample_bits, (_1 << sample_bits) - _1
    is_inside, is_beside = value_bits > _0, len(values) > 0
    for position in range(begin, end):
        key = np.uint64(keys[position])
        feature = key >> below
        if position == begin or feature != np.uint64(keys[position - _1]) >> below:
            unique[n_unique] = first | feature
            pointers[n_unique] = position
            n_unique += _1
        out_samples[position] = key >> value_bits & sample
        if is_inside:
            out_inside[position] = np.uint32(key)
        if is_beside:
            out_values[position] = values[position]
    return n_unique


def samples_of(indptr: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return the sample of each nonzero of sample-major compressed rows, uint32.

    >>> samples_of(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    out = np.empty(int(indptr[-1]), np.uint32) if out is None else out
    _number_samples(indptr, out)
    return out


@kernel
def _number_samples(indptr, out):
    for sample in range(np.uint64(len(indptr) - 1)):
        for position in range(np.uint64(indptr[sample]), np.uint64(indptr[sample + _1])):
            out[position] = sample


@allocating
def sort_rows(indptr, indices, values):
    """Sort each row by sample, in place; return the first row with a duplicate sample, or -1."""
    for row in range(len(indptr) - 1):
        start, stop = np.int64(indptr[row]), np.int64(indptr[row + 1])
        order = np.argsort(indices[start:stop], kind="mergesort")
        indices[start:stop] = indices[start:stop][order]
        if len(values):
            values[start:stop] = values[start:stop][order]
        for position in range(start + 1, stop):
            if indices[position] == indices[position - 1]:
                return row
    return -1
