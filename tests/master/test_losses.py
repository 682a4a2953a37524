"""Form P with every loss, several outputs, weights and intercepts: against Clarabel, closed forms and identities."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers.master_instances import (
    KINDS,
    NUMBER_LOSSES,
    TOL,
    Instance,
    add,
    alpha_of,
    assert_certified,
    feed,
    form_p_optimum,
    kinds,
    make,
    n_cuts,
    paper_optimum,
    repeated_by_weight,
    same_bits,
    seeds,
    widen,
    with_numbers,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from gdm_dask.master.epsilon_insensitive import EpsilonInsensitive
from gdm_dask.master.losses import Loss
from gdm_dask.master.problem import SQUARED_HINGE, Master, MasterSolution
from gdm_dask.master.squared_loss import SquaredLoss

LOSSES = [SQUARED_HINGE, *NUMBER_LOSSES]
losses = st.sampled_from(NUMBER_LOSSES)
outputs, weightings = st.sampled_from([1, 3]), st.sampled_from(["none", "some", "zeros"])
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
each_loss = pytest.mark.parametrize("loss", NUMBER_LOSSES, ids=lambda loss: type(loss).__name__)
each_output = pytest.mark.parametrize("n_outputs", [1, 3])


def draw(loss: Loss, n_outputs: int, weights: str, intercept: bool, C: float, kind: str = "mixed") -> Instance:
    instance = widen(make(kind, n=80, d=30, n_cuts=6, C=C, seed=3), n_outputs, weights, intercept, seed=3)
    return instance if loss is SQUARED_HINGE else with_numbers(instance, loss, seed=3)


@pytest.mark.parametrize(
    ("loss", "kind", "weights", "merged"),
    [
        *itertools.product([SQUARED_HINGE], ["sparse", "noise", "mixed"], ["none", "some", "zeros"], [False]),
        *itertools.product(NUMBER_LOSSES, ["mixed"], ["none", "zeros"], [False, True]),
    ],
)
@each_output
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [1.0, 50.0, 500.0])
def test_agrees_with_clarabel(
    loss: Loss, kind: str, weights: str, merged: bool, n_outputs: int, intercept: bool, C: float
) -> None:
    instance = draw(loss, n_outputs, weights, intercept, C, kind)
    master, order = feed(instance, cuts=[])
    for cut in instance.cuts:
        add(master, instance, cut, order)
        solution = master.solve_union(1e-10) if merged else master.solve(1e-10)
        assert solution.n_newton <= 1 or not loss.one_gram, "one model solves the squared loss"
    if merged:
        instance = replace(instance, cuts=[np.array(order)])
    assert_certified(instance, solution, order, tol=1e-10)
    optimum = form_p_optimum(instance)
    assert 0.25 / solution.upper <= optimum * (1 + 1e-9), "a lower bound on P"
    assert 0.25 / solution.lower >= optimum * (1 - 1e-8), "an upper bound on P"
    assert 0.25 / solution.lower == pytest.approx(optimum, rel=1e-7 if loss is SQUARED_HINGE else 1e-8)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    kinds, st.integers(4, 400), st.integers(1, 60), n_cuts, st.floats(-2, 6), outputs, weightings, st.booleans(), seeds
)
def test_certificate_of_classes_holds(
    kind: str, n: int, d: int, n_cuts: int, log_C: float, n_outputs: int, weights: str, intercept: bool, seed: int
) -> None:
    instance = widen(make(kind, n, d, n_cuts, 10.0**log_C, seed), n_outputs, weights, intercept, seed)
    master, order = feed(instance)
    assert_certified(instance, master.solve(), order)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    losses, kinds, st.integers(4, 200), st.integers(1, 30), n_cuts, st.floats(-2, 6), outputs, weightings,
    st.booleans(), seeds,
)  # fmt: skip
def test_certificate_holds(
    loss: Loss,
    kind: str,
    n: int,
    d: int,
    n_cuts: int,
    log_C: float,
    n_outputs: int,
    weights: str,
    intercept: bool,
    seed: int,
) -> None:
    instance = widen(make(kind, n, d, n_cuts, 10.0**log_C, seed), n_outputs, weights, intercept, seed)
    instance = with_numbers(instance, loss, seed)
    master, order = feed(instance)
    assert_certified(instance, master.solve(), order)


@every_loss
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("kind", ["mixed", "sparse"])
def test_a_restored_master_goes_on_to_the_same_bits(loss: Loss, kind: str, merged: bool) -> None:
    instance = draw(loss, 3, "zeros", intercept=True, C=100.0, kind=kind)
    master, order = feed(instance, cuts=[])

    def solved(master: Master) -> MasterSolution:
        return master.solve_union() if merged else master.solve()

    for cut in instance.cuts[:4]:
        add(master, instance, cut, order)
        solved(master)
    restored, restored_order = feed(instance, instance.cuts[:4])
    restored.restore({name: array.copy() for name, array in master.state().items()})
    for cut in instance.cuts[4:]:
        add(master, instance, cut, order)
        add(restored, instance, cut, restored_order)
        assert same_bits(solved(master), solved(restored))


@pytest.mark.parametrize("C", [1.0, 50.0, 500.0])
@pytest.mark.parametrize("kind", KINDS)
def test_theta_is_a_quarter_of_the_inverse_of_p(kind: str, C: float) -> None:
    """The paper's (5), solved on the simplex by an independent dense solver."""
    instance = make(kind, n=70, d=20, n_cuts=5, C=C, seed=4)
    solution = feed(instance, tol=1e-10)[0].solve()
    optimum, _ = paper_optimum(instance)
    assert solution.lower == pytest.approx(optimum, rel=1e-6)
    assert solution.upper == pytest.approx(optimum, rel=1e-6)
    assert instance.values((alpha_of(solution) * instance.y)[None]).max() == pytest.approx(solution.upper, rel=1e-9)


@pytest.mark.parametrize("most", [1, 4])
@each_output
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["sparse", "mixed", "noise"])
def test_weights_equal_repetition_to_nine_digits(kind: str, n_outputs: int, intercept: bool, most: int) -> None:
    instance = widen(make(kind, n=150, d=20, n_cuts=6, C=50.0, seed=5), n_outputs, "none", intercept, seed=5)
    weights = np.random.default_rng(5).integers(0, most + 1, 150).astype(float)
    weights[[0, -1]] = 1.0
    weighted = replace(instance, weights=weights)
    repeated, at = repeated_by_weight(weighted)
    one, other = feed(weighted, tol=1e-13)[0].solve(1e-12), feed(repeated, tol=1e-13)[0].solve(1e-12)
    assert one.lower == pytest.approx(other.lower, rel=1e-9)
    assert one.upper == pytest.approx(other.upper, rel=1e-9)
    size = np.abs(other.weights).max()
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-9 * size)
    np.testing.assert_allclose(one.intercept, other.intercept, atol=1e-9)
    np.testing.assert_allclose((one.duals / np.maximum(weights, 1))[:, at], other.duals, atol=1e-9 * one.duals.max())
    assert not one.duals[:, weights == 0].any()


@pytest.mark.parametrize("weights", ["none", "zeros"])
@each_output
@pytest.mark.parametrize("kind", ["sparse", "mixed", "separable"])
def test_the_union_is_one_merged_cut(kind: str, n_outputs: int, weights: str) -> None:
    instance = widen(make(kind, n=150, d=20, n_cuts=6, C=50.0, seed=6), n_outputs, weights, intercept=True, seed=6)
    master, order = feed(instance, cuts=[])
    for cut in instance.cuts:
        add(master, instance, cut, order)
        union = master.solve_union(1e-10)
    merged = replace(instance, cuts=[np.array(order)])
    assert_certified(merged, union, order, tol=1e-10)
    direct = feed(merged, tol=1e-10)[0].solve()
    np.testing.assert_allclose(union.weights, direct.weights, atol=1e-6 * np.abs(direct.weights).max())
    over_cuts = master.solve()
    assert_certified(instance, over_cuts, order)
    assert over_cuts.lower <= union.upper * (1 + 1e-12), "a merged cut is worth at least as much"
    assert master.solve_union(1e-10).lower == pytest.approx(direct.lower, rel=1e-9)
    np.testing.assert_array_equal(master.mu, over_cuts.mu)
    # The union gives weights to features of cuts that have none; the next solution over cuts must not keep them.
    assert_certified(instance, master.solve(), order)


@each_output
@pytest.mark.parametrize("intercept", [False, True])
def test_the_bound_holds_for_cuts_that_are_not_there_yet(n_outputs: int, intercept: bool) -> None:
    instance = widen(make("separable", n=90, d=25, n_cuts=8, C=20.0, seed=7), n_outputs, "zeros", intercept, seed=7)
    complete = feed(instance)[0].solve()
    master, order = feed(instance, cuts=[])
    for cut in instance.cuts:
        assert master.bound(instance.q(master.duals).max()) >= complete.lower
        assert not master.duals.flags.writeable
        add(master, instance, cut, order)
        solution = master.solve()
        assert solution.duals.tobytes() == master.duals.tobytes()
    assert master.bound(instance.q(master.duals).max()) == pytest.approx(solution.upper, rel=1e-9)
    assert master.bound(1e300) > 1e100


@each_output
@pytest.mark.parametrize("intercept", [False, True])
def test_duals_before_the_first_solution_are_of_the_best_intercepts(n_outputs: int, intercept: bool) -> None:
    instance = widen(make("imbalanced", n=90, d=5, n_cuts=1, C=20.0, seed=8), n_outputs, "some", intercept, seed=8)
    master, _ = feed(instance, cuts=[])
    Y, w = instance.targets, instance.w
    b = (Y * w).sum(axis=1) / w.sum() if intercept else np.zeros(n_outputs)
    np.testing.assert_allclose(master.duals, 20.0 * w * (Y - b[:, None]), rtol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_an_output_that_nobody_belongs_to_costs_nothing(form) -> None:
    """If a fold lacks a class, the intercept explains that output."""
    instance = widen(make("sparse", n=120, d=20, n_cuts=5, C=50.0, seed=9), 3, "none", intercept=True, seed=9)
    absent = replace(instance, y=np.vstack([instance.targets, -np.ones(120)]))
    solution = feed(absent, as_rows=form, tol=1e-9)[0].solve()
    expected = feed(instance, as_rows=form, tol=1e-9)[0].solve()
    assert solution.lower == pytest.approx(expected.lower, rel=1e-8)
    assert not solution.weights[3].any()
    assert not solution.duals[3].any()
    assert solution.intercept[3] == pytest.approx(-1.0)


def test_gaps_of_many_cuts_close_from_a_warm_start() -> None:
    instance = widen(make("binary", n=400, d=60, n_cuts=20, C=1e4, seed=1), 3, "some", intercept=True, seed=1)
    master, order = feed(instance, cuts=[])
    lowers = []
    for cut in instance.cuts:
        add(master, instance, cut, order)
        lowers.append(master.solve().lower)
    assert_certified(instance, master.solve(), order)
    assert (np.diff(lowers) >= -2 * TOL * lowers[-1]).all(), "a further cut cannot lower the optimum"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(losses, st.sampled_from(["sparse", "mixed", "noise"]), outputs, st.booleans(), st.integers(1, 4), seeds)
def test_weights_equal_repetition(loss: Loss, kind: str, n_outputs: int, intercept: bool, most: int, seed: int) -> None:
    instance = widen(make(kind, n=100, d=15, n_cuts=5, C=50.0, seed=seed), n_outputs, "none", intercept, seed)
    weights = np.random.default_rng(seed).integers(0, most + 1, 100).astype(float)
    weights[:4] = 1.0
    instance.X[np.ptp(instance.X[:, weights > 0], axis=1) < 1e-9, 0] += 1.0
    weighted = with_numbers(replace(instance, weights=weights), loss, seed)
    repeated, at = repeated_by_weight(weighted)
    one, other = feed(weighted)[0].solve(1e-12), feed(repeated)[0].solve(1e-12)
    assert one.lower == pytest.approx(other.lower, rel=1e-10)
    assert one.upper == pytest.approx(other.upper, rel=1e-10)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6 * np.abs(other.weights).max())
    largest = np.abs(other.duals).max()
    np.testing.assert_allclose((one.duals / np.maximum(weights, 1))[:, at], other.duals, atol=1e-6 * largest)
    assert not one.duals[:, weights == 0].any()


@each_output
@pytest.mark.parametrize("weights", ["none", "some"])
def test_the_union_by_squared_loss_is_ridge_regression(n_outputs: int, weights: str) -> None:
    instance = draw(SquaredLoss(), n_outputs, weights, intercept=True, C=50.0)
    master, order = feed(instance)
    solution = master.solve_union(1e-12)
    Z, w = instance.normalised()[order], instance.w
    means = instance.targets @ w / w.sum()
    centred = (instance.targets - means[:, None]) * w
    expected = np.linalg.solve((Z * w) @ Z.T + np.eye(len(Z)) / instance.C, Z @ centred.T).T
    np.testing.assert_allclose(solution.weights, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(solution.intercept, means, rtol=1e-12)


def test_a_residual_that_crosses_the_zone_is_noticed() -> None:
    """Its sample is active before and after, but the model of it is another one."""
    instance = widen(make("noise", n=4, d=4, n_cuts=1, C=1.0, seed=1), 3, "some", intercept=False, seed=1)
    instance = with_numbers(instance, EpsilonInsensitive(0.3), seed=1)
    master, order = feed(instance)
    assert_certified(instance, master.solve(), order)


@each_loss
def test_targets_far_from_zero_keep_their_certificate(loss: Loss) -> None:
    instance = draw(loss, 1, "none", intercept=True, C=50.0)
    near, far = feed(instance)[0].solve(1e-8), feed(replace(instance, y=instance.y + 1e7))[0].solve(1e-8)
    assert far.upper == pytest.approx(near.upper, rel=1e-6)
    assert -1e-12 <= far.gap <= 1e-8


@each_loss
@each_output
def test_number_of_cores_does_not_change_a_bit(loss: Loss, n_outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = widen(make("mixed", n=70_000, d=8, n_cuts=3, C=100.0, seed=4), n_outputs, "some", True, seed=4)
    instance = with_numbers(instance, loss, seed=4)
    solutions = []
    for n_cores in (1, 2):
        monkeypatch.setattr("gdm_dask.master.rows.n_cores", lambda n_cores=n_cores: n_cores)
        master, _ = feed(instance)
        assert len(master.rows._ranges) > 1
        solutions.append(master.solve())
    assert same_bits(*solutions)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9])
@pytest.mark.parametrize("weights", [None, np.array([3.0, 1.0, 2.0])])
def test_constant_targets_are_refused(constant: float, weights: np.ndarray | None) -> None:
    for loss in NUMBER_LOSSES:
        with pytest.raises(ValueError, match="must differ"):
            Master(np.full(3, constant), 1.0, weights, loss)
    with pytest.raises(ValueError, match="must differ"):
        Master(np.array([1.0, 2.0, 1.5]), 1.0, weights, EpsilonInsensitive(0.5))


def test_a_negative_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match="`epsilon` must be a finite number >= 0, got -1"):
        EpsilonInsensitive(-1.0)


@every_loss
@pytest.mark.parametrize("n", [1, 7, 1001])
def test_where_the_numbers_lie_does_not_change_a_bit(loss: Loss, n: int) -> None:
    rng = np.random.default_rng(n)
    y, f, w = np.sign(rng.normal(size=n)), rng.normal(size=n), rng.uniform(size=n)

    def shifted(array: np.ndarray, by: int) -> np.ndarray:
        room = np.empty(n + by)
        room[by:] = array
        return room[by:]

    found = []
    for by in range(9):
        out = shifted(np.zeros(n), by)
        y_by, f_by, w_by = (shifted(array, by) for array in (y, f, w))
        sums = loss.sums(y_by, f_by, 0.1, w_by)
        found.append((sums, loss.fill(y_by, f_by, 0.1, w_by, 1.5, 0.5, out), out.tobytes()))
    assert all(one == found[0] for one in found)
