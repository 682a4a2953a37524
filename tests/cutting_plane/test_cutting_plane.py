"""The cutting plane against the literal algorithm: cuts, bounds on (4) at every iteration, reasons to stop."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import reference
from helpers.instances import data_of, informative, kinds, make, many, measures, memory, seeds, solved, suited, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.features.scores import scores
from gdm_dask.settings.settings import Settings

taus, sizes, methods = st.sampled_from([0.0, 0.25, 0.6]), st.integers(1, 3), st.sampled_from(["greedy", "exact"])
trade_offs = st.sampled_from([0.1, 1.0, 100.0])


class Run:
    """A run of the library's cutting plane that records the duals of every cut."""

    def __init__(self, X: np.ndarray, y: np.ndarray, *, sparse: bool = False, **options) -> None:
        defaults = {"C": 100.0, "tau": 0.25, "cut_size": 2, "max_cuts": 30, "tol": 1e-3, "intercept": False}
        self.settings = Settings(**defaults | options)
        X = suited(X, self.settings.measure)
        self.X, self.y = X, y
        self.problem, duals = solved(X, y, self.settings, sparse)
        self.vectors, self.reported = [one for (one,) in duals], self.problem.iterations
        self.block = whole(X, sparse)
        self.close = reference.correlated(X, self.settings.tau, self.settings.measure)

    def supports_before(self, t: int) -> list[int]:
        """Supports at the time of the search for cut t (from 0)."""
        return self.problem.supports.features[: sum(iteration.n_new for iteration in self.reported[:t])]

    def free(self, t: int) -> list[int]:
        """Features that no support covers at the time of the search for cut t."""
        return [j for j in reference.uncovered(self.close, self.supports_before(t)) if np.ptp(self.X[j]) > 0]


def small(kind: str, m: int, n: int, seed: int, **options) -> Run:
    X, y = informative(m, n, seed, kind)
    return Run(X, y, **options)


@many(100)
@given(kinds, st.integers(2, 25), st.integers(4, 40), taus, sizes, trade_offs, st.booleans(), measures, seeds)
def test_every_cut_is_the_literal_one_for_its_alpha(kind, m, n, tau, size, C, sparse, measure, seed) -> None:
    X, y = informative(m, n, seed, kind)
    run = Run(X, y, measure=measure, tau=tau, cut_size=size, C=C, sparse=sparse, cuts_per_read=1)
    for t, iteration in enumerate(run.reported):
        c = scores(run.block, run.vectors[t][None])[0]
        assert (run.vectors[t] * y).min() >= 0
        assert iteration.cut == reference.greedy_cut(c, run.close, size, run.supports_before(t))
        np.testing.assert_allclose(iteration.scores, np.abs(c[iteration.cut]) / np.linalg.norm(run.vectors[t]))
        assert iteration.best_score == max(iteration.scores)


@many(25)
@given(kinds, st.integers(2, 10), st.integers(4, 30), taus, sizes, trade_offs, seeds)
def test_lower_bounds_are_clarabels_optima(kind, m, n, tau, size, C, seed) -> None:
    run = small(kind, m, n, seed, tau=tau, cut_size=size, C=C)
    for t, lower in enumerate(run.problem.lower_bounds):
        value = reference.master_optimum(run.X, run.y, run.problem.cuts[: t + 1], C)
        assert value * (1 - 2e-4) <= lower <= value * (1 + 1e-7)


@many(60)
@given(kinds, st.integers(2, 7), st.integers(4, 25), taus, sizes, trade_offs, methods, measures, seeds)
def test_bounds_enclose_the_optimum_with_all_cuts(kind, m, n, tau, size, C, matching, measure, seed) -> None:
    """(4) over the features that no support covers, solved with every feasible cut at once."""
    run = small(kind, m, n, seed, measure=measure, tau=tau, cut_size=size, C=C, matching=matching, tol=1e-5)
    problem = run.problem
    optima: dict[tuple, float] = {}
    for t, (lower, upper) in enumerate(zip(problem.lower_bounds, problem.upper_bounds, strict=True)):
        free = tuple(run.free(t + 1))
        if free not in optima:
            optima[free] = reference.optimum(run.X, run.y, run.close, size, C, list(free))
        assert lower <= optima[free] * (1 + 1e-7)
        assert upper >= optima[free] * (1 - 1e-7)
    first = reference.optimum(run.X, run.y, run.close, size, C, run.free(0))
    assert not run.reported or run.reported[0].upper >= first * (1 - 1e-7)


def assert_honest(run: Run) -> None:
    """Check that the bounds only tighten, and that the gap follows from them."""
    problem, tol = run.problem, run.settings.tol
    assert (np.diff(problem.lower_bounds) >= 0).all()
    assert (np.diff(problem.upper_bounds) <= 0).all()
    lower, upper = problem.lower_bounds[-1], problem.upper_bounds[-1]
    assert problem.gap == max(0.0, (upper - lower) / upper)
    assert problem.stopped in ("tolerance", "max_cuts", "repeated cut", "nothing left", "enough supports")
    assert (problem.stopped == "tolerance") <= (problem.gap <= tol)
    assert [iteration.number for iteration in run.reported] == list(range(1, len(problem.cuts) + 1))
    assert [iteration.cut for iteration in run.reported] == problem.cuts
    supports = problem.supports.features
    assert len(supports) == len(set(supports)) == run.reported[-1].n_supports
    assert set(supports) == {feature for cut in problem.cuts for feature in cut}
    assert not run.close[np.ix_(supports, supports)].any()


@many(80)
@given(kinds, st.integers(2, 40), st.integers(4, 40), taus, sizes, trade_offs, methods, st.booleans(), measures, seeds)
def test_promises(kind, m, n, tau, size, C, matching, sparse, measure, seed) -> None:
    X, y = informative(m, n, seed, kind)
    run = Run(X, y, measure=measure, tau=tau, cut_size=size, C=C, matching=matching, sparse=sparse)
    if run.reported:
        assert_honest(run)
        assert all(len(cut) <= size for cut in run.problem.cuts)


@many(30)
@given(kinds, st.integers(2, 20), st.integers(4, 30), sizes, trade_offs, st.sampled_from([1e-2, 1e-4, 2e-5]), seeds)
def test_without_constraint_it_converges_to_any_tolerance(kind, m, n, size, C, tol, seed) -> None:
    """tau = 0 is FGM: greedy matching is optimal, so the bounds meet."""
    run = small(kind, m, n, seed, tau=0.0, cut_size=size, C=C, tol=tol, max_cuts=10_000)
    if run.reported:
        assert run.problem.stopped == "tolerance"
        assert run.problem.gap <= tol


def test_without_constraint_copies_enter_together() -> None:
    X, y = informative(5, 40, 0)
    X = np.vstack([X[:1], X[:1], X])
    run = Run(X, y, tau=0.0, cut_size=3)
    best = reference.ranking(scores(run.block, run.vectors[0][None])[0])[:3]
    assert run.problem.cuts[0] == best
    assert {0, 1, 2} <= set(Run(X, y, tau=0.0, cut_size=7).problem.supports.features)
    assert len({0, 1, 2} & set(Run(X, y, tau=0.05, cut_size=7).problem.supports.features)) <= 1


def test_stops_at_max_cuts() -> None:
    run = small("noise", 40, 60, 0, max_cuts=3, tol=0.0)
    assert len(run.reported) == 3
    assert run.problem.stopped == "max_cuts"


def test_stops_when_there_are_enough_supports() -> None:
    run = small("noise", 40, 60, 0, cut_size=3, n_supports=7)
    assert run.problem.stopped == "enough supports"
    assert len(run.problem.supports.features) == 7


def test_stops_when_a_cut_repeats() -> None:
    """All features are copies of one: the second cut is the first again."""
    X, y = informative(1, 30, 0, "noise")
    run = Run(np.repeat(X, 5, axis=0), y, cut_size=3, tol=0.0)
    assert run.problem.cuts == [[0]]
    assert run.problem.n_reads == 2
    assert run.problem.gap <= 1e-6
    # Rounding decides whether the gap is 0 before or after the cut is found again.
    assert run.problem.stopped == "repeated cut" or (run.problem.stopped, run.problem.gap) == ("tolerance", 0.0)


def test_no_score_at_all() -> None:
    run = Run(np.zeros((4, 10)), np.repeat([-1.0, 1.0], 5))
    assert run.problem.cuts == []
    assert run.problem.stopped == "nothing left"
    assert run.problem.gap == 1.0


def test_a_support_may_be_picked_again_and_its_companions_never() -> None:
    X, y = informative(12, 60, 4, "groups")
    run = Run(X, y, cut_size=2, tau=0.5, tol=1e-4)
    picked = [feature for cut in run.problem.cuts for feature in cut]
    assert len(picked) > len(set(picked))
    for feature in run.problem.supports.features:
        companions = set(np.flatnonzero(run.close[feature]).tolist())
        assert not companions & set(run.problem.supports.features)


@pytest.mark.parametrize("kind", ["groups", "counts"])
def test_a_line_per_iteration(kind: str) -> None:
    line = str(small(kind, 20, 30, 0).reported[0])
    for word in ("cut 1: ", " supports (+", ", best score ", ", gap ", " s"):
        assert word in line


def test_a_group_larger_than_the_working_set() -> None:
    """It fills the working set; the next read leaves out all features that its support covers."""
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], 50)
    crowd = np.repeat((y + 0.1 * rng.normal(size=100))[None], 700, axis=0) + 0.01 * rng.normal(size=(700, 100))
    X = np.vstack([make("noise", 3, 100, 1), crowd])
    run = Run(X, y, cut_size=3, max_cuts=3, n_working=50, n_supports=4)
    assert len(run.problem.cuts[0]) == 1
    assert [iteration.n_reads for iteration in run.reported[:2]] == [1, 2]
    assert set(run.problem.supports.features[1:]) == {0, 1, 2}
    assert run.problem.stopped == "enough supports"


@many(60)
@given(
    kinds, st.integers(2, 40), st.integers(4, 40), taus, sizes, st.integers(1, 4), st.integers(1, 12), methods, seeds
)
def test_small_working_sets_keep_all_promises(kind, m, n, tau, size, cuts_per_read, n_working, matching, seed) -> None:
    """Whatever is left outside, the bounds hold, supports do not correlate, and the search ends."""
    options = {"tau": tau, "cut_size": size, "matching": matching, "n_working": n_working}
    run = small(kind, m, n, seed, cuts_per_read=cuts_per_read, max_cuts=60, **options)
    if run.reported:
        assert_honest(run)
    if m <= 7:
        problem = run.problem
        optimum = reference.optimum(run.X, run.y, run.close, size, run.settings.C, run.free(len(run.reported)))
        assert not problem.cuts or problem.lower_bounds[-1] <= optimum * (1 + 1e-7)
        assert not problem.cuts or problem.upper_bounds[-1] >= optimum * (1 - 1e-7)


@pytest.mark.parametrize("cuts_per_read", [1, 3])
def test_a_working_set_serves_so_many_cuts(cuts_per_read: int) -> None:
    run = small("noise", 60, 80, 0, cut_size=2, n_supports=12, cuts_per_read=cuts_per_read, n_working=30)
    assert len(run.reported) == 6
    assert [iteration.n_reads for iteration in run.reported] == [1 + t // cuts_per_read for t in range(6)]


def test_problems_share_every_read() -> None:
    """Each problem of a list ends as it would alone."""
    X, y = informative(50, 60, 3, "noise")
    options = [{"C": 1.0}, {"C": 100.0, "tau": 0.6}, {"C": 100.0, "n_supports": 9, "cut_size": 3}]
    settings = [Settings(**{"tau": 0.25, "cut_size": 2, "max_cuts": 12, "tol": 1e-3} | option) for option in options]
    together, alone = ([Problem(y, one) for one in settings] for _ in range(2))
    with data_of(memory(X, False)) as data:
        solve(together, data)
        assert data.counts.passes == max(problem.n_reads for problem in together)
        for problem in alone:
            solve([problem], data)
    for one, other in zip(together, alone, strict=True):
        assert one.cuts == other.cuts
        assert one.lower_bounds == other.lower_bounds
        assert one.upper_bounds == other.upper_bounds
        np.testing.assert_array_equal(one.master.duals, other.master.duals)
