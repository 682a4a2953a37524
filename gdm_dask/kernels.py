"""Numeric kernels on blocks of raw feature rows. They know neither Dask nor Zarr, and release the GIL.

Every number that comes out depends on one row (or one pair of rows) alone and is summed in the order of the samples,
so results are the same to the bit for every cut into blocks, every scheduler and every number of workers. Sums are
float64 whatever the values are. ``values is None`` means that all nonzeros are 1; numba compiles that case separately.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Lanes of a dense sum: independent partial sums that the compiler turns into vector instructions.
LANES = 8

#: f_j . f_k - n mean_j mean_k loses as many digits as n |mean_j mean_k| / (norm_j norm_k) has. Beyond this limit
#: a correlation is computed from centred values.
CANCELLATION = 1e5


@njit(cache=True, nogil=True)
def sparse_scores(indptr, indices, values, means, norms, vectors, sums, out):  # type: ignore[no-untyped-def]
    """Scores of sparse rows: ``out[v, j] = (f_j . a_v - mean_j sum(a_v)) / norm_j``, 0 where the norm is 0."""
    for row in range(len(norms)):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        for v in range(len(vectors)):
            if norms[row] == 0.0:
                out[v, row] = 0.0
                continue
            total = 0.0
            for position in range(start, stop):
                if values is None:
                    total += vectors[v, indices[position]]
                else:
                    total += values[position] * vectors[v, indices[position]]
            out[v, row] = (total - means[row] * sums[v]) / norms[row]


@njit(cache=True, nogil=True)
def dense_scores(values, means, norms, vectors, out):  # type: ignore[no-untyped-def]
    """Scores of dense rows, from centred values."""
    for row in range(len(norms)):
        for v in range(len(vectors)):
            out[v, row] = 0.0
            if norms[row] != 0.0:
                out[v, row] = _dense_dot(values[row], means[row], vectors[v], 0.0) / norms[row]


@njit(cache=True, nogil=True)
def _dense_dot(left, left_mean, right, right_mean):  # type: ignore[no-untyped-def]
    """(left - left_mean) . (right - right_mean), in a fixed order of summation."""
    lanes = np.zeros(LANES)
    whole = len(left) - len(left) % LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += (left[start + lane] - left_mean) * (right[start + lane] - right_mean)
    total = 0.0
    for position in range(whole, len(left)):
        total += (left[position] - left_mean) * (right[position] - right_mean)
    for lane in range(LANES):
        total += lanes[lane]
    return total


@njit(cache=True, nogil=True)
def _centred_dot(a_indices, a_values, a_mean, b_indices, b_values, b_mean, n_samples):  # type: ignore[no-untyped-def]
    """(a - a_mean) . (b - b_mean) of two sparse rows without cancellation: walks over both."""
    i = j = 0
    total = 0.0
    outside = n_samples
    while i < len(a_indices) or j < len(b_indices):
        a_next = a_indices[i] if i < len(a_indices) else np.uint32(0xFFFFFFFF)
        b_next = b_indices[j] if j < len(b_indices) else np.uint32(0xFFFFFFFF)
        a = b = 0.0
        if a_next <= b_next:
            a = 1.0 if a_values is None else np.float64(a_values[i])
            i += 1
        if b_next <= a_next:
            b = 1.0 if b_values is None else np.float64(b_values[j])
            j += 1
        total += (a - a_mean) * (b - b_mean)
        outside -= 1
    return total + outside * (a_mean * b_mean)


@njit(cache=True, nogil=True)
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
                        indices[start:stop], None if values is None else values[start:stop], means[j],
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


@njit(cache=True, nogil=True)
def dense_correlations(values, means, norms, o_values, o_means, o_norms, out):  # type: ignore[no-untyped-def]
    """Correlations of dense rows with other dense rows, from centred values."""
    for j in range(len(norms)):
        for k in range(len(o_norms)):
            scale = norms[j] * o_norms[k]
            out[j, k] = 0.0
            if scale != 0.0:
                out[j, k] = _dense_dot(values[j], means[j], o_values[k], o_means[k]) / scale


@njit(cache=True, nogil=True)
def sparse_groups(  # type: ignore[no-untyped-def]
    indptr, indices, values, means, norms, reach,
    s_indptr, s_indices, s_values, s_means, s_norms, at_indptr, at_support, at_value, n_samples, limit,
    pair_support, pair_row, pair_rho, counters,
):  # fmt: skip
    """Pairs (support, row) with ``|rho| >= limit``; returns how many, or -1 where the output is too short.

    The supports come twice: as rows (``s_``) and by sample (``at_``: which supports have a nonzero there, and what).
    A row is skipped when it provably reaches no support: ``||f_j|| / norm_j * reach[nonzeros of j] < limit``, see
    `reach_of`. A support without a common sample is left out when its correlation, which is then minus the product of
    both ``sqrt(n) |mean| / norm``, cannot reach the limit. ``counters`` gets (rows scanned, rows skipped).
    """
    n_supports = len(s_norms)
    last = np.uint64(len(reach) - 1)
    sums = np.zeros(n_supports)
    met_in = np.full(n_supports, -1)  # the row in which a support was met last
    met = np.zeros(n_supports, np.int64)
    farthest = 0.0
    for k in range(n_supports):
        if s_norms[k] != 0.0:
            farthest = max(farthest, abs(s_means[k]) / s_norms[k])
    n_pairs = 0
    for row in range(len(norms)):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        if norms[row] == 0.0:
            counters[1] += 1
            continue
        length = np.sqrt(norms[row] * norms[row] + n_samples * means[row] * means[row])
        if length * reach[min(stop - start, last)] < limit * norms[row]:
            counters[1] += 1
            continue
        counters[0] += 1
        n_met = 0
        for position in range(start, stop):
            value = 1.0 if values is None else np.float64(values[position])
            sample = indices[position]
            for entry in range(np.uint64(at_indptr[sample]), np.uint64(at_indptr[np.uint64(sample) + np.uint64(1)])):
                k = at_support[entry]
                if met_in[k] != row:
                    met_in[k] = row
                    met[n_met] = k
                    n_met += 1
                    sums[k] = 0.0
                sums[k] += value * at_value[entry]
        if n_samples * abs(means[row]) * farthest >= limit * norms[row] * (1.0 - 1e-9):
            for k in range(n_supports):
                if met_in[k] != row:
                    met[n_met] = k
                    n_met += 1
                    sums[k] = 0.0
        for m in range(n_met):
            k = met[m]
            scale = norms[row] * s_norms[k]
            if scale == 0.0:
                continue
            shift = n_samples * (means[row] * s_means[k])
            if abs(shift) > CANCELLATION * scale:
                s_start, s_stop = np.uint64(s_indptr[k]), np.uint64(s_indptr[k + 1])
                rho = (
                    _centred_dot(
                        indices[start:stop], None if values is None else values[start:stop], means[row],
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
