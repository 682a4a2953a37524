"""Two minimisations over the simplex: of the master's samples in closed form, of its cuts by active sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from gdm_dask.compiled import compiled

RIDGE = 1e-12
"""Part of the mean curvature that is added to every direction."""

GAMMA_TOL = 1e-9
"""How far from one the weights of the samples may sum up before they are scaled to it."""


class Excess(NamedTuple):
    """Sums over samples of e = (gamma - m)_+, for some gamma.

    Attributes
    ----------
    total, squared, along : float
        Sums of e, of its square and of its product with the margin m.
    margins : float
        Sum of m.
    n_active, n_samples : int
        Number of positive e, and of samples.
    """

    total: float
    squared: float
    along: float
    margins: float
    n_active: int
    n_samples: int


def find_gamma(excess: Callable[[float], Excess], C: float, gamma: float) -> tuple[float, Excess]:
    """Find the gamma at which alpha = C (gamma - m)_+ sums to one.

    Newton's method on a convex, piecewise linear function: from the second round on the samples below gamma
    only become fewer, and once they stay the same, gamma is exact. A handful of passes instead of a sort.

    Parameters
    ----------
    excess : callable
        Sums over all samples for a gamma.
    C : float
    gamma : float
        Where to start; anything does, and -inf where nothing is known.

    Returns
    -------
    gamma : float
    found : Excess
        The sums for it.

    Examples
    --------
    >>> margins = np.array([0.0, 0.2, 5.0])
    >>> round(find_gamma(lambda gamma: measure_excess(margins, gamma), 1.0, 0.0)[0], 12)
    0.6
    """
    found, is_exact = excess(gamma), False
    for rounds in itertools.count():
        before = found.n_active
        if before:
            gamma -= (found.total - 1.0 / C) / before
        else:
            gamma = found.margins / found.n_samples + 1.0 / (C * found.n_samples)
        found = excess(gamma)
        # More samples than before, from the second round on, are a matter of rounding.
        if is_exact or (rounds and found.n_active > before):
            break
        is_exact = found.n_active == before
        if is_exact and abs(C * found.total - 1.0) <= GAMMA_TOL:
            break
    return gamma, found


def measure_excess(margins: np.ndarray, gamma: float) -> Excess:
    """Take the sums over some samples."""
    return Excess(*_sum_excess(margins, gamma), margins.size)


def add_excess(parts: Sequence[Excess]) -> Excess:
    """Add the sums over several parts of the samples, in their order."""
    return Excess(*(sum(values) for values in zip(*parts, strict=True)))


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _sum_excess(margins: np.ndarray, gamma: float) -> tuple[float, float, float, float, int]:
    total, squared, along, everything, count = 0.0, 0.0, 0.0, 0.0, 0
    for i in range(margins.size):
        excess = max(gamma - margins[i], 0.0)
        total += excess
        squared += excess * excess
        along += excess * margins[i]
        everything += margins[i]
        count += excess > 0.0
    return total, squared, along, everything, count


@compiled
def fill_alpha(margins: np.ndarray, gamma: float, scale: float, y: np.ndarray, out: np.ndarray) -> None:
    """Write (gamma - m)_+, scaled, times the labels.

    Parameters
    ----------
    margins : (n,) array
        m.
    gamma, scale : float
    y : (n,) array
    out : (n,) array
        Overwritten.
    """
    for i in range(margins.size):
        out[i] = max(gamma - margins[i], 0.0) * (scale * y[i])


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
