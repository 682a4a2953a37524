"""The choice of k supports: at least as good as the first or the heaviest k, uncorrelated, same for any threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from gdm_dask import GroupDiscoveryMachine, feature_correlations
from gdm_dask.cutting_plane.selection import REDUNDANCY_BUDGET, LocalMachine, Removal, choose
from gdm_dask.cutting_plane.svm import Exchange
from gdm_dask.features.correlation import as_rows, correlation_limit
from gdm_dask.ingestion.sources.lookalikes.paper_data import make_paper_data
from gdm_dask.master.rows import Rows

C = 30.0


def problem(seed: int, n: int = 120, d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, 1.0, -1.0)
    X = rng.normal(size=(n, d)) * rng.uniform(0.5, 3, d)
    X[:, : d // 3] += 0.6 * y[:, None] * rng.uniform(-1, 1, d // 3)
    return X, y


def rows_of(X: np.ndarray) -> Rows:
    block = as_rows(X)
    rows = Rows(block.n_samples)
    rows.append(block.values, block.means, block.norms)
    return rows


def normalised(X: np.ndarray) -> np.ndarray:
    centred = X - X.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=0)


def best_value(X: np.ndarray, y: np.ndarray) -> float:
    """F of all columns, by a general minimiser."""
    Z = normalised(X)

    def value(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        w, b = parameters[:-1], parameters[-1]
        slack = np.maximum(1 - y * (Z @ w + b), 0)
        gradient = np.append(w - C * Z.T @ (slack * y), -C * np.sum(slack * y))
        return 0.5 * w @ w + 0.5 * C * slack @ slack, gradient

    start = np.zeros(X.shape[1] + 1)
    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10})
    return float(found.fun)


def most(value: float, y: np.ndarray) -> float:
    """The value that F may rise to for less redundancy, given its minimum."""
    without_features = 0.5 * C * float(np.sum((1 - y * y.mean()) ** 2))
    return value + REDUNDANCY_BUDGET * (without_features - value) + 1e-9 * value


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), n=st.sampled_from([30, 120]))
def test_newton_reaches_the_minimum_of_problem_3(seed: int, n: int) -> None:
    X, y = problem(seed, n)
    if len(np.unique(y)) < 2:
        return
    machine = LocalMachine(rows_of(X), y, C)
    subset = np.array([0, 3, 4, 7])
    machine.solve(subset)
    assert machine.value == pytest.approx(best_value(X[:, subset], y), rel=1e-6)
    assert not machine.W[:, np.setdiff1d(np.arange(X.shape[1]), subset)].any()


@pytest.mark.parametrize("seed", range(5))
def test_removals_and_exchanges_predict_the_weights_that_are_best_afterwards(seed: int) -> None:
    rng = np.random.default_rng(seed)
    factor, gradients = rng.normal(size=(12, 12)), rng.normal(size=(3, 12))
    hessian = factor @ factor.T + np.eye(12)

    def best(features: list[int]) -> np.ndarray:
        return np.linalg.solve(hessian[np.ix_(features, features)], gradients[:, features].T).T

    removal = Removal(hessian, gradients)
    removal.remove(4)
    removal.remove(9)
    left = [n for n in range(12) if n not in (4, 9)]
    np.testing.assert_allclose(removal.weights, best(left), rtol=1e-9)
    exchange = Exchange(hessian, gradients, np.array([1, 5, 7, 8]))
    exchange.swap(gone=2, comes=0)
    exchange.swap(gone=0, comes=11)
    np.testing.assert_allclose(exchange.weights, best([11, 5, 0, 8]), rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_outputs_add_up_and_weights_equal_repetition(weighted: bool) -> None:
    X, _ = problem(0)
    rng = np.random.default_rng(0)
    targets = np.where(rng.integers(0, 3, 120) == np.arange(3)[:, None], 1.0, -1.0)
    X[:, :3] += 0.8 * targets.T
    w = rng.integers(0, 4, 120).astype(float) if weighted else np.ones(120)
    repeated = np.repeat(np.arange(120), w.astype(int))
    means = w @ X / w.sum()
    rows = Rows(120)
    rows.append(X.T, means, np.sqrt(w @ (X - means) ** 2))
    machine = LocalMachine(rows, targets, C, w if weighted else None)
    for subset in (np.arange(12), np.array([0, 2, 5, 7])):
        machine.solve(subset)
        expected = [best_value(X[repeated][:, subset], y[repeated]) for y in targets]
        assert machine.value == pytest.approx(sum(expected), rel=1e-6)
    for (hessian, gradient), mine in zip(machine.quadratics(), machine.subset_quadratics(), strict=True):
        np.testing.assert_allclose(hessian[np.ix_(subset, subset)], mine[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(gradient[:, subset], mine[1], rtol=1e-8, atol=1e-8)
    rho = np.abs(np.corrcoef(X[repeated].T)) - np.eye(12)
    np.testing.assert_allclose(machine.correlations, rho, atol=1e-9)
    chosen, weights = choose(rows, targets, C, 3, None, np.inf, w if weighted else None)
    assert chosen.tolist() == [0, 1, 2]
    assert weights.shape == (3, 3)
    again, _ = choose(rows_of(X[repeated]), targets[:, repeated], C, 3, None, np.inf)
    assert again.tolist() == chosen.tolist()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 8))
def test_the_choice_is_no_worse_than_the_heaviest_or_the_first(seed: int, k: int) -> None:
    X, y = problem(seed)
    machine = LocalMachine(rows_of(X), y, C)
    machine.solve(np.arange(X.shape[1]))
    heaviest = np.argsort(-np.abs(machine.W[0]))[:k]
    chosen, weights = choose(rows_of(X), y, C, k, None, np.inf)
    assert len(chosen) == len(set(chosen.tolist())) == k
    found = best_value(X[:, chosen], y)
    assert found <= 1.02 * most(best_value(X[:, heaviest], y), y)
    assert found <= most(best_value(X[:, :k], y), y) or k > 4  # the first four carry all the signal
    Z = normalised(X[:, chosen])
    slack = np.maximum(1 - y * (Z @ weights[0]), 0)
    assert np.isfinite(slack).all()


def test_a_better_member_of_a_group_takes_the_place_of_its_support() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat([-1.0, 1.0], 200)
    clean = y + 0.7 * rng.normal(size=400)
    support = clean + 0.5 * rng.normal(size=400)
    X = np.column_stack([support, rng.normal(size=(400, 3))])
    others = as_rows(np.column_stack([clean, rng.normal(size=400)]))
    limit = correlation_limit(0.25)
    assert abs(feature_correlations(np.column_stack([support, clean]))[0, 1]) > limit
    chosen, _ = choose(rows_of(X), y, C, 2, others, limit)
    assert 4 in chosen
    assert 0 not in chosen


def test_what_is_chosen_is_uncorrelated_and_better_than_the_first_to_enter() -> None:
    data = make_paper_data(n_samples=4500, n_features=800, n_groups=60, n_multiple=20, seed=3)
    k = 40  # few enough for a choice among three times as many
    machine = GroupDiscoveryMachine(k).fit(data.X, data.y)
    assert machine.history_[-1].n_supports > k
    rho = np.abs(feature_correlations(data.X[:, machine.support_features_]))
    np.fill_diagonal(rho, 0)
    assert len(machine.support_features_) == k
    assert rho.max() < 0.75
    first = [feature for iteration in machine.history_ for feature in iteration.cut][:k]
    y = data.y.astype(float)
    assert best_value(data.X[:, machine.support_features_], y) < best_value(data.X[:, first], y)


def test_threads_do_not_change_a_bit() -> None:
    data = make_paper_data(n_samples=1200, n_features=500, n_groups=40, n_multiple=10, seed=5)
    machines = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            machines.append(GroupDiscoveryMachine(30).fit(data.X, data.y))
    np.testing.assert_array_equal(machines[0].support_features_, machines[1].support_features_)
    np.testing.assert_array_equal(machines[0].weights_, machines[1].weights_)


def test_of_two_features_about_as_good_the_less_redundant_one_is_chosen() -> None:
    rng = np.random.default_rng(4)
    y = np.repeat([-1.0, 1.0], 400)
    noise = rng.normal(size=(3, 800))
    noise -= noise.mean(axis=1, keepdims=True)
    support, alone = 2 * y + noise[0], 0.5 * y + noise[1]
    for weight, chosen in ((0.67, [0, 2]), (0.8, [0, 1])):  # value of the redundant one: a little more, much more
        redundant = 0.5 * y + weight * noise[0] + np.sqrt(1 - weight**2) * noise[2]
        X = np.column_stack([support, redundant, alone])
        rho = np.abs(feature_correlations(X))
        assert rho[0, 2] + 0.2 < rho[0, 1] < 0.75
        with_redundant, with_alone = best_value(X[:, :2], y), best_value(X[:, [0, 2]], y)
        assert with_redundant < with_alone
        assert (with_alone <= most(with_redundant, y)) == (chosen == [0, 2])
        assert choose(rows_of(X), y, C, 2, None, np.inf)[0].tolist() == chosen
