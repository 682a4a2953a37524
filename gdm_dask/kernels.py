"""Numeric kernels on blocks of raw feature rows. They know neither Dask nor Zarr, and release the GIL.

Every number that comes out depends on one row (or one pair of rows) alone and is summed in an order that they fix, so
results are the same to the bit for every cut into blocks, every scheduler and every number of workers. Sums are
float64 whatever the values are. ``values is None`` means that all nonzeros are 1, and a `power` of ten that the values
are whole numbers over it; numba compiles these cases separately.
"""

from __future__ import annotations

import numpy as np

from gdm_dask.compiled import compiled
from gdm_dask.whole_numbers import number

#: Lanes of a dense sum: independent partial sums, so many that the compiler turns them into vector instructions.
LANES = 64

#: f_j . f_k - n mean_j mean_k loses as many digits as n |mean_j mean_k| / (norm_j norm_k) has. Beyond this limit
#: a correlation is computed from centred values.
CANCELLATION = 1e5

#: Rows of which fewer nonzeros than this are left are compared to the end without a further check.
CHECKED_FROM = 64


@compiled
def sparse_scores(indptr, indices, values, power, means, norms, vectors, sums, out):  # type: ignore[no-untyped-def]
    """Scores of sparse rows: ``out[v, j] = (f_j . a_v - mean_j sum(a_v)) / norm_j``, 0 where the norm is 0.

    Every other nonzero of a row has a sum of its own, so that an addition need not wait for the one before. The loop is
    written out here: in a function of its own it takes twice the time.
    """
    one, two = np.uint64(1), np.uint64(2)
    over = 0.0 if power is None else 1.0 / power
    for v in range(len(vectors)):
        vector = vectors[v]
        for row in range(len(norms)):
            if norms[row] == 0.0:
                out[v, row] = 0.0
                continue
            position, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
            even = odd = 0.0
            while position + one < stop:
                if values is None:
                    even += vector[indices[position]]
                    odd += vector[indices[position + one]]
                else:
                    even += number(values[position], power, over) * vector[indices[position]]
                    odd += number(values[position + one], power, over) * vector[indices[position + one]]
                position += two
            if position < stop:
                if values is None:
                    even += vector[indices[position]]
                else:
                    even += number(values[position], power, over) * vector[indices[position]]
            out[v, row] = (even + odd - means[row] * sums[v]) / norms[row]


@compiled
def dense_scores(values, means, norms, vectors, out):  # type: ignore[no-untyped-def]
    """Scores of dense rows, from centred values."""
    for row in range(len(norms)):
        for v in range(len(vectors)):
            out[v, row] = 0.0
            if norms[row] != 0.0:
                out[v, row] = _dense_dot(values[row], means[row], vectors[v], 0.0) / norms[row]


@compiled
def _dense_dot(left, left_mean, right, right_mean):  # type: ignore[no-untyped-def]
    """(left - left_mean) . (right - right_mean), in a fixed order of summation."""
    lanes = np.zeros(LANES)
    whole = len(left) - len(left) % LANES
    for start in range(0, whole, LANES):
        left_part, right_part = left[start : start + LANES], right[start : start + LANES]
        for lane in range(LANES):
            lanes[lane] += (left_part[lane] - left_mean) * (right_part[lane] - right_mean)
    total = 0.0
    for position in range(whole, len(left)):
        total += (left[position] - left_mean) * (right[position] - right_mean)
    for lane in range(LANES):
        total += lanes[lane]
    return total


@compiled
def _centred_dot(a_indices, a_values, a_power, a_mean, b_indices, b_values, b_mean, n_samples):  # type: ignore[no-untyped-def]
    """(a - a_mean) . (b - b_mean) of two sparse rows without cancellation: walks over both."""
    i = j = 0
    total = 0.0
    over = 0.0 if a_power is None else 1.0 / a_power
    outside = n_samples
    while i < len(a_indices) or j < len(b_indices):
        a_next = a_indices[i] if i < len(a_indices) else np.uint32(0xFFFFFFFF)
        b_next = b_indices[j] if j < len(b_indices) else np.uint32(0xFFFFFFFF)
        a = b = 0.0
        if a_next <= b_next:
            a = 1.0 if a_values is None else number(a_values[i], a_power, over)
            i += 1
        if b_next <= a_next:
            b = 1.0 if b_values is None else np.float64(b_values[j])
            j += 1
        total += (a - a_mean) * (b - b_mean)
        outside -= 1
    return total + outside * (a_mean * b_mean)


@compiled
def sparse_correlations(  # type: ignore[no-untyped-def]
    indptr, indices, values, means, norms, o_indptr, o_indices, o_values, o_means, o_norms, n_samples, workspace, out
):
    """Correlations of every row with every other row `o`: ``out[j, k]``, 0 where a norm is 0.

    `workspace` has one float64 per sample, zero on entry and on return.
    """
    for k in range(len(o_norms)):
        o_start, o_stop = np.uint64(o_indptr[k]), np.uint64(o_indptr[k + 1])
        for position in range(o_start, o_stop):
            workspace[o_indices[position]] = 1.0 if o_values is None else o_values[position]
        for j in range(len(norms)):
            out[j, k] = 0.0
            scale = norms[j] * o_norms[k]
            if scale == 0.0:
                continue
            start, stop = np.uint64(indptr[j]), np.uint64(indptr[j + 1])
            shift = n_samples * (means[j] * o_means[k])  # in this order: the same bits for (k, j)
            if abs(shift) > CANCELLATION * scale:
                out[j, k] = (
                    _centred_dot(
                        indices[start:stop], None if values is None else values[start:stop], None, means[j],
                        o_indices[o_start:o_stop], None if o_values is None else o_values[o_start:o_stop], o_means[k],
                        n_samples,
                    ) / scale
                )  # fmt: skip
                continue
            total = 0.0
            for position in range(start, stop):
                if values is None:
                    total += workspace[indices[position]]
                else:
                    total += values[position] * workspace[indices[position]]
            out[j, k] = (total - shift) / scale
        for position in range(o_start, o_stop):
            workspace[o_indices[position]] = 0.0


@compiled
def dense_correlations(values, means, norms, o_values, o_means, o_norms, out):  # type: ignore[no-untyped-def]
    """Correlations of dense rows with other dense rows, from centred values."""
    for j in range(len(norms)):
        for k in range(len(o_norms)):
            scale = norms[j] * o_norms[k]
            out[j, k] = 0.0
            if scale != 0.0:
                out[j, k] = _dense_dot(values[j], means[j], o_values[k], o_means[k]) / scale


@compiled
def _count_up_to(increasing, bound):  # type: ignore[no-untyped-def]
    """How many entries of an increasing array are at most `bound`."""
    low, high = 0, len(increasing)
    while low < high:
        middle = (low + high) // 2
        if increasing[middle] <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _none_can_reach(sums, n_near, rest, s_rests, mean, norm, s_means, s_norms, n_samples, limit):  # type: ignore[no-untyped-def]
    """Whether no support can reach the limit: `sums` so far, and `rest`, the length of the row from here on."""
    for k in range(n_near):
        scale = norm * s_norms[k]
        shift = n_samples * (mean * s_means[k])
        if abs(shift) > CANCELLATION * scale or abs(sums[k] - shift) + rest * s_rests[k] >= limit * scale * (
            1.0 - 1e-9
        ):
            return False
    return True


@compiled
def sparse_groups(  # type: ignore[no-untyped-def]
    indptr, indices, values, power, means, norms, least, checks, s_rests,
    s_indptr, s_indices, s_values, s_means, s_norms, at_indptr, at_support, at_value, n_samples, limit,
    pair_support, pair_row, pair_rho, counters,
):  # fmt: skip
    """Pairs (support, row) with ``|rho| >= limit``; returns how many, or -1 where the output is too short.

    The supports come twice: as rows (``s_``) and by sample (``at_``: which supports have a nonzero there, and what).
    A row of r nonzeros provably reaches no support from the first k with ``least[k] > r`` on, see `gdm_dask.groups`;
    supports are in that order, so a look at each sample ends there. At the samples `checks` a row is given up when what
    is left of it and of the supports (``s_rests``, their lengths from there on) cannot make up for what was found. A
    support without a common sample is left out when its correlation, which is then minus the product of both
    ``sqrt(n) |mean| / norm``, cannot reach the limit. ``counters`` gets (rows that were compared to the end, others).
    """
    over = 0.0 if power is None else 1.0 / power
    n_supports = len(s_norms)
    sums = np.zeros(n_supports)
    farthest = 0.0
    for k in range(n_supports):
        if s_norms[k] != 0.0:
            farthest = max(farthest, abs(s_means[k]) / s_norms[k])
    n_pairs = 0
    for row in range(len(norms)):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        n_near = 0 if norms[row] == 0.0 else _count_up_to(least, np.int64(stop - start))
        sums[:n_near] = 0.0
        position = start
        left = whole = norms[row] * norms[row] + n_samples * means[row] * means[row]
        for check in range(len(checks)):
            if n_near == 0:
                break
            while position < stop and indices[position] < checks[check]:
                value = 1.0 if values is None else number(values[position], power, over)
                sample = np.uint64(indices[position])
                for entry in range(np.uint64(at_indptr[sample]), np.uint64(at_indptr[sample + np.uint64(1)])):
                    k = at_support[entry]
                    if k >= n_near:
                        break
                    sums[k] += value * at_value[entry]
                left -= value * value
                position += np.uint64(1)
            if stop - position >= CHECKED_FROM and _none_can_reach(
                sums, n_near, np.sqrt(max(left, 0.0) + 1e-9 * whole), s_rests[check], means[row], norms[row],
                s_means, s_norms, n_samples, limit,
            ):  # fmt: skip
                n_near = 0
        if n_near == 0:
            counters[1] += 1
            continue
        counters[0] += 1
        is_far = n_samples * abs(means[row]) * farthest < limit * norms[row] * (1.0 - 1e-9)
        for k in range(n_near):
            if is_far and sums[k] == 0.0:
                continue
            scale = norms[row] * s_norms[k]
            if scale == 0.0:
                continue
            shift = n_samples * (means[row] * s_means[k])
            if abs(shift) > CANCELLATION * scale:
                s_start, s_stop = np.uint64(s_indptr[k]), np.uint64(s_indptr[k + 1])
                rho = (
                    _centred_dot(
                        indices[start:stop], None if values is None else values[start:stop], power, means[row],
                        s_indices[s_start:s_stop], None if s_values is None else s_values[s_start:s_stop], s_means[k],
                        n_samples,
                    ) / scale
                )  # fmt: skip
            else:
                rho = (sums[k] - shift) / scale
            if abs(rho) >= limit:
                if n_pairs == len(pair_row):
                    return -1
                pair_support[n_pairs], pair_row[n_pairs], pair_rho[n_pairs] = k, row, rho
                n_pairs += 1
    return n_pairs
