"""The epsilon-insensitive squared loss, for numbers of limited accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.master.losses import Sums
from gdm_dask.system.jit import reassociating


@dataclass(frozen=True)
class EpsilonInsensitive:
    """1/2 (|y - u| - epsilon)_+^2 for any numbers: errors up to epsilon cost nothing.

    Parameters
    ----------
    epsilon : float
        In units of the targets.

    Examples
    --------
    >>> y, f = np.array([1.0, -1.0, 1.0]), np.array([0.5, 0.0, 2.0])
    >>> tuple(EpsilonInsensitive(0.5).sums(y, f, 0.0, None))
    (0.0, 1.0, 0.5, 2.0)
    """

    epsilon: float
    one_gram = False

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < np.inf:
            raise ValueError(f"`epsilon` must be a finite number >= 0, got {self.epsilon}")

    def check(self, targets: np.ndarray) -> None:
        """Accept any finite numbers."""

    def sums(self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None) -> Sums:
        """Sum the residuals beyond epsilon and their squares."""
        return Sums(*_sum_epsilon(y, f, b, w, self.epsilon))

    def fill(
        self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None, rise: float, fall: float, out: np.ndarray
    ) -> tuple[float, float]:
        """Write the duals; return the sums of a (y - b) - epsilon |a| and of a v."""
        sums: tuple[float, float] = _fill_epsilon(y, f, b, w, self.epsilon, rise, fall, out)
        return sums


@reassociating
def _sum_epsilon(y, f, b, w, epsilon):  # type: ignore[no-untyped-def]
    rising = falling = squares = curved = 0.0
    for i in range(y.size):
        residual = y[i] - b - f[i]
        beyond = max(abs(residual) - epsilon, 0.0)
        weight = 1.0 if w is None else w[i]
        rising += weight * beyond if residual > 0.0 else 0.0
        falling += weight * beyond if residual < 0.0 else 0.0
        squares += weight * beyond * beyond
        curved += weight if beyond > 0.0 else 0.0
    return rising, falling, squares, curved


@reassociating
def _fill_epsilon(y, f, b, w, epsilon, rise, fall, out):  # type: ignore[no-untyped-def]
    linear = squares = 0.0
    for i in range(y.size):
        residual = y[i] - b - f[i]
        v = max(abs(residual) - epsilon, 0.0) * (rise if residual > 0.0 else -fall)
        a = v if w is None else w[i] * v
        out[i] = a
        linear += a * (y[i] - b) - epsilon * abs(a)
        squares += a * v
    return linear, squares
