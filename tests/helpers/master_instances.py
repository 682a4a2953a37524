"""Instances of the master problem, and slow references for its solutions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import strategies as st

from gdm_dask.master.epsilon_insensitive import EpsilonInsensitive
from gdm_dask.master.losses import Loss, SquaredHinge
from gdm_dask.master.problem import SQUARED_HINGE, Master, MasterSolution
from gdm_dask.master.squared_loss import SquaredLoss

TOL = 1e-6
EACH_C = [1e-2, 1.0, 1e2, 1e4]


@dataclass
class Instance:
    """Raw rows (m, n), targets (K, n) or (n,), and cuts that name features by row; the paper's form by default."""

    X: np.ndarray
    y: np.ndarray
    C: float
    cuts: list[np.ndarray]
    weights: np.ndarray | None = None
    intercept: bool = False
    loss: Loss = SQUARED_HINGE

    @property
    def targets(self) -> np.ndarray:
        return np.atleast_2d(self.y)

    @property
    def w(self) -> np.ndarray:
        """Weights of the samples, literally."""
        return np.ones(self.X.shape[1]) if self.weights is None else self.weights

    def normalised(self) -> np.ndarray:
        """Return Z, literally."""
        means, norms = moments(self.X, self.weights)
        return (self.X.astype(np.float64) - means[:, None]) / norms[:, None]

    def q(self, duals: np.ndarray) -> np.ndarray:
        """Sum of squared scores of every cut."""
        c = self.normalised() @ duals.T
        return np.array([np.sum(c[cut] ** 2) for cut in self.cuts])

    def residuals(self, f: np.ndarray) -> np.ndarray:
        """R = -dl/df, literally."""
        if isinstance(self.loss, SquaredHinge):
            return self.targets * np.maximum(1 - self.targets * f, 0)
        error = self.targets - f
        return np.sign(error) * np.maximum(np.abs(error) - epsilon_of(self.loss), 0)

    def values(self, duals: np.ndarray) -> np.ndarray:
        """Upper bound on theta from every cut; for two classes g_t(alpha) of the paper."""
        quadratic = (duals[:, self.w > 0] ** 2 / (2 * self.C * self.w[self.w > 0])).sum()
        linear = np.sum(duals * self.targets) - epsilon_of(self.loss) * np.abs(duals).sum()
        return (quadratic + 0.5 * self.q(duals)) / linear**2


def epsilon_of(loss: Loss) -> float:
    return loss.epsilon if isinstance(loss, EpsilonInsensitive) else 0.0


def moments(X: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means, and norms after centring."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(X.shape[1]) if weights is None else weights
    means = (X * w).sum(axis=1) / w.sum()
    return means, np.sqrt(((X - means[:, None]) ** 2 * w).sum(axis=1))


def feed(
    instance: Instance,
    cuts: list[np.ndarray] | None = None,
    as_rows: Callable[[np.ndarray], Any] = np.asarray,
    tol: float = TOL,
) -> tuple[Master, list[int]]:
    """Return a master that holds the cuts, and the rows of its unique features."""
    master = Master(instance.y, instance.C, instance.weights, instance.loss, instance.intercept, tol)
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
    master.add_cut(features, as_rows(instance.X[new]), *moments(instance.X[new], instance.weights))


def make(kind: str, n: int, d: int, n_cuts: int, C: float, seed: int) -> Instance:
    """Draw an instance of one of several hard kinds."""
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


def widen(instance: Instance, n_outputs: int, weights: str, intercept: bool, seed: int) -> Instance:
    """Add outputs, sample weights and intercepts to the instance."""
    rng, n = np.random.default_rng(seed), instance.X.shape[1]
    classes = np.where(instance.y > 0, 0, rng.integers(1, max(2, n_outputs), n))
    y = np.where(classes == np.arange(n_outputs)[:, None], 1.0, -1.0) if n_outputs > 1 else instance.y
    w = {"none": None, "some": rng.uniform(0.2, 3.0, n), "zeros": rng.uniform(0.2, 3.0, n) * (rng.random(n) < 0.7)}[
        weights
    ]
    if w is not None:
        w[[0, -1]] = 1.0  # both classes count
        w /= w.mean()
        instance.X[np.ptp(instance.X[:, w > 0], axis=1) < 1e-9, 0] += 1.0
    return replace(instance, y=y, weights=w, intercept=intercept)


def repeated_by_weight(instance: Instance) -> tuple[Instance, np.ndarray]:
    """Repeat samples by their integer weights; returns the sample of each repetition, too."""
    assert instance.weights is not None
    repeated = np.repeat(np.arange(instance.X.shape[1]), instance.weights.astype(int))
    return replace(instance, X=instance.X[:, repeated], y=instance.targets[:, repeated], weights=None), repeated


def with_numbers(instance: Instance, loss: Loss, seed: int) -> Instance:
    """Replace the targets by numbers: a signal of a few features, noise, and an offset."""
    rng, Z, n = np.random.default_rng(seed), instance.normalised(), instance.X.shape[1]
    signal = np.sqrt(n) * rng.normal(size=(len(instance.targets), len(Z[:6]))) @ Z[:6]
    return replace(instance, y=3.0 + signal + 0.5 * rng.normal(size=signal.shape), loss=loss)


NUMBER_LOSSES: list[Loss] = [SquaredLoss(), EpsilonInsensitive(0.3)]

KINDS = ["noise", "separable", "imbalanced", "sparse", "binary", "mixed", "far from zero", "collinear"]
kinds, n_cuts, seeds = st.sampled_from(KINDS), st.integers(1, 20), st.integers(0, 9999)


def paper_optimum(instance: Instance) -> tuple[float, float]:
    """Return Clarabel's optimum of (5) as the paper has it, and the value in (5) of its alpha on the simplex."""
    n = instance.y.size
    scale = instance.values(instance.targets).max()
    used = np.unique(np.concatenate(instance.cuts))
    at = {j: k for k, j in enumerate(used)}
    alpha, c, theta, ridge = cp.Variable(n, nonneg=True), cp.Variable(used.size), cp.Variable(), cp.Variable()
    signed = instance.normalised()[used] * instance.y / np.sqrt(scale)
    constraints = [cp.sum(alpha) == 1, c == signed @ alpha]
    constraints += [0.5 * cp.sum_squares(c[[at[j] for j in cut]]) <= theta for cut in instance.cuts]
    constraints += [cp.sum_squares(alpha / np.sqrt(2 * instance.C * scale)) <= ridge]
    optimum = _solved(cp.Problem(cp.Minimize(theta + ridge), constraints))
    found = np.maximum(np.asarray(alpha.value), 0.0)
    return optimum * scale, instance.values((found / found.sum() * instance.y)[None]).max()


def residual_sizes(instance: Instance, f: Any) -> Any:
    """|R| as Clarabel takes it."""
    if isinstance(instance.loss, SquaredHinge):
        return cp.pos(1 - cp.multiply(instance.targets, f))
    return cp.pos(cp.abs(instance.targets - f) - epsilon_of(instance.loss))


def form_p_optimum(instance: Instance) -> float:
    """Return Clarabel's optimum of P."""
    Z, Y, n = instance.normalised(), instance.targets, instance.X.shape[1]
    parts = [cp.Variable((len(Y), len(cut))) for cut in instance.cuts]
    f = sum(part @ Z[cut] for part, cut in zip(parts, instance.cuts, strict=True))
    if instance.intercept:
        f = f + cp.Variable((len(Y), 1)) @ np.ones((1, n))
    slack = cp.multiply(np.sqrt(np.tile(instance.w, (len(Y), 1))), residual_sizes(instance, f))
    norms = cp.square(sum(cp.norm(part, "fro") for part in parts))
    scale = 1.0 / (instance.C * n)
    return _solved(cp.Problem(cp.Minimize(0.5 * scale * norms + 0.5 / n * cp.sum_squares(slack)))) / scale


def _solved(problem: cp.Problem) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Clarabel's status if it cannot reach its last digits
        problem.solve(cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-12, tol_feas=1e-11)
    return float(problem.value)


def assert_on_simplex(weights: np.ndarray) -> None:
    assert (weights >= 0).all()
    assert abs(weights.sum() - 1) < 1e-12


def alpha_of(solution: MasterSolution) -> np.ndarray:
    """The paper's alpha."""
    return np.abs(solution.duals[0]) / np.abs(solution.duals).sum()


def assert_certified(
    instance: Instance,
    solution: MasterSolution,
    order: list[int],
    tol: float = TOL,
) -> None:
    """Check all claims of a solution by literal dense formulas."""
    Z, A = instance.normalised()[order], solution.duals
    assert_on_simplex(solution.mu)
    f = solution.weights @ Z + solution.intercept[:, None]
    R = instance.residuals(f)
    size = np.abs(A).sum(axis=1)
    np.testing.assert_allclose(A, instance.C * instance.w * R, rtol=1e-6, atol=1e-8 * size.max())
    assert (A * R >= 0).all()
    if instance.intercept:
        assert (np.abs(A.sum(axis=1)) <= 1e-13 * size).all()
    else:
        assert not solution.intercept.any()
    values = instance.values(A)
    assert solution.upper == pytest.approx(values.max(), rel=1e-8)
    np.testing.assert_allclose(solution.scores, A @ Z.T, rtol=1e-6, atol=1e-10 * size.max())
    loss = 0.5 * instance.C * (instance.w * R**2).sum()
    assert solution.lower == pytest.approx(0.25 / (loss + 0.5 * norms_of(instance, solution, order) ** 2), rel=1e-7)
    assert solution.gap == (solution.upper - solution.lower) / solution.upper
    assert -1e-12 <= solution.gap <= tol
    # KKT: only cuts that attain the maximum have weight.
    assert (solution.mu * (solution.upper - values) <= 2 * tol * solution.upper).all()


def norms_of(instance: Instance, solution: MasterSolution, order: list[int]) -> float:
    """Sum of the norms of W_t, for the split of W by mu."""
    shares = np.zeros(len(order))
    at = [np.array([order.index(j) for j in cut]) for cut in instance.cuts]
    for t, cut in enumerate(at):
        shares[cut] += solution.mu[t]
    assert (solution.weights[:, shares == 0] == 0).all()
    ratios = solution.weights / np.where(shares > 0, shares, 1.0)
    return sum(solution.mu[t] * np.linalg.norm(ratios[:, cut]) for t, cut in enumerate(at))


def assert_agrees_with_clarabel(instance: Instance, solution: MasterSolution) -> None:
    """Compare with the paper's (5)."""
    optimum, value = paper_optimum(instance)
    # Any alpha on the simplex is worth at least the lower bound, and ours is worth as much as any other.
    assert solution.lower <= value * (1 + 1e-9)
    assert solution.upper <= value * (1 + 2 * TOL)
    assert solution.lower <= optimum * (1 + 1e-5)
    assert solution.upper >= optimum * (1 - 1e-5)


def same_bits(one: MasterSolution, other: MasterSolution) -> bool:
    fields = ["duals", "mu", "weights", "intercept", "scores"]
    same = all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in fields)
    return same and (one.upper, one.lower, one.n_newton) == (other.upper, other.lower, other.n_newton)
