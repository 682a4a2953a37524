"""The master problem against Clarabel, against its own certificate, and against literal dense formulas."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from helpers.master_instances import (
    EACH_C,
    KINDS,
    TOL,
    Instance,
    add,
    alpha_of,
    assert_agrees_with_clarabel,
    assert_certified,
    feed,
    kinds,
    make,
    n_cuts,
    seeds,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from gdm_dask.master import newton as master_newton
from gdm_dask.master.problem import Master


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(kinds, st.integers(2, 150), st.integers(1, 40), n_cuts, st.floats(-2, 4), seeds)
def test_agrees_with_clarabel(kind: str, n: int, d: int, n_cuts: int, log_C: float, seed: int) -> None:
    instance = make(kind, n, d, n_cuts, 10.0**log_C, seed)
    master, order = feed(instance)
    solution = master.solve()
    assert_certified(instance, solution, order)
    assert_agrees_with_clarabel(instance, solution)


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
    np.testing.assert_allclose(alpha_of(solution), [0.5, 0.5])
    assert solution.upper == pytest.approx(0.25 + 0.25 / C)


def test_one_cut_without_pull_weighs_samples_equally() -> None:
    X, y = np.array([[1.0, -1.0, 1.0, -1.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    instance = Instance(X, y, 7.0, [np.array([0])])
    solution = feed(instance)[0].solve()
    np.testing.assert_allclose(alpha_of(solution), 0.25)
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
    np.testing.assert_allclose(alpha_of(one), alpha_of(other), atol=1e-6)


def test_equal_cuts_share_what_one_of_them_would_get() -> None:
    instance = make("separable", n=100, d=20, n_cuts=2, C=10.0, seed=0)
    single, double = feed(instance)[0].solve(), feed(instance, instance.cuts * 3)[0].solve()
    assert double.upper == pytest.approx(single.upper, rel=2 * TOL)


def test_many_samples_take_few_steps() -> None:
    rng = np.random.default_rng(0)
    n, d = 300_000, 40
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = sparse.random_array((d, n), density=0.01, rng=rng, format="csr", dtype=np.float32)
    X.data *= 1 + 0.5 * y[X.indices]
    means, squares = X.sum(axis=1) / n, X.multiply(X).sum(axis=1)
    norms = np.sqrt(squares - n * means.astype(np.float64) ** 2)
    master = Master(y, C=100.0, intercept=False)
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
    n_open = 0
    for seed in range(12):  # rounding decides whether the bounds meet
        instance = make("binary", n=200, d=30, n_cuts=8, C=1000.0, seed=seed)
        master, order = feed(instance)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ConvergenceWarning)
            solution = master.solve(tol=1e-300)
        assert [str(warning.message)[:44] for warning in said] == (
            ["the master problem stopped at a relative gap"] if solution.gap > 1e-300 else []
        )
        assert_certified(instance, solution, order, tol=1e-10)
        n_open += len(said)
    assert n_open > 0


def test_refuses_what_it_cannot_use() -> None:
    row, mean, norm = np.array([[0.0, 1.0, 2.0]]), np.array([1.0]), np.array([2**0.5])
    y = np.array([-1, 1, 1])
    bad_arguments: list[tuple[str, dict[str, Any]]] = [
        ("targets must be finite, of shape", {"targets": y[:0]}),
        ("targets must be finite, of shape", {"targets": y * np.nan}),
        ("targets must be -1 or", {"targets": y * 0}),
        ("targets must differ", {"targets": y * y}),
        ("targets must differ", {"targets": y, "weights": [0.0, 1.0, 1.0]}),
        ("C must be positive", {"C": 0.0}),
        ("C must be positive", {"C": np.inf}),
        ("tol must be between", {"tol": 0.0}),
        ("weights must be 3", {"weights": [1.0, 1.0]}),
        ("weights must be 3", {"weights": [-1.0, 1.0, 1.0]}),
        ("weights must be 3", {"weights": [0.0, 0.0, 0.0]}),
    ]
    for match, bad in bad_arguments:
        with pytest.raises(ValueError, match=match):
            Master(**{"targets": y, "C": 1.0} | bad)
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
    with pytest.raises(ValueError, match="mu must be finite"):
        Master(y, 1.0).restore(master.state())
    with pytest.raises(ValueError, match="tol"):
        master.solve(tol=-1.0)
