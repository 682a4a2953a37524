"""Several outputs with one set of supports, by squared hinge and squared loss, against enumeration and closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import reference
from helpers.instances import data_of, kinds, make, many, memory, normal_rows, seeds, solved, whole
from helpers.master_instances import Instance, form_p_optimum
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.cutting_plane.certificate import certify
from gdm_dask.cutting_plane.selection import Removal, choose, select
from gdm_dask.cutting_plane.svm import Exchange, LocalMachine
from gdm_dask.features.effective import effective_samples
from gdm_dask.features.scores import scores
from gdm_dask.master.losses import Loss, SquaredHinge
from gdm_dask.master.rows import Rows
from gdm_dask.master.squared_loss import SquaredLoss
from gdm_dask.settings.settings import Settings

TASKS = ["two classes", "classes", "numbers"]
tasks, sizes, taus = st.sampled_from(TASKS), st.integers(1, 3), st.sampled_from([0.0, 0.25, 0.6])
methods = st.sampled_from(["greedy", "exact"])


def outputs(X: np.ndarray, n_outputs: int, task: str, seed: int) -> np.ndarray:
    """Targets that depend on some rows: the class with the largest signal, or the signals themselves."""
    rng = np.random.default_rng(seed + 2)
    Z = normal_rows(X[: max(1, len(X) // 2)])
    signals = rng.normal(size=(n_outputs, len(Z))) @ Z + 0.3 * rng.normal(size=(n_outputs, X.shape[1]))
    if task == "numbers":
        return (signals - signals.mean(axis=1, keepdims=True)) / signals.std(axis=1, keepdims=True)
    return np.where(np.argmax(signals, axis=0) == np.arange(n_outputs)[:, None], 1.0, -1.0)


def optimum(X: np.ndarray, Y: np.ndarray, cuts: list, C: float, loss: Loss) -> float:
    """theta = 1/(4P) of the master problem over `cuts`, by Clarabel."""
    usable = np.unique(np.concatenate([np.array(cut) for cut in cuts]))
    at = [np.searchsorted(usable, cut) for cut in cuts]
    return 0.25 / form_p_optimum(Instance(X[usable], Y, C, at, intercept=True, loss=loss))


@many(40)
@given(kinds, st.integers(2, 25), st.integers(8, 40), tasks, st.integers(2, 4), taus, sizes, st.booleans(), seeds)
def test_every_cut_is_the_literal_one_for_its_duals(kind, m, n, task, n_outputs, tau, size, sparse, seed) -> None:
    X = make(kind, m, n, seed)
    Y = outputs(X, n_outputs, task, seed)
    settings = Settings(10.0, tau, size, 30, 1e-3, cuts_per_read=1, task=task)
    problem, duals = solved(X, Y, settings, sparse)
    close, supports, block = reference.correlated(X, tau), [], whole(X, sparse)
    allowed = effective_samples(block) >= problem.task.least_effective(n)
    for A, iteration in zip(duals, problem.iterations, strict=False):
        c = scores(block, A)
        strengths = np.where(allowed, np.sqrt(np.add.reduce(c * c)), 0.0)
        assert iteration.cut == reference.greedy_cut(strengths, close, size, supports)
        np.testing.assert_allclose(iteration.scores, strengths[iteration.cut] / np.linalg.norm(A))
        supports += [feature for feature in iteration.cut if feature not in supports]


@many(40)
@given(kinds, st.integers(2, 6), st.integers(8, 25), tasks, st.integers(1, 3), taus, sizes, methods, seeds)
def test_bounds_enclose_the_optimum_with_all_cuts(kind, m, n, task, n_outputs, tau, size, matching, seed) -> None:
    """(4) over the features that no support covers, solved with every feasible cut at once."""
    X = make(kind, m, n, seed)
    Y = outputs(X, n_outputs + (task != "numbers"), task, seed)
    settings = Settings(10.0, tau, size, 30, 1e-5, matching, task=task)
    problem, _ = solved(X, Y, settings)
    allowed = effective_samples(whole(X)) >= max(problem.task.least_effective(n), 1e-9)
    close, supports = reference.correlated(X, tau), []
    optima: dict[tuple, float] = {}
    for cut, lower, upper in zip(problem.cuts, problem.lower_bounds, problem.upper_bounds, strict=True):
        supports += [feature for feature in cut if feature not in supports]
        free = tuple(j for j in reference.uncovered(close, supports) if allowed[j])
        if free not in optima:
            cuts = reference.feasible_cuts(close, size, list(free))
            largest = [one for one in cuts if not any(set(one) < set(other) for other in cuts)]
            optima[free] = optimum(X, Y, largest, settings.C, problem.task.search)
        assert lower <= optima[free] * (1 + 1e-7)
        assert upper >= optima[free] * (1 - 1e-7)


def ridge_objective(Z: np.ndarray, Y: np.ndarray, C: float) -> float:
    """P of ridge regression on normalised rows, in closed form."""
    centred = Y - Y.mean(axis=1, keepdims=True)
    pull = centred @ Z.T
    W = np.linalg.solve(Z @ Z.T + np.eye(len(Z)) / C, pull.T).T
    return 0.5 * C * float((centred**2).sum() - (W * pull).sum())


@many(60)
@given(
    kinds, st.integers(2, 8), st.integers(6, 30), st.integers(1, 3), st.integers(1, 3), taus, st.booleans(), methods,
    seeds,
)  # fmt: skip
def test_no_set_is_certified_beyond_the_truth(kind, m, n, k, n_outputs, tau, sparse, matching, seed) -> None:
    X = make(kind, m, n, seed)
    Y, C = outputs(X, n_outputs, "numbers", seed), 20.0
    allowed = np.flatnonzero(effective_samples(whole(X)) >= max(0.1 * n, 1e-9)).tolist()
    Z, close = reference.normalise(X), reference.correlated(X, tau)
    empty = ridge_objective(Z[:0], Y, C)
    gains = {cut: empty - ridge_objective(Z[list(cut)], Y, C) for cut in reference.feasible_cuts(close, k, allowed)}
    best = max(gains, key=gains.__getitem__, default=())
    if not gains or gains[best] <= 1e-6 * empty:
        return
    settings = Settings(C, tau, 1, 99, 1e-3, matching, task="numbers")
    for features in (best, list(gains)[seed % len(gains)]):
        chosen = np.array(features)
        with data_of(memory(X, sparse)) as data:
            found = certify(data, Y, settings, k, chosen, whole(X, sparse).rows(chosen))
        assert 0.0 <= found.share <= gains[features] / gains[best] + 1e-6


def machine_on(Z: np.ndarray, Y: np.ndarray, C: float, loss: Loss) -> LocalMachine:
    rows = Rows(Z.shape[1])
    rows.append(Z, np.zeros(len(Z)), np.ones(len(Z)))
    return LocalMachine(rows, Y, C, loss=loss)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_gains_of_swaps_by_squared_loss_are_exact(n_outputs: int) -> None:
    """No sample enters or leaves, so a closed form gives the value of every swap and every removal."""
    X = make("groups", 7, 60, 1)
    Z, Y, C = reference.normalise(X), outputs(X, n_outputs, "numbers", 1), 20.0
    machine = machine_on(Z, Y, C, SquaredLoss())
    chosen = np.array([0, 2, 5])
    machine.solve(chosen)
    assert machine.value == pytest.approx(ridge_objective(Z[chosen], Y, C), rel=1e-12)
    ((hessian, gradients),) = machine.quadratics()
    exchange = Exchange(hessian, gradients, chosen)
    for gone, comes in ((0, 3), (2, 0), (0, 6), (1, 4)):  # a feature that went may come back
        before, gains = ridge_objective(Z[chosen], Y, C), np.zeros((3, 7))
        exchange.add_gains(gains)
        for i, j in itertools.product(range(3), np.setdiff1d(np.arange(7), chosen)):
            after = ridge_objective(Z[[*np.delete(chosen, i), j]], Y, C)
            assert gains[i, j] == pytest.approx(before - after, abs=1e-9 * before)
        exchange.swap(gone, comes)
        chosen[gone] = comes


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_losses_of_removals_by_squared_loss_are_exact(n_outputs: int) -> None:
    X = make("groups", 7, 60, 1)
    Z, Y, C = reference.normalise(X), outputs(X, n_outputs, "numbers", 1), 20.0
    machine = machine_on(Z, Y, C, SquaredLoss())
    machine.solve(np.arange(7))
    ((hessian, gradients),) = machine.subset_quadratics()
    removal, left = Removal(hessian, gradients), np.arange(7)
    for gone in (4, 1, 6):
        before, losses = ridge_objective(Z[left], Y, C), removal.losses()
        for j in left:
            after = ridge_objective(Z[left[left != j]], Y, C)
            assert 0.5 * losses[j] == pytest.approx(after - before, abs=1e-9 * before)
        removal.remove(gone)
        left = left[left != gone]
    assert np.flatnonzero(removal.left).tolist() == left.tolist()


@pytest.mark.parametrize("loss", [SquaredHinge(), SquaredLoss()])
def test_a_choice_for_several_outputs_serves_all_of_them(loss: Loss) -> None:
    """Each output has its own feature; one that tells a little about each is not worth two of them."""
    rng, n = np.random.default_rng(3), 300
    classes = rng.integers(0, 3, n)
    Y = np.where(classes == np.arange(3)[:, None], 1.0, -1.0)
    X = np.vstack([Y + 0.8 * rng.normal(size=(3, n)), rng.normal(size=(5, n))])[[3, 0, 4, 1, 5, 2, 6, 7]]
    Z = reference.normalise(X)
    rows = Rows(n)
    rows.append(Z, np.zeros(8), np.ones(8))
    chosen, weights = choose(rows, Y, 30.0, 3, None, np.inf, None, loss)
    assert chosen.tolist() == [1, 3, 5]
    assert weights.shape == (3, 3)
    assert (np.argmax(weights, axis=0) == [0, 1, 2]).all()


def test_a_feature_on_two_samples_is_no_support_for_numbers() -> None:
    rng, n = np.random.default_rng(0), 400
    signal = rng.normal(size=n)
    y = signal + 0.5 * rng.normal(size=n)
    y[:2] += 60.0  # outliers, and a feature that marks them
    X = np.vstack([signal, np.eye(n)[0] + np.eye(n)[1], rng.normal(size=(3, n))])
    Y = ((y - y.mean()) / y.std())[None]
    for task, expected in (("numbers", 0), ("classes", 1)):
        problem, _ = solved(X, Y, Settings(10.0, 0.25, 1, 99, 1e-3, n_supports=1, task=task), sparse=True)
        assert select(problem, 1)[0].tolist() == [expected]
