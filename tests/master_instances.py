"""Instances of the master problem, and the slow truths that its solutions are held against."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import strategies as st

from gdm_dask.master import Master, MasterSolution

TOL = 1e-6
EACH_C = [1e-2, 1.0, 1e2, 1e4]


@dataclass
class Instance:
    """Raw rows (m, n), labels, and cuts that name their features by row."""

    X: np.ndarray
    y: np.ndarray
    C: float
    cuts: list[np.ndarray]

    def normalised(self) -> np.ndarray:
        """Return Z, literally."""
        means, norms = moments(self.X)
        return (self.X.astype(np.float64) - means[:, None]) / norms[:, None]

    def values(self, alpha: np.ndarray) -> np.ndarray:
        """g_t(alpha) of every cut."""
        c = self.normalised() @ (alpha * self.y)
        return np.array([0.5 * np.sum(c[cut] ** 2) for cut in self.cuts]) + alpha @ alpha / (2 * self.C)


def moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    X = np.asarray(X, dtype=np.float64)
    means = X.mean(axis=1) if X.shape[0] else np.zeros(0)
    return means, np.sqrt(((X - means[:, None]) ** 2).sum(axis=1))


def feed(
    instance: Instance,
    cuts: list[np.ndarray] | None = None,
    as_rows: Callable[[np.ndarray], Any] = np.asarray,
    tol: float = TOL,
) -> tuple[Master, list[int]]:
    """Return a master that holds the cuts, and the rows of its unique features."""
    master = Master(instance.y, instance.C, tol)
    order: list[int] = []
    for cut in instance.cuts if cuts is None else cuts:
        add(master, instance, cut, order, as_rows)
    return master, order


def add(
    master: Master,
    instance: Instance,
    cut: np.ndarray,
    order: list[int],
    as_rows: Callable[[np.ndarray], Any] = np.asarray,
) -> None:
    new = [j for j in cut if j not in order]
    order.extend(new)
    features = np.array([order.index(j) for j in cut])
    master.add_cut(features, as_rows(instance.X[new]), *moments(instance.X[new]))


def make(kind: str, n: int, d: int, n_cuts: int, C: float, seed: int) -> Instance:
    """Draw an instance of one of the kinds that are hard in their own way."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < (0.99 if kind == "imbalanced" else 0.5), 1.0, -1.0)
    y[0], y[-1] = 1.0, -1.0
    X = rng.normal(size=(d, n))
    if kind == "separable":
        X += 3.0 * y * rng.normal(size=(d, 1))
    elif kind == "sparse":
        X = rng.random((d, n)) * (rng.random((d, n)) < 0.1)
    elif kind == "binary":
        X = (rng.random((d, n)) < 0.3 + 0.1 * y * rng.uniform(-1, 1, (d, 1))).astype(np.float64)
    elif kind == "mixed":
        X[::2] = rng.random(X[::2].shape) < 0.1
    elif kind == "far from zero":
        X += 1e6
    elif kind == "collinear":
        X = X[rng.integers(0, max(1, d // 3), d)] + 1e-6 * X
    X[np.ptp(X, axis=1) < 1e-9, 0] += 1.0
    cuts = [rng.choice(d, size=rng.integers(1, min(d, 6) + 1), replace=False) for _ in range(n_cuts)]
    if n_cuts > 2:
        cuts[1] = cuts[0]
    return Instance(X, y, C, cuts)


KINDS = ["noise", "separable", "imbalanced", "sparse", "binary", "mixed", "far from zero", "collinear"]
kinds, n_cuts, seeds = st.sampled_from(KINDS), st.integers(1, 20), st.integers(0, 9999)


def clarabel(instance: Instance) -> tuple[float, float]:
    """Return Clarabel's optimum of (5), and the value in (5) of its alpha once that is put on the simplex."""
    n = instance.y.size
    scale = instance.values(np.full(n, 1 / n)).max()
    used = np.unique(np.concatenate(instance.cuts))
    at = {j: k for k, j in enumerate(used)}
    alpha, c, theta, ridge = cp.Variable(n, nonneg=True), cp.Variable(used.size), cp.Variable(), cp.Variable()
    signed = instance.normalised()[used] * instance.y / np.sqrt(scale)
    constraints = [cp.sum(alpha) == 1, c == signed @ alpha]
    constraints += [0.5 * cp.sum_squares(c[[at[j] for j in cut]]) <= theta for cut in instance.cuts]
    constraints += [cp.sum_squares(alpha / np.sqrt(2 * instance.C * scale)) <= ridge]
    problem = cp.Problem(cp.Minimize(theta + ridge), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Clarabel says so when it cannot reach its last digits
        problem.solve(cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-12, tol_feas=1e-11)
    found = np.maximum(np.asarray(alpha.value), 0.0)
    return problem.value * scale, instance.values(found / found.sum()).max()


def assert_on_simplex(weights: np.ndarray) -> None:
    assert (weights >= 0).all()
    assert abs(weights.sum() - 1) < 1e-12


def assert_certified(
    instance: Instance,
    solution: MasterSolution,
    order: list[int],
    tol: float = TOL,
) -> None:
    """Check all that a solution claims by literal dense formulas."""
    Z, y = instance.normalised(), instance.y
    assert_on_simplex(solution.alpha)
    assert_on_simplex(solution.mu)
    values = instance.values(solution.alpha)
    assert solution.upper == pytest.approx(values.max(), rel=1e-8)
    np.testing.assert_allclose(solution.scores, (Z @ (solution.alpha * y))[order], rtol=1e-6, atol=1e-10)
    assert solution.lower == pytest.approx(dual_value(instance, solution, order), rel=1e-7)
    assert solution.gap == (solution.upper - solution.lower) / solution.upper
    assert -1e-12 <= solution.gap <= tol
    # KKT: only cuts that attain the maximum have weight.
    assert (solution.mu * (solution.upper - values) <= 2 * tol * solution.upper).all()


def dual_value(instance: Instance, solution: MasterSolution, order: list[int]) -> float:
    """Return the value of the dual of (5), with gamma by sorting."""
    shares = np.zeros(len(order))
    at = [np.array([order.index(j) for j in cut]) for cut in instance.cuts]
    for t, cut in enumerate(at):
        shares[cut] += solution.mu[t]
    ratios = np.divide(solution.weights, shares, out=np.zeros_like(shares), where=shares > 0)
    assert (solution.weights[shares == 0] == 0).all()
    norms = [solution.mu[t] * np.linalg.norm(ratios[cut]) for t, cut in enumerate(at)]
    margins = instance.y * (instance.normalised()[order].T @ solution.weights)
    gamma = gamma_by_sorting(margins, instance.C)
    return gamma - 0.5 * instance.C * np.sum(np.maximum(gamma - margins, 0) ** 2) - 0.5 * sum(norms) ** 2


def gamma_by_sorting(margins: np.ndarray, C: float) -> float:
    ordered = np.sort(margins)
    gammas = (np.cumsum(ordered) + 1 / C) / np.arange(1, margins.size + 1)
    return gammas[np.flatnonzero(gammas > ordered)[-1]]


def assert_agrees_with_clarabel(instance: Instance, solution: MasterSolution) -> None:
    optimum, value = clarabel(instance)
    # Any alpha on the simplex is worth at least the lower bound, and ours is worth as much as any other.
    assert solution.lower <= value * (1 + 1e-9)
    assert solution.upper <= value * (1 + 2 * TOL)
    assert solution.lower <= optimum * (1 + 1e-5)
    assert solution.upper >= optimum * (1 - 1e-5)
