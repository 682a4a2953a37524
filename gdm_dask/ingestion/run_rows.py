"""The rows of a run: which features it has, and how many nonzeros of each, as steps from one feature to the next.

Steps and counts are small numbers, so most runs need 16 bits for each: half of what features and pointers would take.
"""

# numba types the kernels:
# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from gdm_dask.words import kernel
from gdm_dask.work_space import work_space

#: Rows of a block to which all runs are appended before the next ones: so few that the caches hold them.
ROWS_AT_ONCE = 256

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)


def make_rows(features: np.ndarray, pointers: np.ndarray) -> np.ndarray:
    """Distance of each feature from the one before (of the first from 0), and its number of nonzeros.

    Parameters
    ----------
    features : ndarray of shape (u,), uint32
        Increasing.
    pointers : ndarray of shape (u + 1,), uint32
        Where the nonzeros of each begin, and the end.

    Returns
    -------
    ndarray of shape (u, 2), uint16 or uint32
        Work space of this thread, good until its next call.

    Examples
    --------
    >>> make_rows(np.array([2, 7], np.uint32), np.array([0, 1, 4], np.uint32))
    array([[2, 1],
           [5, 3]], dtype=uint16)
    """
    dtype = np.uint16 if _largest(features, pointers) < 2**16 else np.uint32
    rows = work_space("rows", 2 * len(features), dtype)
    _fill(features, pointers, rows)
    return rows.reshape(-1, 2)


@kernel
def _largest(features, pointers):
    """The largest number that the rows will hold."""
    largest = before = np.uint32(0)
    for k in range(np.uint64(len(features))):
        largest = max(largest, features[k] - before, pointers[k + _1] - pointers[k])
        before = features[k]
    return largest


@kernel
def _fill(features, pointers, rows):
    before = np.uint32(0)
    for k in range(np.uint64(len(features))):
        rows[_2 * k], rows[_2 * k + _1] = features[k] - before, pointers[k + _1] - pointers[k]
        before = features[k]


@kernel
def add_counts(rows, counts):
    """Add the nonzeros of a run's features to `counts`."""
    feature = _0
    for k in range(np.uint64(len(rows))):
        feature += np.uint64(rows[k, 0])
        counts[feature] += np.uint32(rows[k, 1])


@kernel
def find_bounds(rows, bounds, out):
    """For each of the features `bounds`, increasing: how many rows come before it, nonzeros, and the last feature."""
    k, nonzeros, feature = _0, _0, _0
    for number in range(len(bounds)):
        while k < np.uint64(len(rows)) and feature + np.uint64(rows[k, 0]) < np.uint64(bounds[number]):
            feature += np.uint64(rows[k, 0])
            nonzeros += np.uint64(rows[k, 1])
            k += _1
        out[number, 0], out[number, 1], out[number, 2] = k, nonzeros, feature


@kernel
def append_runs(
    rows, samples, values, places, power, first_feature, first_samples, cursors, out_samples, out_values
):  # fmt: skip
    """Append pieces of several runs, in their order, to the rows of a block at their `cursors`, and move these on.

    The pieces of an array lie in one. Each row of `places` is where those of a run begin: of its rows (and their end),
    its samples and its values, and the feature that the first row counts from; it is moved on. There are no `values`
    where all are 1; else they are divided by `power`, or taken as they are where that is None.
    """
    ones, left_out = len(values) == 0, len(out_values) == 0
    for stop in range(ROWS_AT_ONCE, len(cursors) + ROWS_AT_ONCE, ROWS_AT_ONCE):
        for run in range(len(places)):
            row, end, sample, value, feature = places[run]
            first_sample = first_samples[run]
            while row < end:
                following = feature + np.uint64(rows[row])
                cursor = following - np.uint64(first_feature)
                if cursor >= np.uint64(stop):
                    break
                feature = following
                place = np.uint64(cursors[cursor])
                for _ in range(rows[row + _1]):
                    out_samples[place] = samples[sample] + first_sample
                    if left_out:
                        pass
                    elif ones:
                        out_values[place] = 1
                    elif power is None:
                        out_values[place] = values[value]
                    else:
                        out_values[place] = values[value] / power
                    place += _1
                    sample += _1
                    value += _1
                cursors[cursor] = place
                row += _2
            places[run, 0], places[run, 2], places[run, 3], places[run, 4] = row, sample, value, feature
