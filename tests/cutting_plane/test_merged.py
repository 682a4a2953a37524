"""The merged master: duals of problem (3) on all supports so far, with bounds that stay valid."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import reference
from helpers.instances import informative, kinds, many, seeds, solved
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.errors import BadInput
from gdm_dask.features.correlation import redundancy_rate
from gdm_dask.settings.settings import Settings, choose_settings


def residuals(Z: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """y (1 - y f)_+ at the optimum of (3) with an intercept on the rows of Z, by a general solver."""

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        slack = np.maximum(1.0 - y * (point[:-1] @ Z + point[-1]), 0.0)
        gradient = np.append(point[:-1] - C * Z @ (y * slack), -C * (y @ slack))
        return 0.5 * point[:-1] @ point[:-1] + 0.5 * C * slack @ slack, gradient

    found = minimize(objective, np.zeros(len(Z) + 1), jac=True, method="BFGS", options={"gtol": 1e-9})
    return y * np.maximum(1.0 - y * (found.x[:-1] @ Z + found.x[-1]), 0.0)


def searched(X: np.ndarray, y: np.ndarray, sparse: bool = False, **options) -> tuple[Problem, list[np.ndarray]]:
    """Search for k supports with the merged master problem; returns the duals before each cut, too."""
    defaults = {"C": 1.0, "tau": 0.25, "cut_size": 2, "max_cuts": 99, "tol": 1e-3, "n_supports": 6, "merged": True}
    problem, duals = solved(X, y, Settings(**defaults | options), sparse)
    return problem, [one for (one,) in duals]


@many(25)
@given(kinds, st.integers(3, 25), st.integers(6, 40), st.sampled_from([0.05, 1.0, 20.0]), st.booleans(), seeds)
def test_the_duals_are_residuals_of_one_machine_on_all_supports(kind, m, n, C, sparse, seed) -> None:
    X, y = informative(m, n, seed, kind)
    problem, duals = searched(X, y, sparse, C=C)
    Z = reference.normalise(X)
    np.testing.assert_allclose(duals[0], C * (y - y.mean()), atol=1e-9 * C)
    for t in range(1, len(duals)):
        supports = [feature for cut in problem.cuts[:t] for feature in cut]
        expected = C * residuals(Z[supports], y, C)
        assert np.abs(duals[t] - expected).max() <= 2e-3 * np.abs(expected).max()


@many(25)
@given(kinds, st.integers(3, 30), st.integers(6, 40), st.sampled_from([0.0, 0.25, 0.6]), st.booleans(), seeds)
def test_cuts_are_the_best_free_features_for_these_duals(kind, m, n, tau, sparse, seed) -> None:
    X, y = informative(m, n, seed, kind)
    problem, duals = searched(X, y, sparse, tau=tau, cuts_per_read=1)
    Z, close = reference.normalise(X), reference.correlated(X, tau)
    taken: list[int] = []
    for cut, a in zip(problem.cuts, duals, strict=False):
        free = np.isin(np.arange(m), [j for j in reference.uncovered(close, taken) if j not in taken])
        scores = np.abs(Z @ a)
        expected = reference.greedy_cut(np.where(free, scores, 0.0), close, 2, [])[: len(cut)]
        np.testing.assert_allclose(np.sort(scores[cut]), np.sort(scores[expected]), rtol=1e-6, atol=1e-9)
        taken += cut
    assert not close[np.ix_(taken, taken)].any()


@many(30)
@given(
    kinds, st.integers(2, 7), st.integers(4, 25), st.sampled_from([0.0, 0.25, 0.6]), st.integers(1, 3),
    st.sampled_from([0.1, 1.0, 100.0]), st.sampled_from(["greedy", "exact"]), seeds,
)  # fmt: skip
def test_bounds_enclose_the_optimum_with_all_cuts(kind, m, n, tau, size, C, matching, seed) -> None:
    """(4) over the features that no support covers, at the C of the search, solved with every feasible cut at once."""
    X, y = informative(m, n, seed, kind)
    problem, _ = searched(
        X, y, tau=tau, cut_size=size, C=C, matching=matching, n_supports=4, intercept=False, cuts_per_read=1
    )
    close = reference.correlated(X, tau)
    for t, (lower, upper) in enumerate(zip(problem.lower_bounds, problem.upper_bounds, strict=True)):
        taken = [feature for cut in problem.cuts[: t + 1] for feature in cut]
        free = [j for j in reference.uncovered(close, taken) if np.ptp(X[j]) > 0]
        try:
            optimum = reference.optimum(X, y, close, size, C, free)
        except UserWarning:  # the reference solver's result may be inaccurate
            continue
        assert lower <= optimum * (1 + 1e-7)
        assert upper >= optimum * (1 - 1e-7)
    assert (np.diff(problem.lower_bounds) >= 0).all()
    assert (np.diff(problem.upper_bounds) <= 0).all()


def test_who_is_merged() -> None:
    X, y = informative(30, 60, 0)
    of = {
        (k, tau, master): GroupDiscoveryMachine(k, tau=tau, C=2.0, master=master, groups=False).fit(X.T, y)
        for k, tau, master in [(5, 0.25, None), (5, 0.25, "merged"), (5, 0.25, "cuts"), (5, 0, None), (5, 0, "cuts")]
    }
    weights = {key: machine.weights_.tolist() for key, machine in of.items()}
    assert weights[5, 0.25, None] == weights[5, 0.25, "merged"] != weights[5, 0.25, "cuts"]
    assert weights[5, 0, None] == weights[5, 0, "cuts"]
    with pytest.raises(BadInput, match="`master` must be None or one of merged, cuts, got 'both'"):
        GroupDiscoveryMachine(5, master="both").fit(X.T, y)
    with pytest.raises(BadInput, match="`master` must be None or 'cuts' without a number of features, got 'merged'"):
        GroupDiscoveryMachine(master="merged").fit(X.T, y)


def test_few_samples_select_diverse_features() -> None:
    """A hundred features share a cause of the label, a hundred others know the label apart from it."""
    rng = np.random.default_rng(2)
    cause = rng.normal(size=80)
    y = np.where(cause + rng.normal(size=80) > 0, 1.0, -1.0)
    X = rng.normal(size=(200, 80)) + np.repeat([cause, 0.4 * y], 100, axis=0)
    problems = [searched(X, y, C=0.3, n_supports=20, cut_size=1, is_diverse=diverse)[0] for diverse in (False, True)]
    plain, diverse = (redundancy_rate(X[problem.supports.features].T) for problem in problems)
    assert diverse < 0.95 * plain


@pytest.mark.parametrize(
    ("expected", "n_samples", "options"),
    [
        (True, 100, {}),
        (True, 100, {"C": 3.0}),
        (False, 5000, {}),  # the choice out of 60 counts redundancy itself
        (False, 100, {"k": 19}),
        (False, 100, {"tau": 0}),
        (False, 100, {"master": "cuts"}),
        (False, 100, {"measure": "cosine"}),
        (False, 100, {"task": "numbers"}),
    ],
)
def test_who_is_diverse(expected, n_samples, options) -> None:
    assert choose_settings(1000, n_samples, **{"k": 20, "C": "auto"} | options).is_diverse is expected
