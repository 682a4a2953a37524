"""The master problem against Clarabel, against its own certificate, and against literal dense formulas."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from gdm_dask import master_newton
from gdm_dask.master import Master, MasterSolution, Rows
from gdm_dask.simplex import find_gamma, minimise_on_simplex

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


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(kinds, st.integers(2, 150), st.integers(1, 40), n_cuts, st.floats(-2, 4), seeds)
def test_agrees_with_clarabel(kind: str, n: int, d: int, n_cuts: int, log_C: float, seed: int) -> None:
    instance = make(kind, n, d, n_cuts, 10.0**log_C, seed)
    master, order = feed(instance)
    solution = master.solve()
    assert_certified(instance, solution, order)
    assert_agrees_with_clarabel(instance, solution)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(kinds, st.integers(2, 400), st.integers(1, 60), n_cuts, st.floats(-2, 6), seeds)
def test_certificate_holds(kind: str, n: int, d: int, n_cuts: int, log_C: float, seed: int) -> None:
    instance = make(kind, n, d, n_cuts, 10.0**log_C, seed)
    master, order = feed(instance)
    assert_certified(instance, master.solve(), order)


@pytest.mark.parametrize("C", EACH_C)
@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_samples(kind: str, C: float) -> None:
    instance = make(kind, n=2000, d=30, n_cuts=8, C=C, seed=5)
    master, order = feed(instance)
    solution = master.solve()
    assert_certified(instance, solution, order)
    if C in (1.0, 1e4):
        assert_agrees_with_clarabel(instance, solution)


@pytest.mark.parametrize("C", EACH_C)
def test_two_samples(C: float) -> None:
    instance = Instance(np.array([[0.0, 1.0]]), np.array([-1.0, 1.0]), C, [np.array([0])])
    solution = feed(instance)[0].solve()
    np.testing.assert_allclose(solution.alpha, [0.5, 0.5])
    assert solution.upper == pytest.approx(0.25 + 0.25 / C)


def test_one_cut_without_pull_weighs_samples_equally() -> None:
    X, y = np.array([[1.0, -1.0, 1.0, -1.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    instance = Instance(X, y, 7.0, [np.array([0])])
    solution = feed(instance)[0].solve()
    np.testing.assert_allclose(solution.alpha, 0.25)
    assert solution.upper == pytest.approx(1 / (2 * 7.0 * 4))


@pytest.mark.parametrize("C", [*EACH_C, 1e6])
@pytest.mark.parametrize("kind", KINDS)
def test_warm_start_finds_the_optimum_of_a_cold_one(kind: str, C: float) -> None:
    instance = make(kind, n=120, d=40, n_cuts=12, C=C, seed=1)
    cold = feed(instance)[0].solve()
    master, order = feed(instance, cuts=[])
    lowers = []
    for cut in instance.cuts:
        add(master, instance, cut, order)
        lowers.append(master.solve().lower)
    warm = master.solve()
    assert_certified(instance, warm, order)
    assert max(cold.lower, warm.lower) <= min(cold.upper, warm.upper) * (1 + 1e-12)
    assert (np.diff(lowers) >= -2 * TOL * lowers[-1]).all(), "a further cut cannot lower the optimum"


def test_a_cut_that_changes_nothing_takes_no_step() -> None:
    instance = make("binary", n=1500, d=40, n_cuts=12, C=100.0, seed=3)
    master, order = feed(instance)
    solution = master.solve()
    assert solution.n_newton > 0
    add(master, instance, instance.cuts[4], order)
    again = master.solve()
    assert again.n_newton == 0
    assert again.upper == pytest.approx(solution.upper, rel=TOL)


@pytest.mark.parametrize("seed", range(5))
def test_order_of_cuts_does_not_matter(seed: int) -> None:
    instance = make("binary", n=200, d=30, n_cuts=10, C=50.0, seed=seed)
    shuffled = [instance.cuts[t] for t in np.random.default_rng(seed).permutation(10)]
    one, other = feed(instance, tol=1e-9)[0].solve(), feed(instance, shuffled, tol=1e-9)[0].solve()
    assert one.upper == pytest.approx(other.upper, rel=2e-9)
    np.testing.assert_allclose(one.alpha, other.alpha, atol=1e-6)


def test_equal_cuts_share_what_one_of_them_would_get() -> None:
    instance = make("separable", n=100, d=20, n_cuts=2, C=10.0, seed=0)
    single, double = feed(instance)[0].solve(), feed(instance, instance.cuts * 3)[0].solve()
    assert double.upper == pytest.approx(single.upper, rel=2 * TOL)


def same_bits(one: MasterSolution, other: MasterSolution) -> bool:
    fields = ["alpha", "mu", "weights", "scores"]
    bounds = (one.upper, one.lower, one.n_newton) == (other.upper, other.lower, other.n_newton)
    return bounds and all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in fields)


@pytest.mark.parametrize("kind", ["mixed", "far from zero", "sparse"])
def test_same_input_same_bits(kind: str) -> None:
    instance = make(kind, n=300, d=30, n_cuts=8, C=100.0, seed=2)
    assert same_bits(feed(instance)[0].solve(), feed(instance)[0].solve())


@pytest.mark.parametrize("kind", ["mixed", "far from zero", "sparse"])
def test_a_restored_master_goes_on_to_the_same_bits(kind: str) -> None:
    instance = make(kind, n=300, d=30, n_cuts=8, C=100.0, seed=2)
    master, order = feed(instance, cuts=[])
    for cut in instance.cuts[:5]:
        add(master, instance, cut, order)
        master.solve()
    restored, restored_order = feed(instance, instance.cuts[:5])
    restored.mu = restored.mu  # zero before the first solution, which is as good a state to restore
    restored.alpha, restored.mu = master.alpha, master.mu
    add(master, instance, instance.cuts[5], order)
    add(restored, instance, instance.cuts[5], restored_order)
    assert same_bits(master.solve(), restored.solve())


def test_number_of_cores_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make("mixed", n=200_000, d=24, n_cuts=5, C=100.0, seed=4)
    solutions = []
    for n_cores in (1, 2, 5):
        monkeypatch.setattr(os, "cpu_count", lambda n_cores=n_cores: n_cores)
        with threadpool_limits(n_cores):
            master, order = feed(instance)
            assert len(master.rows._ranges) > 1
            solutions.append(master.solve())
    assert same_bits(solutions[0], solutions[1])
    assert same_bits(solutions[0], solutions[2])
    assert_certified(instance, solutions[0], order)


@pytest.mark.parametrize("kind", ["sparse", "mixed", "binary", "noise"])
def test_sparse_and_dense_rows_agree(kind: str) -> None:
    instance = make(kind, n=500, d=30, n_cuts=8, C=100.0, seed=6)
    dense = feed(instance, tol=1e-9)[0].solve()
    for form in (sparse.csr_array, sparse.csr_matrix, lambda X: sparse.csc_array(X).tocsr()):
        other = feed(instance, as_rows=form, tol=1e-9)[0].solve()
        np.testing.assert_allclose(other.alpha, dense.alpha, rtol=1e-9, atol=1e-12)


def test_centring_in_place_of_shifts_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make("sparse", n=500, d=30, n_cuts=8, C=100.0, seed=6)
    shifted = feed(instance, tol=1e-9)[0].solve()
    monkeypatch.setattr("gdm_dask.master_rows.DENSE_FROM", -1.0)
    centred = feed(instance, tol=1e-9)[0].solve()
    np.testing.assert_allclose(shifted.alpha, centred.alpha, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool_])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_types_of_values(dtype: type, form: Callable[[np.ndarray], Any]) -> None:
    binary = make("binary", n=400, d=20, n_cuts=6, C=100.0, seed=7)
    expected = feed(binary)[0].solve()
    solution = feed(binary, as_rows=lambda X: form(X.astype(dtype)))[0].solve()
    np.testing.assert_allclose(solution.alpha, expected.alpha, rtol=1e-12)


def test_float32_far_from_zero() -> None:
    instance = make("far from zero", n=1000, d=20, n_cuts=6, C=100.0, seed=8)
    instance.X = instance.X.astype(np.float32)
    master, order = feed(instance)
    assert_certified(instance, master.solve(), order)


def test_many_samples_take_few_steps() -> None:
    rng = np.random.default_rng(0)
    n, d = 300_000, 40
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = sparse.random_array((d, n), density=0.01, rng=rng, format="csr", dtype=np.float32)
    X.data *= 1 + 0.5 * y[X.indices]
    means, squares = X.sum(axis=1) / n, X.multiply(X).sum(axis=1)
    norms = np.sqrt(squares - n * means.astype(np.float64) ** 2)
    master = Master(y, C=100.0)
    for first in range(0, d, 8):
        at = np.arange(first, first + 8)
        master.add_cut(at, X[at], means[at], norms[at])
        solution = master.solve()
        assert solution.gap <= TOL
        assert solution.n_newton <= 10


@pytest.mark.parametrize("max_steps", [0, 1, 2, 4, 7])
def test_warns_of_a_gap_that_stays_open(monkeypatch: pytest.MonkeyPatch, max_steps: int) -> None:
    instance = make("separable", n=60, d=40, n_cuts=8, C=1e7, seed=0)
    master, order = feed(instance)
    monkeypatch.setattr(master_newton, "MAX_STEPS", max_steps)
    with pytest.warns(ConvergenceWarning, match="relative gap of"):
        solution = master.solve()
    assert solution.gap > TOL
    assert_certified(instance, solution, order, tol=1.0)
    monkeypatch.undo()
    assert master.solve().gap <= TOL


def test_a_gap_below_rounding_ends_with_a_warning() -> None:
    instance = make("binary", n=200, d=30, n_cuts=8, C=1000.0, seed=0)
    master, order = feed(instance)
    with pytest.warns(ConvergenceWarning, match="relative gap of"):
        solution = master.solve(tol=1e-300)
    assert_certified(instance, solution, order, tol=1e-10)


def rows_of(X: np.ndarray, sizes: list[int]) -> Rows:
    rows, first = Rows(X.shape[1]), 0
    for size in sizes:
        part = X[first : first + size]
        rows.append(part, *moments(part))
        first += size
    return rows


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kinds, st.integers(2, 60), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 999))
def test_products_of_rows(kind: str, n: int, sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = sum(sizes)
    instance = make(kind, n, d + 1, 1, 1.0, seed)
    instance.X = instance.X[:d]
    Z, rows, out = instance.normalised(), rows_of(instance.X, sizes), np.empty(n)
    weights, a = rng.normal(size=d), rng.normal(size=n)
    rows.project(weights, out)
    np.testing.assert_allclose(out, Z.T @ weights, atol=1e-9)
    np.testing.assert_allclose(rows.scores(a), Z @ a, atol=1e-9)
    change = rng.integers(-1, 2, n).astype(np.int8)
    gram, signed = rows.gram(change, instance.y)
    np.testing.assert_allclose(gram, (Z * change) @ Z.T, atol=1e-9)
    np.testing.assert_allclose(signed, Z @ (change * instance.y), atol=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(-6, 6), st.integers(0, 999))
def test_minimum_on_the_simplex(size: int, rank: int, log_scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, rank)) * 10**log_scale
    hessian, linear, start = root @ root.T, rng.normal(size=size), rng.random(size)
    start[rng.random(size) < 0.5] = 0.0
    start[0] += 0.1
    x = minimise_on_simplex(hessian, linear, start / start.sum())
    slopes = linear - hessian @ x
    assert_on_simplex(x)
    # Optimal over the simplex: no entry promises more than the mean of those in use.
    assert slopes.max() - slopes @ x <= 1e-7 * (1 + np.abs(hessian).max())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.floats(-3, 8), st.floats(-10, 10), st.integers(0, 999))
def test_gamma(n: int, log_C: float, start: float, seed: int) -> None:
    margins = np.random.default_rng(seed).normal(size=n).round(1)
    C = 10.0**log_C
    assert find_gamma(margins, C, start) == pytest.approx(gamma_by_sorting(margins, C), rel=1e-12, abs=1e-14)


def test_refuses_what_it_cannot_use() -> None:
    row, mean, norm = np.array([[0.0, 1.0, 2.0]]), np.array([1.0]), np.array([2**0.5])
    y = np.array([-1, 1, 1])
    bad_arguments = [(y[:0], 1.0, 0.1), (y * 0, 1.0, 0.1), (y, 0.0, 0.1), (y, np.inf, 0.1), (y, 1.0, 0.0)]
    for labels, C, tol in bad_arguments:
        with pytest.raises(ValueError, match="must"):
            Master(labels, C, tol)
    master = Master(y, 1.0)
    with pytest.raises(ValueError, match="add a cut"):
        master.solve()
    bad_cuts: list[tuple[str, list[int], np.ndarray, np.ndarray, np.ndarray]] = [
        ("shape", [0], row[:, :2], mean, norm),
        ("as many means", [0], row, mean[:0], norm),
        ("constant", [0], row, mean, 0 * norm),
        ("finite", [0], row * np.nan, mean, norm),
        ("positions", [1], row, mean, norm),
        ("positions", [], row, mean, norm),
        ("once", [0, 0], row, mean, norm),
    ]
    for match, features, *new in bad_cuts:
        with pytest.raises(ValueError, match=match):
            master.add_cut(np.array(features), *new)
    assert master.rows.n_rows == 0
    assert not master.cuts
    master.add_cut(np.array([0]), row, mean, norm)
    with pytest.raises(ValueError, match="alpha must hold 3"):
        master.alpha = np.ones(3)
    with pytest.raises(ValueError, match="mu must hold 1"):
        master.mu = np.array([0.5, 0.5])
    with pytest.raises(ValueError, match="tol"):
        master.solve(tol=-1.0)
