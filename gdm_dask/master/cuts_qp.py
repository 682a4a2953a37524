"""The master problem for fixed active samples: a problem in the features and cuts alone.

Near given weights, the active samples of each output k are known, and the scores are linear in the weights:
c_k(W) = pull_k - C * G_k w_k, with G_k the covariance of the active samples. The remaining problem,

    min over W of  1/2 (sum_t ||W_t||)^2 + sum_k (C/2 w_k' G_k w_k - pull_k . w_k),

does not involve the samples. With weights mu in the simplex over the cuts, and s_j^2 the sum of mu_t over the
cuts that hold feature j, its solution is w_k = S^2 c_k, and it remains to maximise the concave value

    1/2 sum_k pull_k' S (I + C S G_k S)^-1 S pull_k

in mu. Its gradient is half of q_t = sum_k ||c_k,S_t||^2, and its Hessian is known, so a few quadratic programmes
over the simplex suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dgemv
from scipy.linalg.lapack import dgesv, dpotrf, dpotrs

from gdm_dask.errors import BadInput

MAX_ROUNDS = 100
ARMIJO = 1e-4
"""Part of the gain predicted by the slope that a step must achieve."""
SHORTEST = 1e-4
RIDGE = 1e-12
"""Part of the mean curvature added to every direction."""
ROUNDING = 1e-12
"""Changes of the value below this part of it are rounding errors; there the gap decides, which is of first order."""


@dataclass(frozen=True)
class Model:
    """Scores as a function of the weights while the active samples stay the same."""

    members: np.ndarray  # 1 where cut t holds feature j, 0 elsewhere, (d, T)
    covariances: list[np.ndarray]  # G_k of each output, (d, d); may be the same array for all
    pull: np.ndarray  # scores at W = 0, (K, d)
    C: float

    def at(self, mu: np.ndarray) -> ModelPoint:
        """Solve for the weights of the features, given the weights `mu` of the cuts."""
        scale = np.sqrt(self.members @ mu)
        W, c, value = np.empty_like(self.pull), np.empty_like(self.pull), 0.0
        factors: list[np.ndarray] = []
        for k, (pull, covariance) in enumerate(zip(self.pull, self.covariances, strict=True)):
            is_known = k > 0 and covariance is self.covariances[k - 1]
            factors.append(factors[-1] if is_known else self._factor(covariance, scale))
            solution, _ = dpotrs(factors[k], scale * pull, lower=True)
            W[k] = scale * solution
            c[k] = pull - self.C * (covariance @ W[k])
            value += 0.5 * float(pull @ W[k])
        return ModelPoint(mu, scale, factors, W, c, (c**2 @ self.members).sum(axis=0), value)

    def _factor(self, covariance: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return the Cholesky factor of I + C S G S."""
        system = self.C * covariance if (scale == 1.0).all() else self.C * (scale[:, None] * covariance * scale)
        system.flat[:: scale.size + 1] += 1.0
        factor: np.ndarray
        factor, failed = dpotrf(system.T, lower=True, overwrite_a=True)
        if failed:
            raise BadInput("a Hessian is singular to machine precision: pass a smaller `C`, or smaller sample weights")
        return factor

    def curvature(self, point: ModelPoint) -> np.ndarray:
        """Return the (T, T) negative Hessian of the value in mu."""
        curvature = np.zeros((point.mu.size, point.mu.size))
        for c, covariance, factor in zip(point.c, self.covariances, point.factors, strict=True):
            columns = self.members * c[:, None]
            images = covariance @ columns
            whitened = solve_triangular(factor, point.scale[:, None] * images, lower=True, check_finite=False)
            curvature += self.C * (columns.T @ images) - self.C**2 * (whitened.T @ whitened)
        return curvature


@dataclass(frozen=True)
class ModelPoint:
    """Solution of a model for given weights of the cuts, with the factors for its derivatives."""

    mu: np.ndarray
    scale: np.ndarray
    factors: list[np.ndarray]
    W: np.ndarray
    c: np.ndarray
    q: np.ndarray
    value: float

    @property
    def gap(self) -> float:
        """Bound on the further gain of the value, which is concave in mu with gradient q / 2."""
        return 0.5 * float(self.q.max() - self.mu @ self.q)


def solve_model(model: Model, mu: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """Maximise the value of a model over the weights of the cuts, to an absolute gap; start from `mu` on the simplex.

    Returns the weights of the features (K, d) and of the cuts (T,).
    """
    point = model.at(mu)
    for _ in range(MAX_ROUNDS):
        if point.gap <= tol:
            break
        curvature = model.curvature(point)
        goal = minimise_on_simplex(curvature, 0.5 * point.q + curvature @ point.mu, point.mu)
        trial = _search(model, point, goal)
        if trial is None:
            break
        point = trial
    return point.W, point.mu


def _search(model: Model, point: ModelPoint, goal: np.ndarray) -> ModelPoint | None:
    """Return a better point on the way to `goal`, or None if rounding hides any."""
    slope = 0.5 * float(point.q @ (goal - point.mu))
    step = 1.0
    while step > SHORTEST:
        trial = model.at(point.mu + step * (goal - point.mu))
        gain = trial.value - point.value
        if gain >= ARMIJO * step * slope > 0:
            return trial
        if gain >= -ROUNDING * point.value and trial.gap < 0.5 * point.gap:
            return trial
        step *= 0.5
    return None


def minimise_on_simplex(hessian: np.ndarray, linear: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Minimise 1/2 x' H x - b' x over x >= 0, sum x = 1.

    Keeps a set of free entries; the others are zero. Each round moves to the minimum over the free entries, stopping at
    the first entry that reaches zero, which is then no longer free; at a minimum, the most promising entry is freed.
    Follows Lawson and Hanson's method for nonnegative least squares.

    Parameters
    ----------
    hessian : (T, T) array
        Positive semidefinite H.
    linear : (T,) array
        b.
    start : (T,) array
        A point of the simplex, preferably near the solution.

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
    x = start / _sum(start)
    free = x > 0.0
    mean = _sum(np.diagonal(hessian)) / size + 1e-300
    # If H is singular, for example because of equal cuts, the entries stay near the start. Adding a constant to all of
    # H changes nothing on the simplex and makes an H that is singular only across the simplex well conditioned.
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
        gain = linear - dgemv(1.0, hessian.T, x, trans=1) - multiplier
        gain[at] = 0.0
        best = int(np.argmax(gain))
        if gain[best] <= slack:
            break
        free[best] = True
    return x / _sum(x)


def _sum(values: np.ndarray) -> float:
    """Sum the values one by one: numpy's own sum gives different bits on different processors."""
    return float(np.add.accumulate(values)[-1])


def _minimise_freely(hessian: np.ndarray, linear: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimise over the entries `at` under sum x = 1 alone; return them and the multiplier of the sum."""
    sides = np.ones((2, at.size))
    sides[0] = linear[at]
    _, _, solved, failed = dgesv(hessian[np.ix_(at, at)], sides.T)
    if failed:
        raise BadInput("a Hessian is singular to machine precision: pass a smaller `C`, or smaller sample weights")
    multiplier = (_sum(solved[:, 0]) - 1.0) / _sum(solved[:, 1])
    return solved[:, 0] - multiplier * solved[:, 1], multiplier


def _move_until_zero(x: np.ndarray, free: np.ndarray, at: np.ndarray, target: np.ndarray) -> None:
    """Move the free entries of `x` towards `target`, until the first reach zero and are no longer free."""
    here, falls = x[at], target < 0.0
    step = min(1.0, float((here[falls] / (here[falls] - target[falls])).min()))
    moved = here + step * (target - here)
    is_out = falls & (moved <= 1e-15)
    moved[is_out] = 0.0
    free[at[is_out]] = False
    x[at] = moved
