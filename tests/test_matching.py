"""Matching against a literal walk and against enumeration, and bounds on (6) that hold whatever greedy found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import kinds, make, many, memory, seeds

from gdm_dask.correlation import correlation_limit
from gdm_dask.exact_matching import independent_set
from gdm_dask.matching import Candidates, Cut, RankingExhaustedError, Spoken, exact, greedy
from gdm_dask.ranking import top
from gdm_dask.store.memory import MemoryStore

taus, sizes = st.sampled_from([0.0, 0.1, 0.25, 0.6, 0.9]), st.integers(1, 4)


@dataclass
class Case:
    """Features with scores, of which some are supports already."""

    store: MemoryStore
    X: np.ndarray
    c: np.ndarray
    tau: float
    supports: list[int]

    @property
    def close(self) -> np.ndarray:
        return reference.correlated(self.X, self.tau)

    def candidates(self, n_ranked: int = 10**6) -> Candidates:
        spoken = Spoken(correlation_limit(self.tau))
        if self.supports:
            spoken.add(list(self.supports), self.store.rows(np.array(self.supports)))
        return Candidates(top(np.arange(len(self.c)), self.c, n_ranked), spoken, self.store.rows, 0.0)

    def best(self, size: int) -> float:
        return reference.best_value(self.c, self.close, size, reference.unspoken(self.close, self.supports))


def case(X: np.ndarray, tau: float, n_supports: int, sparse: bool, seed: int) -> Case:
    """Random scores with ties, and supports that do not correlate with each other."""
    rng = np.random.default_rng(seed)
    c = np.round(rng.normal(size=len(X)), 1) * (np.ptp(X, axis=1) > 0)
    supports = reference.greedy_cut(rng.permutation(c), reference.correlated(X, tau), n_supports, [])
    supports = [j for j in supports if np.ptp(X[j]) > 0]
    return Case(memory(X, sparse), X, c, tau, supports)


matrices = st.builds(make, kinds, st.integers(1, 12), st.integers(2, 30), seeds)
cases = st.builds(case, matrices, taus, st.integers(0, 3), st.booleans(), seeds)
#: Few samples: features crowd in few directions, at all angles from each other, and nothing is transitive.
crowds = st.builds(make, st.just("noise"), st.integers(2, 12), st.integers(3, 5), seeds)
crowded = st.builds(case, crowds, st.sampled_from([0.1, 0.25, 0.5, 0.9]), st.integers(0, 1), st.booleans(), seeds)


def assert_is_cut(cut: Cut, given_case: Case, size: int) -> None:
    """A set that (2) and the supports allow, with its own value and rows."""
    assert len(cut.features) <= size
    assert not given_case.close[np.ix_(cut.features, cut.features)].any()
    assert set(cut.features) <= set(reference.unspoken(given_case.close, given_case.supports))
    assert cut.new == [j for j in cut.features if j not in given_case.supports]
    np.testing.assert_allclose(cut.value, np.sum(given_case.c[cut.features] ** 2), rtol=1e-14)
    if cut.new:
        assert cut.new_rows is not None
        np.testing.assert_array_equal(cut.new_rows.to_scipy().toarray(), given_case.X[cut.new])


@many(300)
@given(cases, sizes)
def test_greedy_is_the_literal_walk_and_its_bound_holds(given_case: Case, size: int) -> None:
    cut = greedy(given_case.candidates(), size)
    assert cut.features == reference.greedy_cut(given_case.c, given_case.close, size, given_case.supports)
    assert_is_cut(cut, given_case, size)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)
    assert cut.bound >= cut.value


@many(150)
@given(cases, sizes)
def test_exact_is_the_best_of_all_cuts(given_case: Case, size: int) -> None:
    cut, best = exact(given_case.candidates(), size), given_case.best(size)
    assert_is_cut(cut, given_case, size)
    np.testing.assert_allclose(cut.value, best, rtol=1e-9)
    assert cut.bound >= best * (1 - 1e-14)
    np.testing.assert_allclose(cut.bound, best, rtol=1e-6)


@many(150)
@given(cases, sizes, st.integers(1, 12), st.sampled_from([greedy, exact]))
def test_a_short_ranking_gives_the_right_cut_or_asks_for_more(given_case, size, n_ranked, method) -> None:
    try:
        cut = method(given_case.candidates(n_ranked), size)
    except RankingExhaustedError:
        assert n_ranked < np.count_nonzero(given_case.c)
        return
    np.testing.assert_allclose(cut.value, method(given_case.candidates(), size).value, rtol=1e-9)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)


@many(300)
@given(crowded, sizes, st.booleans())
def test_greedys_bound_where_nothing_is_transitive(given_case: Case, size: int, new_only: bool) -> None:
    assert greedy(given_case.candidates(), size, new_only).bound >= given_case.best(size) * (1 - 1e-14)


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
@given(cases, sizes, st.sampled_from([greedy, exact]))
def test_new_features_only(given_case: Case, size: int, method) -> None:
    """Supports are passed over, but they still count for the bound."""
    free = [j for j in reference.unspoken(given_case.close, given_case.supports) if j not in given_case.supports]
    cut = method(given_case.candidates(), size, True)
    assert cut.features == cut.new
    assert set(cut.features) <= set(free)
    assert cut.bound >= given_case.best(size) * (1 - 1e-14)
    c = np.zeros(len(given_case.c))
    c[free] = given_case.c[free]
    if method is greedy:
        assert cut.features == reference.greedy_cut(c, given_case.close, size, given_case.supports)
    else:
        best = reference.best_value(given_case.c, given_case.close, size, free)
        np.testing.assert_allclose(cut.value, best, rtol=1e-9)


def test_the_bound_is_tight_where_groups_are_groups() -> None:
    """Members correlate with each other between .75 and .95, and with nobody else: greedy is optimal, and knows it."""
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(4, 300)), 6, axis=0) + 0.4 * rng.normal(size=(24, 300))
    rho = np.abs(reference.correlations(X))
    assert rho[:6, :6].min() > 0.76
    assert np.sort(rho[0])[-6] < 0.93
    c = np.tile(np.linspace(2, 1, 6), 4) + 0.01 * rng.random(24)
    cut = greedy(Case(memory(X), X, c, 0.25, []).candidates(), 4)
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
    found, best = greedy(triple().candidates(), 2), exact(triple().candidates(), 2)
    assert found.features == [0]
    assert best.features == [1, 2]
    np.testing.assert_allclose([found.value, best.value], [1.0, 2 * np.cos(np.radians(40)) ** 2])
    assert round(best.value, 2) == 1.17
    assert found.bound >= best.value


@pytest.mark.parametrize("method", [greedy, exact])
def test_a_crowd_that_is_spoken_for_does_not_stop_the_search(method) -> None:
    """Hundreds of copies of a support rank first; none of them may become one, and the rest is found below them."""
    rng = np.random.default_rng(0)
    X = np.vstack([np.repeat(rng.normal(size=(1, 40)), 200, axis=0), rng.normal(size=(3, 40))])
    c = np.concatenate([np.linspace(2, 1, 200), [0.3, 0.2, 0.1]])
    given_case = Case(memory(X), X, c, 0.25, [0])
    assert method(given_case.candidates(), 3).features == [0, 200, 201]
    with pytest.raises(RankingExhaustedError):
        method(given_case.candidates(150), 3)


@pytest.mark.parametrize("method", [greedy, exact])
def test_nothing_to_choose_from(method) -> None:
    X = make("noise", 3, 10, 0)
    cut = method(Case(memory(X), X, np.zeros(3), 0.25, []).candidates(), 2)
    assert (cut.features, cut.new, cut.new_rows, cut.value, cut.bound) == ([], [], None, 0.0, 0.0)


def test_rows_are_read_only_as_far_as_the_cut_needs() -> None:
    X = make("noise", 500, 60, 3)
    cut = greedy(Case(memory(X), X, np.linspace(2, 1, 500), 0.25, []).candidates(), 5)
    assert len(cut.features) == 5
    assert cut.n_examined < 20
