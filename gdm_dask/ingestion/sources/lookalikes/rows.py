"""Kernels that generate rows of a lookalike from their numbers and a seed, and write rows as svmlight text."""

# numba types the kernels:
# mypy: allow-untyped-defs, no-check-untyped-defs

from __future__ import annotations

import numpy as np

from gdm_dask.system.jit import allocating, inlined, inner, kernel

#: Probability that a member of a planted group is present if the group is.
MEMBER = 0.97
#: Resolution of the values in rows of unit length; text and stores hold the same numbers.
SCALE = 1e6


@inlined
def mix(state):
    """Return a well-mixed 64-bit number from a counter (the finaliser of SplitMix64)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@inner
def _stream(seed, number, purpose):
    """Return the first state of a row's random numbers for one purpose."""
    state = mix(np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(purpose))
    return mix(state + np.uint64(number) * np.uint64(0xD1342543DE82EF95))


@inlined
def _uniform(state, k):
    """Return the k-th number in (0, 1) of a stream."""
    bits = mix(state + np.uint64(k + 1) * np.uint64(0x9E3779B97F4A7C15))
    return (np.float64(bits >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@allocating
def row_lengths(seed, numbers, mean, spread):
    """Return the number of features to draw for each row: log-normal around `mean`."""
    out = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        state = _stream(seed, numbers[i], 2)
        normal = np.sqrt(-2.0 * np.log(_uniform(state, 0))) * np.cos(2.0 * np.pi * _uniform(state, 1))
        out[i] = max(1, np.int64(mean * np.exp(spread * normal - 0.5 * spread * spread) + 0.5))
    return out


@inner
def _rank(u, n):
    """Return a rank in [0, n) whose frequency falls as the inverse of the rank."""
    return min(np.int64(np.exp(u * np.log(n + 1.0))) - 1, n - 1)


@inner
def _coprime_step(n):
    """Return a step that visits all numbers below n, in an irregular order."""
    step = np.int64(n * 0.6180339887498949) | 1
    while True:
        a, b = step, n
        while b:
            a, b = b, a % b
        if a == 1:
            return step
        step += 2


@allocating
def feature_of(ranks, n_features):
    """Map ranks to features; frequent features are scattered."""
    step = np.uint64(_coprime_step(n_features))
    out = np.empty(len(ranks), np.uint32)
    for k in range(len(ranks)):
        out[k] = np.uint32((np.uint64(ranks[k]) * step) % np.uint64(n_features))
    return out


@allocating
def fill_rows(
    seed, numbers, lengths, n_samples, n_features, n_single, unit_rows, positive, groups, rates, features,
    values, indptr, labels,
):  # fmt: skip
    """Generate rows: labels, and compressed rows with increasing features.

    Samples below `n_samples` get their share of the `n_single` features that occur once. Later samples belong to a test
    set and have none of them.
    """
    step = np.uint64(_coprime_step(n_features))
    n_shared = n_features - n_single
    place = 0
    n_groups, size = groups.shape
    drawn = np.empty(lengths.max() + n_groups * size + 1 + -(-n_single // n_samples), np.uint32)
    for i in range(len(numbers)):
        state = _stream(seed, numbers[i], 3)
        label = 1 if _uniform(state, 0) < positive else -1
        labels[i] = label
        count = 0
        for k in range(lengths[i]):
            rank = _rank(_uniform(state, k + 1), n_shared)
            drawn[count] = np.uint32((np.uint64(rank) * step) % np.uint64(n_features))
            count += 1
        if numbers[i] < n_samples:
            for single in range(numbers[i] * n_single // n_samples, (numbers[i] + 1) * n_single // n_samples):
                drawn[count] = np.uint32((np.uint64(n_shared + single) * step) % np.uint64(n_features))
                count += 1
        state = _stream(seed, numbers[i], 4)
        for group in range(n_groups):
            if _uniform(state, group) < rates[group, 1 if label > 0 else 0]:
                for member in range(size):
                    if _uniform(state, n_groups + group * size + member) < MEMBER:
                        drawn[count] = groups[group, member]
                        count += 1
        place = _write_row(np.sort(drawn[:count]), unit_rows, features, values, place)
        indptr[i + 1] = place


@inner
def _write_row(drawn, unit_rows, features, values, place):
    """Write the distinct features of a sorted row with their counts (or 1); return the place after it."""
    start = place
    for k in range(len(drawn)):
        if k > 0 and drawn[k] == drawn[k - 1]:
            values[place - 1] += 1.0
        else:
            features[place] = drawn[k]
            values[place] = 1.0
            place += 1
    if not unit_rows:
        values[start:place] = 1.0
        return place
    total = 0.0
    for k in range(start, place):
        total += values[k] * values[k]
    length = np.sqrt(total)
    for k in range(start, place):
        values[k] = max(1.0, np.floor(SCALE * values[k] / length + 0.5)) / SCALE
    return place


@kernel
def format_rows(labels, indptr, features, values, out):
    """Write rows as svmlight text (features from 1) to `out`; return the bytes used."""
    place = 0
    for i in range(len(labels)):
        out[place] = ord("+") if labels[i] > 0 else ord("-")
        out[place + 1] = ord("1")
        place += 2
        for k in range(indptr[i], indptr[i + 1]):
            out[place] = ord(" ")
            place = _write_number(np.int64(features[k]) + 1, out, place + 1)
            out[place] = ord(":")
            place = _write_value(values[k], out, place + 1)
        out[place] = ord("\n")
        place += 1
    return place


@inner
def _write_number(number, out, place):
    n_digits = 1
    bound = 10
    while number >= bound:
        bound *= 10
        n_digits += 1
    for k in range(n_digits):
        out[place + n_digits - 1 - k] = ord("0") + number % 10
        number //= 10
    return place + n_digits


@inner
def _write_value(value, out, place):
    """Write a multiple of 1 / SCALE without trailing zeros."""
    whole = np.int64(value * SCALE + 0.5)
    place = _write_number(whole // np.int64(SCALE), out, place)
    rest = whole % np.int64(SCALE)
    if rest == 0:
        return place
    out[place] = ord(".")
    place += 1
    unit = np.int64(SCALE) // 10
    while rest > 0:
        out[place] = ord("0") + rest // unit
        rest %= unit
        unit //= 10
        place += 1
    return place
