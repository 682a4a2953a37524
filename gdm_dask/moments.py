"""Mean and norm of feature rows: all that implicit normalisation needs.

A feature f enters every formula as (f - mean 1) / norm with norm = ||f - mean 1||. Centring a sparse row would make it
dense, so the values stay raw and these two numbers are stored beside them.
"""

# numba types the kernels:
# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from gdm_dask.compiled import compiled
from gdm_dask.whole_numbers import number

#: A feature whose deviation is below this part of its mean is constant up to rounding; its norm is set to 0.
CONSTANT = 4e-13


def sparse_moments(
    indptr: np.ndarray, values: np.ndarray | None, n_samples: int, power: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Means and norms of compressed rows.

    Parameters
    ----------
    indptr : ndarray of shape (rows + 1,), uint32
    values : ndarray or None
        The nonzeros; None where all are 1.
    n_samples : int
    power : float, optional
        Of ten, that the values are over where they are whole numbers.

    Returns
    -------
    means, norms : ndarray of shape (rows,), float64

    Examples
    --------
    >>> means, norms = sparse_moments(np.array([0, 1, 1], np.uint32), np.array([4.0]), 4)
    >>> means.tolist(), (norms ** 2).round(12).tolist()
    ([1.0, 0.0], [12.0, 0.0])
    """
    if values is None:
        counts = np.diff(indptr.astype(np.float64))
        means = counts / n_samples
        return means, np.sqrt(counts * (1.0 - means))
    return _sparse_moments(indptr, values, n_samples, power)


def dense_moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and norms of dense rows, (rows, samples)."""
    return _dense_moments(np.ascontiguousarray(rows))


@compiled
def _scale(low, high):
    """A power of two by which values of a row are divided, so that their squares neither overflow nor vanish."""
    largest = max(high, -low)
    if largest == 0.0 or 1e-130 < largest < 1e130:
        return 1.0
    return np.ldexp(1.0, min(max(int(np.floor(np.log2(largest))), -1000), 1000))


@compiled
def _finish(mean, deviations, squares, n_samples, scale):
    """Second-pass correction: `mean` was off by the mean of the deviations from it."""
    shift = deviations / n_samples
    norm = np.sqrt(max(squares - n_samples * shift * shift, 0.0))
    mean += shift
    if norm <= CONSTANT * np.sqrt(n_samples) * abs(mean):
        norm = 0.0
    return mean * scale, norm * scale


@compiled
def _sparse_moments(indptr, values, n_samples, power):
    over = 0.0 if power is None else 1.0 / power
    n_rows = len(indptr) - 1
    means = np.zeros(n_rows)
    norms = np.zeros(n_rows)
    for row in range(n_rows):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        if start == stop:
            continue
        total = low = high = 0.0
        for position in range(start, stop):
            value = number(values[position], power, over)
            total += value
            low, high = min(low, value), max(high, value)
        scale = _scale(low, high)
        inverse = 1.0 / scale
        if scale != 1.0:
            total = 0.0
            for position in range(start, stop):
                total += number(values[position], power, over) * inverse
        mean = total / n_samples
        zeros = n_samples - np.int64(stop - start)
        deviations, squares = -mean * zeros, mean * mean * zeros
        for position in range(start, stop):
            deviation = number(values[position], power, over) * inverse - mean
            deviations += deviation
            squares += deviation * deviation
        means[row], norms[row] = _finish(mean, deviations, squares, n_samples, scale)
    return means, norms


@compiled
def _dense_moments(rows):
    n_rows, n_samples = rows.shape
    means = np.zeros(n_rows)
    norms = np.zeros(n_rows)
    for row in range(n_rows):
        total = low = high = 0.0
        for position in range(n_samples):
            value = np.float64(rows[row, position])
            total += value
            low, high = min(low, value), max(high, value)
        scale = _scale(low, high)
        inverse = 1.0 / scale
        if scale != 1.0:
            total = 0.0
            for position in range(n_samples):
                total += rows[row, position] * inverse
        mean = total / n_samples
        deviations = squares = 0.0
        for position in range(n_samples):
            deviation = rows[row, position] * inverse - mean
            deviations += deviation
            squares += deviation * deviation
        means[row], norms[row] = _finish(mean, deviations, squares, n_samples, scale)
    return means, norms
