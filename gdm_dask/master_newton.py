"""Newton's method for the master problem, on its dual in the weights of the features.

With margins m_i = y_i w . z_i, weak duality bounds the optimum of (5) from below by

    L(w) = min over alpha in the simplex of (alpha . m + 1/(2C) ||alpha||^2)  -  1/2 (sum_t ||w_t||)^2

whatever the split w = sum_t w_t. The minimiser alpha(w) = C (gamma - m)_+ is closed form, and its own value
in (5) is the bound from above. The first part of L is piecewise quadratic: its pieces are the sets of active
samples, those with alpha_i > 0. A step maximises L with the present piece extended everywhere, which takes
the samples out of the problem (see `master_model`), so that they are passed over a few times only:

- once for the margins and once for the scores of every step;
- once for the Gram matrix of the active samples, or of all where most are active, and then for the samples
  that enter or leave. Sums over all samples are kept: new features add their own to them.
"""

from __future__ import annotations

import numpy as np

from gdm_dask.compiled import compiled
from gdm_dask.master_gram import Moments
from gdm_dask.master_model import Model, solve_model
from gdm_dask.master_rows import Rows
from gdm_dask.simplex import Excess, add_excess, fill_alpha, find_gamma, measure_excess
from gdm_dask.work_space import page_aligned

MAX_STEPS = 500
LOOSE = 0.01
"""Gap at which the problem for a smaller C has done its service."""
STRIDE, SHORTEST_STRIDE = 10.0, 1.01
"""Factors from one C to the next."""
ROUNDING = 1e-13
"""A fall of the lower bound by this part of it is rounding."""


class Newton:
    """Iterates on a master problem, and the buffers that they share.

    Parameters
    ----------
    rows : Rows
        The d unique features.
    y : (n,) array
        Labels.

    Attributes
    ----------
    w : (d,) array
        Weights of the features.
    mu : (T,) array
        Weights of the cuts.
    c : (d,) array
        Scores at the weights alpha of the samples that belong to `w`.
    lower, upper, gap : float
        Bounds on the optimum from `w` and from alpha, and their distance relative to `upper`.
    n_steps, n_rounds : int
        Newton steps, and quadratic programmes in mu within them.
    """

    def __init__(self, rows: Rows, y: np.ndarray) -> None:
        n = rows.n_samples
        self.rows, self.y = rows, y
        self._margins, self._trial, self._signed = _vector(n), _vector(n), _vector(n)
        self._active, self._change = np.empty(n, dtype=np.int8), np.empty(n, dtype=np.int8)
        self._totals = Moments.zeros(0)

    def solve(self, members: np.ndarray, w: np.ndarray, mu: np.ndarray, C: float, tol: float) -> None:
        """Iterate from (w, mu) until the gap is at most `tol`, or as far as rounding lets it.

        Where full steps fail, as they may for a large C and few active samples, C is approached from below.

        Parameters
        ----------
        members : (d, T) array
            1 where cut t holds feature j, 0 elsewhere.
        w : (d,) array
            Weights of the features, zero where no cut with mu_t > 0 holds the feature.
        mu : (T,) array
            Weights of the cuts, on the simplex.
        C, tol : float
        """
        self.members = members
        self.n_steps = self.n_rounds = 0
        # Sums that were carried over would bear the rounding of the way they took.
        self._active[:] = 0
        if self._iterate(w, mu, C, tol):
            return
        stalled = self.gap, self.w, self.mu
        if self._approach(w, mu, C, tol):
            return
        _, w, mu = min(stalled, (self.gap, self.w, self.mu), key=lambda state: state[0])
        self._place(w, mu, C)

    def _approach(self, w: np.ndarray, mu: np.ndarray, C: float, tol: float) -> bool:
        """Solve for a smaller C first, then for larger ones, with shorter strides where they fail.

        For a small C all samples are active and one step suffices; from there on, the active samples change
        little at a time, and those of one C predict the solution for the next.
        """
        smaller = C / STRIDE
        while not self._iterate(w, mu, smaller, LOOSE) and self.n_steps < MAX_STEPS:
            smaller /= STRIDE
        stride = STRIDE
        while stride > SHORTEST_STRIDE and self.n_steps < MAX_STEPS:
            reached = self.w, self.mu, self.C
            C_next = min(C, stride * self.C)
            if self._iterate(*self._predict(C_next), C_next, tol if C_next == C else LOOSE):
                if C_next == C:
                    return True
                stride = min(STRIDE, stride**2)
            else:
                stride **= 0.5
                self._place(*reached)
        return self._iterate(self.w, self.mu, C, tol, shortest=0.0)

    def _iterate(self, w: np.ndarray, mu: np.ndarray, C: float, tol: float, shortest: float = 0.2) -> bool:
        """Take Newton steps until the gap is at most `tol`, or one must be shorter than allowed."""
        self._place(w, mu, C)
        while self.gap > tol:
            if self.n_steps >= MAX_STEPS or not self._step(tol, shortest):
                return False
        return True

    def _place(self, w: np.ndarray, mu: np.ndarray, C: float) -> None:
        """Start from given weights."""
        self.C, self._gamma = C, -np.inf
        self._project(w, self._margins)
        self.w, self.mu, self.lower = w, mu, self._evaluate(w, mu, self._margins)
        self._certify()

    def _project(self, w: np.ndarray, margins: np.ndarray) -> None:
        self.rows.project(w, margins, self.y)

    def _evaluate(self, w: np.ndarray, mu: np.ndarray, margins: np.ndarray) -> float:
        """Make alpha that of the given weights; return the lower bound."""

        def excess(gamma: float) -> Excess:
            parts = self.rows.over_ranges(lambda begin, end: measure_excess(margins[begin:end], gamma))
            return add_excess(parts)

        self._gamma, found = find_gamma(excess, self.C, self._gamma)
        self._total = found.total
        self._ridge = found.squared / found.total**2 / (2.0 * self.C)
        return found.along / found.total + self._ridge - 0.5 * sum_of_norms(w, mu, self.members) ** 2

    def _certify(self) -> None:
        """Find the scores at alpha and the upper bound."""
        margins, gamma, scale = self._margins, self._gamma, 1.0 / self._total
        y, signed = self.y, self._signed

        def fill(begin: int, end: int) -> None:
            fill_alpha(margins[begin:end], gamma, scale, y[begin:end], signed[begin:end])

        self.rows.over_ranges(fill)
        self.c = self.rows.scores(signed)
        self.upper = 0.5 * float((self.c**2 @ self.members).max()) + self._ridge
        self.gap = (self.upper - self.lower) / self.upper

    def scores(self, alpha: np.ndarray) -> np.ndarray:
        """Return the scores at other weights of the samples, whose products with the labels replace those held."""
        self._times_labels(alpha, self._signed)
        return self.rows.scores(self._signed)

    @property
    def alpha(self) -> np.ndarray:
        """Weights of the samples that belong to `w`, in an array of their own."""
        alpha = _vector(self.rows.n_samples)
        self._times_labels(self._signed, alpha)
        return alpha

    def _times_labels(self, vector: np.ndarray, out: np.ndarray) -> None:
        y = self.y
        self.rows.over_ranges(lambda begin, end: np.multiply(vector[begin:end], y[begin:end], out=out[begin:end]))

    def _step(self, tol: float, shortest: float) -> bool:
        """Take one Newton step; return False if it brings nothing, or must be shorter than allowed."""
        w, mu = self._solve_model(tol)
        self._project(w, self._trial)
        gap, step = self.gap, 1.0
        while True:
            lower = self._evaluate(w, mu, self._trial)
            if lower >= self.lower - ROUNDING * abs(self.lower):
                break
            step *= 0.5
            if step < max(shortest, 1e-12):
                return False
            w, mu = 0.5 * (self.w + w), 0.5 * (self.mu + mu)
            self._trial += self._margins
            self._trial *= 0.5
        rises = lower > self.lower + ROUNDING * abs(self.lower)
        self._margins, self._trial = self._trial, self._margins
        self.w, self.mu, self.lower = w, mu, lower
        self._certify()
        self.n_steps += 1
        return rises or self.gap < gap

    def _solve_model(self, tol: float) -> tuple[np.ndarray, np.ndarray]:
        """Maximise the lower bound as if the active samples stayed the same."""
        covariance, mean = self._active_moments()
        model = Model(self.members, covariance, self.c + self.C * (covariance @ self.w), self.C)
        accuracy = 0.1 * tol
        if self.rows.n_samples < mean.size**2:  # a pass costs less than a quadratic programme
            accuracy = max(accuracy, 0.1 * self.gap * min(self.gap, 1.0))
        w, mu, rounds = solve_model(model, self.mu, accuracy * self.upper)
        self.n_rounds += rounds
        return w, mu

    def _predict(self, C: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights that are best for another C if the active samples stay the same."""
        covariance, mean = self._active_moments()
        w, mu, rounds = solve_model(Model(self.members, covariance, mean, C), self.mu, LOOSE**2 * self.upper)
        self.n_rounds += rounds
        return w, mu

    def _active_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of (x_i - mean)(x_i - mean)' over the active x_i = y_i z_i, and their mean."""
        n_active = self._update_gram()
        mean = self._sum / n_active
        covariance = self._gram - np.outer(self._sum, mean)
        # Rounding must not make it indefinite; whatever the matrix, a fixed point of the step is a solution.
        covariance.flat[:: mean.size + 1] += 1e-15 * np.trace(covariance)
        return covariance, mean

    def _update_gram(self) -> int:
        """Bring the Gram matrix up to the active samples; return their number."""
        signed, active, change = self._signed, self._active, self._change

        def compare(begin: int, end: int) -> tuple[int, int]:
            return _compare(signed[begin:end], active[begin:end], change[begin:end])

        n_active, n_changed = map(sum, zip(*self.rows.over_ranges(compare), strict=True))
        if n_changed >= n_active:
            self._gram, self._sum = self._new_gram(n_active)
        elif n_changed:
            gram, signed = self.rows.gram(self._change, self.y)
            self._gram += gram
            self._sum += signed
        return n_active

    def _new_gram(self, n_active: int) -> tuple[np.ndarray, np.ndarray]:
        """Sum over the active samples, or over all less those that are not active, if these are fewer."""
        if not self.rows.is_sparse or 2 * n_active < self._active.size:
            self._change[:] = self._active
            return self.rows.gram(self._change, self.y)
        self._totals = self.rows.totals(self._totals, self.y)
        np.subtract(self._active, 1, out=self._change)
        return self.rows.gram(self._change, self.y, self._totals)


def _vector(length: int) -> np.ndarray:
    """Fresh memory for a vector over the samples."""
    return page_aligned(8 * length).view(np.float64)


def sum_of_norms(w: np.ndarray, mu: np.ndarray, members: np.ndarray) -> float:
    """Return sum_t ||w_t|| for the split of w in which cut t gets mu_t / s_j^2 of feature j.

    Parameters
    ----------
    w : (d,) array
        Zero where no cut with mu_t > 0 holds the feature.
    mu : (T,) array
    members : (d, T) array

    Returns
    -------
    float
    """
    shares = members @ mu
    ratios = np.divide(w, shares, out=np.zeros_like(w), where=shares > 0)
    return float(mu @ np.sqrt(ratios**2 @ members))


@compiled
def _compare(signed: np.ndarray, active: np.ndarray, change: np.ndarray) -> tuple[int, int]:
    """Update the mask of the active samples and write how it changed; return both counts."""
    n_active, n_changed = 0, 0
    for i in range(signed.size):
        now = signed[i] != 0.0
        change[i] = np.int8(now) - active[i]
        active[i] = now
        n_active += now
        n_changed += change[i] != 0
    return n_active, n_changed
