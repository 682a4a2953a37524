"""Losses of the master problem: interface, intercept and squared hinge; every other loss has its own file.

A loss l(y, u) of a target y and a decision value u = f + b is piecewise quadratic with curvature 0 or 1, so that
l = R^2 / 2 with the residual R = -dl/du. Sample weights, which may be None, are applied here, C by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from gdm_dask.system.jit import reassociating

MAX_ROUNDS = 100
BALANCED, NEARLY = 1e-14, 1e-9
"""Part of the sum of |A| by which the sum of an output's duals may differ from zero: in any piece, in this one."""


class Sums(NamedTuple):
    """Sums over the samples of one output."""

    rising: float  # of w R over R > 0; equal to `falling` at the best intercept
    falling: float  # of -w R over R < 0
    squares: float  # of w R^2, twice the loss
    curved: float  # of w where the loss is curved


class Loss(Protocol):
    """Kernels of a loss over samples of one output.

    Attributes
    ----------
    one_gram : bool
        Whether the loss is curved everywhere, so that all outputs share one Gram matrix. Other losses are curved
        where the residual is nonzero.
    """

    one_gram: bool

    def check(self, targets: np.ndarray) -> None:
        """Refuse targets that the loss does not support."""

    def sums(self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None) -> Sums:
        """Sum the residuals and their squares."""

    def fill(
        self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None, rise: float, fall: float, out: np.ndarray
    ) -> tuple[float, float]:
        """Write the duals a = w v, with v = R times `rise` where R > 0 and times `fall` where R < 0.

        Returns
        -------
        linear, squares : float
            Linear part of the certificate, and the sum of a v. The linear part is the sum of a y, less epsilon |a|
            if errors up to epsilon cost nothing; y - b may replace y, because duals with an intercept sum to zero.
        """


def find_intercept(sums: Callable[[float], Sums], b: float) -> tuple[float, Sums]:
    """Find the intercept at which the residuals of an output sum to zero.

    Newton's method on a falling, piecewise linear function, within the bracket given by its signs. The intercept is
    exact once the active samples stay the same. Takes a handful of passes instead of a sort.

    Parameters
    ----------
    sums : callable
        Returns the sums over all samples for an intercept.
    b : float
        Starting value.

    Returns
    -------
    b : float
    found : Sums
        The sums at `b`.

    Examples
    --------
    >>> y, f = np.array([1.0, 1.0, -1.0]), np.array([0.0, 0.2, 0.0])
    >>> round(find_intercept(lambda b: SquaredHinge().sums(y, f, b, None), 0.0)[0], 12)
    0.266666666667
    """
    low, high, found = -np.inf, np.inf, sums(b)
    is_same_piece = False
    for _ in range(MAX_ROUNDS):
        slope, total = found.rising - found.falling, found.rising + found.falling
        if abs(slope) <= (NEARLY if is_same_piece else BALANCED) * total:
            break
        low, high = (b, high) if slope > 0 else (low, b)
        trial = b + slope / found.curved
        if trial == b:
            break
        is_newton = low < trial < high
        b = trial if is_newton else 0.5 * (low + high)
        before, found = found.curved, sums(b)
        is_same_piece = is_newton and found.curved == before
    return b, found


class SquaredHinge:
    """1/2 (1 - y u)_+^2 for targets -1 and +1.

    Examples
    --------
    >>> y, f = np.array([1.0, -1.0, 1.0]), np.array([0.5, 0.0, 2.0])
    >>> tuple(SquaredHinge().sums(y, f, 0.0, None))
    (0.5, 1.0, 1.25, 2.0)
    """

    one_gram = False

    def check(self, targets: np.ndarray) -> None:
        """Refuse targets other than -1 and +1."""
        if not (np.abs(targets) == 1).all():
            raise ValueError("targets must be -1 or +1 for the squared hinge loss")

    def sums(self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None) -> Sums:
        """Sum the residuals y (1 - y u)_+ and their squares."""
        return Sums(*_sum_hinge(y, f, b, w))

    def fill(
        self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None, rise: float, fall: float, out: np.ndarray
    ) -> tuple[float, float]:
        """Write the duals; return the sums of a y and of a v."""
        sums: tuple[float, float] = fill_hinge(y, f, b, w, rise, fall, out)
        return sums


@reassociating
def _sum_hinge(y, f, b, w):  # type: ignore[no-untyped-def]
    rising = falling = squares = curved = 0.0
    for i in range(y.size):
        slack = max(1.0 - y[i] * (f[i] + b), 0.0)
        weight = 1.0 if w is None else w[i]
        rising += weight * slack if y[i] > 0.0 else 0.0
        falling += weight * slack if y[i] < 0.0 else 0.0
        squares += weight * slack * slack
        curved += weight if slack > 0.0 else 0.0
    return rising, falling, squares, curved


@reassociating
def fill_hinge(y, f, b, w, rise, fall, out):  # type: ignore[no-untyped-def]
    """Write the duals of the squared hinge loss; return the sums of a y and of a v."""
    linear = squares = 0.0
    for i in range(y.size):
        v = max(1.0 - y[i] * (f[i] + b), 0.0) * (rise if y[i] > 0.0 else -fall)
        a = v if w is None else w[i] * v
        out[i] = a
        linear += a * y[i]
        squares += a * v
    return linear, squares
