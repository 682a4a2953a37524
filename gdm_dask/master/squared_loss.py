"""The squared loss, for numbers; also for the search among several classes, one output per class against the rest."""

from __future__ import annotations

import numpy as np

from gdm_dask.master.losses import Sums
from gdm_dask.system.jit import reassociating


class SquaredLoss:
    """1/2 (y - u)^2 for any numbers.

    It is curved everywhere: all outputs share one Gram matrix over all samples, and one step solves the problem.

    Examples
    --------
    >>> y, f = np.array([1.0, -1.0, 1.0]), np.array([0.5, 0.0, 2.0])
    >>> tuple(SquaredLoss().sums(y, f, 0.0, None))
    (0.5, 2.0, 2.25, 3.0)
    """

    one_gram = True

    def check(self, targets: np.ndarray) -> None:
        """Accept any finite numbers."""

    def sums(self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None) -> Sums:
        """Sum the residuals y - u and their squares."""
        return Sums(*_sum_squared(y, f, b, w))

    def fill(
        self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None, rise: float, fall: float, out: np.ndarray
    ) -> tuple[float, float]:
        """Write the duals; return the sums of a (y - b) and of a v."""
        sums: tuple[float, float] = _fill_squared(y, f, b, w, rise, fall, out)
        return sums


@reassociating
def _sum_squared(y, f, b, w):  # type: ignore[no-untyped-def]
    rising = falling = squares = curved = 0.0
    for i in range(y.size):
        residual = y[i] - b - f[i]
        weight = 1.0 if w is None else w[i]
        rising += weight * max(residual, 0.0)
        falling += weight * max(-residual, 0.0)
        squares += weight * residual * residual
        curved += weight
    return rising, falling, squares, curved


@reassociating
def _fill_squared(y, f, b, w, rise, fall, out):  # type: ignore[no-untyped-def]
    linear = squares = 0.0
    for i in range(y.size):
        residual = y[i] - b - f[i]
        v = residual * (rise if residual > 0.0 else fall)
        a = v if w is None else w[i] * v
        out[i] = a
        linear += a * (y[i] - b)
        squares += a * v
    return linear, squares
