"""The master problem with its active samples held fixed: a problem in the features and the cuts alone.

Near given weights, the samples with alpha_i > 0 are known, and the scores are linear in the weights:
c(w) = pull - C * G w, with G the covariance of the active samples. What remains of the master problem,

    min over w of  1/2 (sum_t ||w_t||)^2 - pull . w + C/2 w' G w,

knows nothing of the samples. With weights mu in the simplex over the cuts, and s_j^2 the sum of mu_t over the
cuts that hold feature j, its solution is w = S^2 c, and it is left to maximise the concave value

    1/2 pull' S (I + C S G S)^-1 S pull

in mu. Its gradient is half of q_t = ||c_{S_t}||^2, and its Hessian is known, so a few quadratic programmes
over the simplex do it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from gdm_dask.simplex import minimise_on_simplex

MAX_ROUNDS = 100
ARMIJO = 1e-4
"""Part of the gain that the slope promises which a step must bring."""
SHORTEST = 1e-4
ROUNDING = 1e-12
"""Below this part of the value its changes mean nothing; there the gap decides, which is of first order."""


@dataclass(frozen=True)
class Model:
    """Scores as a function of the weights while the active samples stay the same.

    Attributes
    ----------
    members : (d, T) array
        1 where cut t holds feature j, 0 elsewhere.
    covariance : (d, d) array
        G, the sum over the active samples of (x_i - mean)(x_i - mean)', where x_i = y_i z_i.
    pull : (d,) array
        Scores at w = 0.
    C : float
    """

    members: np.ndarray
    covariance: np.ndarray
    pull: np.ndarray
    C: float

    def at(self, mu: np.ndarray) -> ModelPoint:
        """Solve for the weights that go with the weights `mu` of the cuts."""
        scale = np.sqrt(self.members @ mu)
        system = self.C * (scale[:, None] * self.covariance * scale)
        system.flat[:: scale.size + 1] += 1.0
        factor = cholesky(system, lower=True, overwrite_a=True, check_finite=False)
        half = solve_triangular(factor, scale * self.pull, lower=True, check_finite=False)
        w = scale * solve_triangular(factor, half, lower=True, trans=1, check_finite=False)
        c = self.pull - self.C * (self.covariance @ w)
        return ModelPoint(mu, scale, factor, w, c, c**2 @ self.members, 0.5 * (half @ half))

    def curvature(self, point: ModelPoint) -> np.ndarray:
        """Return the (T, T) negative Hessian of the value in mu."""
        columns = self.members * point.c[:, None]
        images = self.covariance @ columns
        scaled = point.scale[:, None] * images
        whitened = solve_triangular(point.factor, scaled, lower=True, check_finite=False)
        return self.C * (columns.T @ images) - self.C**2 * (whitened.T @ whitened)


@dataclass(frozen=True)
class ModelPoint:
    """Solution of a model for given weights of the cuts, with the factor that its derivatives need."""

    mu: np.ndarray
    scale: np.ndarray
    factor: np.ndarray
    w: np.ndarray
    c: np.ndarray
    q: np.ndarray
    value: float

    @property
    def gap(self) -> float:
        """What the value may still gain: it is concave in mu, with gradient q / 2."""
        return 0.5 * float(self.q.max() - self.mu @ self.q)


def solve_model(model: Model, mu: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Maximise the value of a model over the weights of the cuts.

    Parameters
    ----------
    model : Model
    mu : (T,) array
        Where to start, on the simplex.
    tol : float
        Gap at which to stop, absolute.

    Returns
    -------
    w : (d,) array
    mu : (T,) array
    n_rounds : int
    """
    point = model.at(mu)
    for rounds in range(MAX_ROUNDS):
        if point.gap <= tol:
            return point.w, point.mu, rounds
        curvature = model.curvature(point)
        goal = minimise_on_simplex(curvature, 0.5 * point.q + curvature @ point.mu, point.mu)
        trial = _search(model, point, goal)
        if trial is None:
            break
        point = trial
    return point.w, point.mu, rounds


def _search(model: Model, point: ModelPoint, goal: np.ndarray) -> ModelPoint | None:
    """Return a point on the way to `goal` that is better, or None if rounding hides any."""
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
