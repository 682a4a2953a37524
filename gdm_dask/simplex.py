"""Two minimisations over the simplex: of the master's samples in closed form, of its cuts by active sets."""

from __future__ import annotations

import numpy as np
from numba import njit

from gdm_dask.compiled import compiled

RIDGE = 1e-12
"""Part of the mean curvature that is added to every direction."""


@compiled
def find_gamma(margins: np.ndarray, C: float, gamma: float) -> float:
    """Return the gamma at which alpha = C (gamma - m)_+ sums to one.

    Newton's method on a convex, piecewise linear function: from the second round on the samples below gamma
    only become fewer, and once they stay the same, gamma is exact. A handful of passes instead of a sort.

    Parameters
    ----------
    margins : (n,) array
        m.
    C : float
    gamma : float
        Where to start; anything does.

    Returns
    -------
    float

    Examples
    --------
    >>> find_gamma(np.array([0.0, 0.2, 5.0]), 1.0, 0.0)
    0.6
    """
    before = 0
    for _ in range(margins.size + 10):
        total, count = _excess(margins, gamma)
        if count == 0:
            gamma = margins.mean() + 1.0 / (C * margins.size)
            continue
        gamma -= (total - 1.0 / C) / count
        if count == before:
            break
        before = count
    return gamma


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _excess(margins: np.ndarray, gamma: float) -> tuple[float, int]:
    """Return the sum of (gamma - m)_+ and the number of its positive terms."""
    total, count = 0.0, 0
    for i in range(margins.size):
        total += max(gamma - margins[i], 0.0)
        count += margins[i] < gamma
    return total, count


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def fill_alpha(margins: np.ndarray, gamma: float, alpha: np.ndarray) -> tuple[float, float]:
    """Write (gamma - m)_+, scaled to sum to one, into `alpha`.

    Parameters
    ----------
    margins : (n,) array
        m.
    gamma : float
    alpha : (n,) array
        Overwritten.

    Returns
    -------
    squared : float
        ||alpha||^2.
    along : float
        alpha . m.
    """
    total = 0.0
    for i in range(margins.size):
        alpha[i] = max(gamma - margins[i], 0.0)
        total += alpha[i]
    squared, along = 0.0, 0.0
    for i in range(margins.size):
        alpha[i] /= total
        squared += alpha[i] * alpha[i]
        along += alpha[i] * margins[i]
    return squared, along


@compiled
def minimise_on_simplex(hessian: np.ndarray, linear: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Minimise 1/2 x' H x - b' x over x >= 0, sum x = 1.

    A set of free entries is kept, the others are zero. Each round moves to the minimum over the free entries,
    stopping at the first entry that reaches zero, which is then no longer free; at a minimum, the entry that
    promises most is freed. Follows Lawson and Hanson's method for nonnegative least squares.

    Parameters
    ----------
    hessian : (T, T) array
        Positive semidefinite H.
    linear : (T,) array
        b.
    start : (T,) array
        A point of the simplex, best one near the solution.

    Returns
    -------
    (T,) array
        The minimiser.

    Examples
    --------
    >>> minimise_on_simplex(np.eye(3), np.array([0.9, 0.5, -1.0]), np.full(3, 1 / 3)).round(3)
    array([0.7, 0.3, 0. ])
    """
    size = linear.size
    x = start / start.sum()
    free = x > 0.0
    mean = np.trace(hessian) / size + 1e-300
    # Where H is singular, as equal cuts make it, the entries stay near the start. Adding a constant to all of
    # H changes nothing on the simplex, and what is singular only across it becomes well conditioned.
    ridge = RIDGE * (mean + np.abs(linear).max())
    hessian = hessian + mean + ridge * np.eye(size)
    linear = linear + ridge * x
    slack = 1e-15 * size * (np.abs(linear).max() + np.abs(hessian).max())
    for _ in range(20 * size + 20):
        at = np.flatnonzero(free)
        target, multiplier = _minimise_freely(hessian, linear, at)
        if target.min() < 0.0:
            _move_until_zero(x, free, at, target)
            continue
        x[at] = target
        gain = linear - hessian @ x - multiplier
        gain[at] = 0.0
        best = int(np.argmax(gain))
        if gain[best] <= slack:
            break
        free[best] = True
    return x / x.sum()


@compiled
def _minimise_freely(hessian: np.ndarray, linear: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimise over the entries `at` under sum x = 1 alone; return them and the multiplier of the sum."""
    system = np.empty((at.size, at.size))
    sides = np.ones((at.size, 2))
    for i in range(at.size):
        sides[i, 0] = linear[at[i]]
        for j in range(at.size):
            system[i, j] = hessian[at[i], at[j]]
    solved = np.linalg.solve(system, sides)
    multiplier = (solved[:, 0].sum() - 1.0) / solved[:, 1].sum()
    return solved[:, 0] - multiplier * solved[:, 1], multiplier


@compiled
def _move_until_zero(x: np.ndarray, free: np.ndarray, at: np.ndarray, target: np.ndarray) -> None:
    """Move the free entries of `x` towards `target`; those that reach zero first are no longer free."""
    step = 1.0
    for i in range(at.size):
        if target[i] < 0.0:
            step = min(step, x[at[i]] / (x[at[i]] - target[i]))
    for i in range(at.size):
        value = x[at[i]] + step * (target[i] - x[at[i]])
        if target[i] < 0.0 and value <= 1e-15:
            value = 0.0
            free[at[i]] = False
        x[at[i]] = value
