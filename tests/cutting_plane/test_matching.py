"""Matching against a literal walk and against enumeration, and bounds on (6) that hold for any greedy result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from helpers import reference
from helpers.instances import kinds, make, many, measures, memory, seeds, suited
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.cutting_plane.exact_matching import independent_set
from gdm_dask.cutting_plane.matching import Cut, find_cut
from gdm_dask.cutting_plane.working_set import Seen, Supports, WorkingSet
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.measures import MEASURES
from gdm_dask.features.ranking import top
from gdm_dask.settings.settings import METHODS
from gdm_dask.store.memory import MemoryStore

methods = st.sampled_from(METHODS)
taus, sizes = st.sampled_from([0.0, 0.1, 0.25, 0.6, 0.9]), st.integers(1, 4)


class Given(WorkingSet):
    """A working set with given scores."""

    given: np.ndarray

    def sizes(self, duals: np.ndarray) -> np.ndarray:
        return self.given


@dataclass
class Found:
    """A cut, given by its features."""

    cut: Cut
    features: list[int]
    new: list[int]
    seen: WorkingSet

    @property
    def value(self) -> float:
        return self.cut.value

    @property
    def bound(self) -> float:
        return self.cut.bound


@dataclass
class Case:
    """Features with scores, some of them already supports."""

    store: MemoryStore
    X: np.ndarray
    c: np.ndarray
    tau: float
    supports: list[int]
    measure: str = "pearson"

    @property
    def close(self) -> np.ndarray:
        return reference.correlated(self.X, self.tau, self.measure)

    def find(
        self,
        size: int,
        method: str = "greedy",
        new_only: bool = False,
        n_working: int = 10**6,
        chance: float | None = None,
    ) -> Found:
        """Find a cut in a working set of the best features that are not supports."""
        supports = Supports(correlation_limit(self.tau), MEASURES[self.measure])
        if self.supports:
            supports.add(list(self.supports), self.store.rows(np.array(self.supports)))
        others = np.setdiff1d(np.arange(len(self.c)), self.supports)
        ranking = top(others, self.c[others], n_working)
        seen = Given(Seen(ranking.features, self.store.rows(ranking.features), ranking.floor), supports)
        seen.given = np.abs(ranking.scores)
        support_sizes = np.abs(self.c[self.supports])
        cut = find_cut(seen, np.ones((1, 1)), support_sizes, size, supports.limit, method, new_only, chance)
        new = seen.features[cut.positions].tolist()
        old = [self.supports[place] for place in cut.supports]
        features = sorted([*new, *old], key=lambda j: (-abs(self.c[j]), j))
        return Found(cut, features, new, seen)

    def best(self, size: int) -> float:
        return reference.best_value(self.c, self.close, size, reference.uncovered(self.close, self.supports))


def case(X: np.ndarray, tau: float, n_supports: int, sparse: bool, seed: int, measure: str = "pearson") -> Case:
    """Random scores with ties, and supports that do not correlate with each other."""
    rng, X = np.random.default_rng(seed), suited(X, measure)
    c = np.round(rng.normal(size=len(X)), 1) * (np.ptp(X, axis=1) > 0)
    supports = reference.greedy_cut(rng.permutation(c), reference.correlated(X, tau, measure), n_supports, [])
    supports = [j for j in supports if np.ptp(X[j]) > 0]
    return Case(memory(X, sparse), X, c, tau, supports, measure)


matrices = st.builds(make, kinds, st.integers(1, 12), st.integers(2, 30), seeds)
cases = st.builds(case, matrices, taus, st.integers(0, 3), st.booleans(), seeds, measures)
#: With few samples, features crowd in few directions at all angles, and correlation is far from transitive.
crowds = st.builds(make, st.just("noise"), st.integers(2, 12), st.integers(3, 5), seeds)
crowded = st.builds(
    case, crowds, st.sampled_from([0.1, 0.25, 0.5, 0.9]), st.integers(0, 1), st.booleans(), seeds, measures
)


def assert_is_cut(cut: Found, given_case: Case, size: int) -> None:
    """Check that (2) and the supports allow the set, and that its value is right."""
    assert len(cut.features) <= size
    assert not given_case.close[np.ix_(cut.features, cut.features)].any()
    assert set(cut.features) <= set(reference.uncovered(given_case.close, given_case.supports))
    assert not set(cut.new) & set(given_case.supports)
    np.testing.assert_allclose(cut.value, np.sum(given_case.c[cut.features] ** 2), rtol=1e-14)


@many(300)
@given(cases, sizes)
def test_greedy_is_the_literal_walk_and_its_bound_holds(given_case: Case, size: int) -> None:
    cut = given_case.find(size)
    assert cut.features == reference.greedy_cut(given_case.c, given_case.close, size, given_case.supports)
    assert_is_cut(cut, given_case, size)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)
    assert cut.bound >= cut.value


@many(150)
@given(cases, sizes)
def test_exact_is_the_best_of_all_cuts(given_case: Case, size: int) -> None:
    cut, best = given_case.find(size, "exact"), given_case.best(size)
    assert_is_cut(cut, given_case, size)
    np.testing.assert_allclose(cut.value, best, rtol=1e-9)
    assert cut.bound >= best * (1 - 1e-14)
    np.testing.assert_allclose(cut.bound, best, rtol=1e-6)


@many(200)
@given(cases, sizes, st.integers(1, 12), methods)
def test_a_small_working_set_gives_the_right_cut_or_says_that_it_is_crowded(given_case, size, n_working, method):
    cut = given_case.find(size, method, n_working=n_working)
    assert_is_cut(cut, given_case, size)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)
    if cut.cut.is_crowded:
        assert n_working < len(given_case.c)
    elif method == "greedy":
        assert cut.features == given_case.find(size).features


@many(300)
@given(crowded, sizes, st.booleans())
def test_greedys_bound_where_nothing_is_transitive(given_case: Case, size: int, new_only: bool) -> None:
    assert given_case.find(size, new_only=new_only).bound >= given_case.best(size) * (1 - 1e-14)


@many(150)
@given(
    st.builds(case, matrices, st.sampled_from([0.1, 0.25, 0.6]), st.integers(0, 3), st.booleans(), seeds),
    sizes,
    st.sampled_from([0.0, 0.1]),
)
def test_a_diverse_walk_prefers_features_that_correlate_less_with_the_supports(given_case, size, chance) -> None:
    rho = np.abs(reference.correlations(given_case.X))[:, given_case.supports]
    mean = np.round(rho.sum(axis=1) / max(1, len(given_case.supports)), 9)
    worth = np.abs(given_case.c) * (1.0 - np.maximum(mean - chance, 0.0))
    worth[given_case.supports] = 0.0
    cut = given_case.find(size, new_only=True, chance=chance)
    assert set(cut.new) == set(reference.greedy_cut(worth, given_case.close, size, given_case.supports))
    assert_is_cut(cut, given_case, size)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)


@many(200)
@given(st.integers(1, 9), st.floats(0, 1), sizes, seeds)
def test_independent_sets_of_any_graph(m: int, density: float, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    squares = np.sort(rng.random(m))[::-1]
    edges = np.triu(rng.random((m, m)) < density, 1)
    earlier = [set(np.flatnonzero(edges[:, j]).tolist()) for j in range(m)]
    best = reference.best_value(np.sqrt(squares), edges | edges.T, size, list(range(m)))
    found, bound = independent_set(squares.tolist(), earlier, size, 0.0)
    assert not (edges | edges.T)[np.ix_(found, found)].any()
    np.testing.assert_allclose([squares[found].sum(), bound], best, rtol=1e-9)


@many(100)
@given(cases, sizes, methods)
def test_new_features_only(given_case: Case, size: int, method: str) -> None:
    """Supports are skipped, but still count for the bound."""
    free = [j for j in reference.uncovered(given_case.close, given_case.supports) if j not in given_case.supports]
    cut = given_case.find(size, method, new_only=True)
    assert set(cut.features) == set(cut.new)
    assert set(cut.features) <= set(free)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)
    c = np.zeros(len(given_case.c))
    c[free] = given_case.c[free]
    if method == "greedy":
        assert cut.features == reference.greedy_cut(c, given_case.close, size, given_case.supports)
    else:
        best = reference.best_value(given_case.c, given_case.close, size, free)
        np.testing.assert_allclose(cut.value, best, rtol=1e-9)


def test_the_bound_is_tight_where_groups_are_groups() -> None:
    """Members of a group correlate by .75 to .95, and with no others: greedy is optimal, and its bound shows it."""
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(4, 300)), 6, axis=0) + 0.4 * rng.normal(size=(24, 300))
    rho = np.abs(reference.correlations(X))
    assert rho[:6, :6].min() > 0.76
    assert np.sort(rho[0])[-6] < 0.93
    c = np.tile(np.linspace(2, 1, 6), 4) + 0.01 * rng.random(24)
    cut = Case(memory(X), X, c, 0.25, []).find(4)
    assert [j % 6 for j in cut.features] == [0, 0, 0, 0]
    assert cut.bound == cut.value


def triple() -> Case:
    """f1 at 0 degrees, f2 and f3 at +-40, alpha along f1: f1 conflicts with both, which do not conflict."""
    angles = np.radians([0, 40, -40])
    plane = np.array([[1, -1, 0, 0], [0, 0, 1, -1]]) / np.sqrt(2)  # two directions with mean 0
    X = np.column_stack([np.cos(angles), np.sin(angles)]) @ plane
    return Case(memory(X), X, X @ plane[0], 0.25, [])


def test_non_transitive_triple() -> None:
    """Proposition 2 of the paper does not hold: greedy takes f1, the best cut is {f2, f3}."""
    found, best = triple().find(2), triple().find(2, "exact")
    assert found.features == [0]
    assert best.features == [1, 2]
    np.testing.assert_allclose([found.value, best.value], [1.0, 2 * np.cos(np.radians(40)) ** 2])
    assert round(best.value, 2) == 1.17
    assert found.bound >= best.value


@pytest.mark.parametrize("method", METHODS)
def test_a_covered_crowd_does_not_stop_the_search(method: str) -> None:
    """Hundreds of copies of a support rank first; none may become a support, and others are found below them."""
    rng = np.random.default_rng(0)
    X = np.vstack([np.repeat(rng.normal(size=(1, 40)), 200, axis=0), rng.normal(size=(3, 40))])
    c = np.concatenate([np.linspace(2, 1, 200), [0.3, 0.2, 0.1]])
    given_case = Case(memory(X), X, c, 0.25, [0])
    assert given_case.find(3, method).features == [0, 200, 201]
    narrow = given_case.find(3, method, n_working=150)
    assert narrow.cut.is_crowded
    assert narrow.features == [0]
    covered = set(range(1, 151)) if method == "greedy" else {1}  # the exact one leaves out copies of it
    assert narrow.seen.supports.covered == covered


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_choose_from(method: str) -> None:
    X = make("noise", 3, 10, 0)
    cut = Case(memory(X), X, np.zeros(3), 0.25, []).find(2, method)
    assert (cut.features, cut.value, cut.bound, cut.cut.is_crowded) == ([], 0.0, 0.0, False)


def test_rows_are_compared_only_as_far_as_the_cut_needs() -> None:
    X = make("noise", 500, 60, 3)
    cut = Case(memory(X), X, np.linspace(2, 1, 500), 0.25, []).find(5)
    assert len(cut.features) == 5
    assert cut.seen.n_compared < 20
    assert set(cut.cut.positions) <= set(cut.cut.passed)
