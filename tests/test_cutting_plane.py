"""The cutting plane against the literal one: cuts, bounds on (4) at every iteration, reasons to stop."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import informative, kinds, make, many, memory, passes_over, seeds, whole

from gdm_dask.cutting_plane import Settings, new_machine, run_cutting_plane
from gdm_dask.passes import Passes
from gdm_dask.scores import scores

taus, sizes, methods = st.sampled_from([0.0, 0.25, 0.6]), st.integers(1, 3), st.sampled_from(["greedy", "exact"])
trade_offs = st.sampled_from([0.1, 1.0, 100.0])


class Run:
    """A run of the library's cutting plane that remembers alpha * y of every score pass."""

    def __init__(self, X: np.ndarray, y: np.ndarray, *, sparse: bool = False, **options) -> None:
        self.X, self.y = X, y
        self.vectors: list[np.ndarray] = []
        self.reported: list = []
        defaults = {"C": 100.0, "tau": 0.25, "cut_size": 2, "max_cuts": 30, "tol": 1e-3}
        self.settings = Settings(**defaults | options)
        with passes_over(memory(X, sparse)) as passes:
            self._listen(passes)
            self.machine = run_cutting_plane(
                new_machine(y, self.settings),
                passes,
                self.settings,
                callback=lambda machine: self.reported.append(machine.iterations[-1]),
            )
        self.block = whole(X, sparse)
        self.close = reference.correlated(X, self.settings.tau)

    def _listen(self, passes: Passes) -> None:
        rank = passes.top

        def top(vectors: np.ndarray, k: int, spoken: np.ndarray):
            if not self.vectors or not np.array_equal(self.vectors[-1], vectors[0]):
                self.vectors.append(vectors[0].copy())
            return rank(vectors, k, spoken)

        passes.top = top  # type: ignore[method-assign]

    def supports_before(self, t: int) -> list[int]:
        """Supports when cut t (from 0) was looked for."""
        return [j for k, j in enumerate(self.machine.spoken.features) if k < self._entered(t)]

    def _entered(self, t: int) -> int:
        return sum(iteration.n_new for iteration in self.reported[:t])

    def free(self, t: int) -> list[int]:
        """Features that no support speaks for when cut t is looked for."""
        return [j for j in reference.unspoken(self.close, self.supports_before(t)) if np.ptp(self.X[j]) > 0]


def small(kind: str, m: int, n: int, seed: int, **options) -> Run:
    X, y = informative(m, n, seed, kind)
    return Run(X, y, **options)


@many(100)
@given(kinds, st.integers(2, 25), st.integers(4, 40), taus, sizes, trade_offs, st.booleans(), seeds)
def test_every_cut_is_the_literal_one_for_its_alpha(kind, m, n, tau, size, C, sparse, seed) -> None:
    X, y = informative(m, n, seed, kind)
    run = Run(X, y, tau=tau, cut_size=size, C=C, sparse=sparse)
    for t, iteration in enumerate(run.reported):
        c = scores(run.block, run.vectors[t][None])[0]
        alpha = run.vectors[t] * y
        assert alpha.min() >= 0
        assert abs(alpha.sum() - 1) < 1e-12
        assert iteration.cut == reference.greedy_cut(c, run.close, size, run.supports_before(t))
        assert iteration.best_score == np.abs(c).max()


@many(25)
@given(kinds, st.integers(2, 10), st.integers(4, 30), taus, sizes, trade_offs, seeds)
def test_lower_bounds_are_clarabels_optima(kind, m, n, tau, size, C, seed) -> None:
    run = small(kind, m, n, seed, tau=tau, cut_size=size, C=C)
    for t, lower in enumerate(run.machine.lower_bounds):
        value = reference.master_optimum(run.X, run.y, run.machine.cuts[: t + 1], C)
        assert value * (1 - 2e-4) <= lower <= value * (1 + 1e-7)


@many(60)
@given(kinds, st.integers(2, 7), st.integers(4, 25), taus, sizes, trade_offs, methods, seeds)
def test_bounds_enclose_the_optimum_with_all_cuts(kind, m, n, tau, size, C, matching, seed) -> None:
    """(4) over the features that nobody speaks for, solved with every feasible cut at once."""
    run = small(kind, m, n, seed, tau=tau, cut_size=size, C=C, matching=matching, tol=1e-5)
    machine = run.machine
    optima: dict[tuple, float] = {}
    for t, (lower, upper) in enumerate(zip(machine.lower_bounds, machine.upper_bounds, strict=True)):
        free = tuple(run.free(t + 1))
        if free not in optima:
            optima[free] = reference.optimum(run.X, run.y, run.close, size, C, list(free))
        assert lower <= optima[free] * (1 + 1e-7)
        assert upper >= optima[free] * (1 - 1e-7)
    first = reference.optimum(run.X, run.y, run.close, size, C, run.free(0))
    assert not run.reported or run.reported[0].upper >= first * (1 - 1e-7)


def assert_honest(run: Run) -> None:
    """Bounds that only close in, and a gap that is what it is called."""
    machine, tol = run.machine, run.settings.tol
    assert (np.diff(machine.lower_bounds) >= 0).all()
    assert (np.diff(machine.upper_bounds) <= 0).all()
    lower, upper = machine.lower_bounds[-1], machine.upper_bounds[-1]
    assert machine.gap == max(0.0, (upper - lower) / upper)
    assert machine.stopped in ("tolerance", "max_cuts", "repeated cut", "nothing left", "enough supports")
    assert (machine.stopped == "tolerance") <= (machine.gap <= tol)
    assert [iteration.number for iteration in run.reported] == list(range(1, len(machine.cuts) + 1))
    assert [iteration.cut for iteration in run.reported] == machine.cuts
    supports = machine.spoken.features
    assert len(supports) == len(set(supports)) == run.reported[-1].n_supports
    assert set(supports) == {feature for cut in machine.cuts for feature in cut}
    assert not run.close[np.ix_(supports, supports)].any()


@many(80)
@given(kinds, st.integers(2, 40), st.integers(4, 40), taus, sizes, trade_offs, methods, st.booleans(), seeds)
def test_promises(kind, m, n, tau, size, C, matching, sparse, seed) -> None:
    X, y = informative(m, n, seed, kind)
    run = Run(X, y, tau=tau, cut_size=size, C=C, matching=matching, sparse=sparse)
    if run.reported:
        assert_honest(run)
        assert all(len(cut) <= size for cut in run.machine.cuts)


@many(30)
@given(kinds, st.integers(2, 20), st.integers(4, 30), sizes, trade_offs, st.sampled_from([1e-2, 1e-4, 2e-5]), seeds)
def test_without_constraint_it_converges_to_any_tolerance(kind, m, n, size, C, tol, seed) -> None:
    """tau = 0 is FGM: greedy matching is optimal, so the bounds meet."""
    run = small(kind, m, n, seed, tau=0.0, cut_size=size, C=C, tol=tol, max_cuts=10_000)
    if run.reported:
        assert run.machine.stopped == "tolerance"
        assert run.machine.gap <= tol


def test_without_constraint_copies_enter_together() -> None:
    X, y = informative(5, 40, 0)
    X = np.vstack([X[:1], X[:1], X])
    run = Run(X, y, tau=0.0, cut_size=3)
    best = reference.ranking(scores(run.block, run.vectors[0][None])[0])[:3]
    assert run.machine.cuts[0] == best
    assert {0, 1, 2} <= set(Run(X, y, tau=0.0, cut_size=7).machine.spoken.features)
    assert len({0, 1, 2} & set(Run(X, y, tau=0.05, cut_size=7).machine.spoken.features)) <= 1


def test_stops_at_max_cuts() -> None:
    run = small("noise", 40, 60, 0, max_cuts=3, tol=0.0)
    assert len(run.reported) == 3
    assert len(run.vectors) == 3
    assert run.machine.stopped == "max_cuts"


def test_stops_when_there_are_enough_supports() -> None:
    run = small("noise", 40, 60, 0, cut_size=3, n_supports=7)
    assert run.machine.stopped == "enough supports"
    assert len(run.machine.spoken.features) == 7


def test_stops_when_a_cut_repeats() -> None:
    """All features are copies of one: the second cut is the first again."""
    X, y = informative(1, 30, 0, "noise")
    run = Run(np.repeat(X, 5, axis=0), y, cut_size=3, tol=0.0)
    assert run.machine.cuts == [[0]]
    assert len(run.vectors) == 2
    assert run.machine.gap <= 1e-6
    # Rounding decides whether the gap is 0 before the cut is found again, or after the last master problem.
    assert run.machine.stopped == "repeated cut" or (run.machine.stopped, run.machine.gap) == ("tolerance", 0.0)


def test_no_score_at_all() -> None:
    run = Run(np.zeros((4, 10)), np.repeat([-1.0, 1.0], 5))
    assert run.machine.cuts == []
    assert run.machine.stopped == "nothing left"
    assert run.machine.gap == 1.0


def test_a_support_may_be_picked_again_and_its_companions_never() -> None:
    X, y = informative(12, 60, 4, "groups")
    run = Run(X, y, cut_size=2, tau=0.5, tol=1e-4)
    picked = [feature for cut in run.machine.cuts for feature in cut]
    assert len(picked) > len(set(picked))
    for feature in run.machine.spoken.features:
        companions = set(np.flatnonzero(run.close[feature]).tolist())
        assert not companions & set(run.machine.spoken.features)


@pytest.mark.parametrize("kind", ["groups", "counts"])
def test_a_line_per_iteration(kind: str) -> None:
    line = str(small(kind, 20, 30, 0).reported[0])
    for word in ("cut 1", "best score", "supports", "bounds", "gap", "scores", "matching", "master"):
        assert word in line


def test_more_features_in_the_way_than_were_ranked() -> None:
    """A group larger than the ranking: it is ranked further down until the cut is whole, and the cut is right."""
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], 50)
    crowd = np.repeat((y + 0.1 * rng.normal(size=100))[None], 700, axis=0) + 0.01 * rng.normal(size=(700, 100))
    X = np.vstack([make("noise", 3, 100, 1), crowd])
    run = Run(X, y, cut_size=3, max_cuts=2)
    c = scores(run.block, run.vectors[0][None])[0]
    assert run.machine.cuts[0] == reference.greedy_cut(c, run.close, 3, [])
    assert run.reported[0].n_ranked == 703
