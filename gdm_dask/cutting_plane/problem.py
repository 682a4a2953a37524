"""A problem: its state between two reads, and the cuts it takes from a working set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.cutting_plane.matching import Cut, by_rank, find_cut, norm_of
from gdm_dask.cutting_plane.variable_set import constrained
from gdm_dask.cutting_plane.working_set import Pool, Seen, Supports, WholeRows, WorkingSet
from gdm_dask.features.block import Block
from gdm_dask.features.correlation import chance_correlation, correlation_limit
from gdm_dask.features.measures import MEASURES, Measure
from gdm_dask.features.measures.reweighted import under
from gdm_dask.features.moments import reweighted
from gdm_dask.features.ranking import WORKING_VALUES, Fold, Question
from gdm_dask.master.problem import Master, MasterSolution
from gdm_dask.settings.settings import Settings
from gdm_dask.settings.tasks import task_of
from gdm_dask.system.progress import work_clock

#: Relative duality gap of the last master problem; earlier ones are solved as far as the cutting plane's gap requires.
MASTER_TOL = 1e-6
#: A read brings the rows of at least this many cuts, however long they are.
LEAST_CUTS = 2
#: Skip a cut of a working set if the master problem satisfies it up to this part of the tolerance.
SATISFIED = 0.5


def search_measure(settings: Settings, weights: np.ndarray | None) -> Measure:
    """Return the correlation measure of a search: balance of the classes does not change correlations."""
    measure = MEASURES[settings.measure]
    return under(measure, weights) if settings.is_balanced else measure


class Problem:
    """State of the cutting plane for one target, complete enough to continue from.

    Parameters
    ----------
    targets : ndarray of shape (n_outputs, n_samples) or (n_samples,)
        -1 or +1 for classes.
    settings : Settings
    samples : ndarray of int64, increasing, optional
        Samples of the problem, which `targets` refer to; all by default.
    weights : ndarray of float64, optional
        Nonnegative weights of these samples: a sample of weight 2 counts as two. All 1 by default.

    Attributes
    ----------
    sample_fold : Fold
        Samples and their weights.
    fold : Fold
        Samples and their weights in the search, which may balance the classes.
    task : Task
    include : ndarray of int64
        Features that must be supports: the first cut, and part of every other.
    supports : Supports
    master : Master
    cuts : list of list of int
        Features of each cut, apart from included features in the first.
    solution : MasterSolution or None
        Solution of the last master problem.
    lower_bounds, upper_bounds : list of float
        Bounds after each cut.
    stopped : str
        Why it stopped: ``"tolerance"``, ``"max_cuts"``, ``"repeated cut"``, ``"nothing left"``, ``"enough supports"``.
    working_set : WorkingSet or None
        Working set from which further cuts can be taken.
    pool : Pool
    whole : WholeRows
        Rows of supports and pool with all samples.
    n_reads : int
    is_crowded : bool
        Whether covered features filled a working set: the next reads leave them out.
    on_cut : callable or None
        Called with an `Iteration` after each cut, in any thread.
    """

    def __init__(
        self,
        targets: np.ndarray,
        settings: Settings,
        samples: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        self.settings = settings
        self.sample_fold = Fold(samples, weights)
        measure = search_measure(settings, weights)
        weights = settings.search_weights(targets, weights)
        self.fold = Fold(samples, weights)
        self.task = task_of(settings.task, settings.epsilon)
        self.supports = Supports(correlation_limit(settings.tau), measure)
        self.include = np.zeros(0, np.int64)
        if settings.constraints is not None:
            self.supports, self.include = constrained(self.supports, settings.constraints), settings.constraints.include
        self.master = Master(targets, settings.C, weights, self.task.search, settings.intercept, MASTER_TOL)
        self._least_effective = self.task.least_effective(self.master.total_weight)
        self.cuts: list[list[int]] = []
        self.solution: MasterSolution | None = None
        self.lower_bounds: list[float] = []
        self.upper_bounds: list[float] = []
        self.iterations: list[Iteration] = []
        self.stopped = ""
        self.working_set: WorkingSet | None = None
        self.pool = Pool()
        self.n_reads, self.is_crowded = 0, False
        self.on_cut: Callable[[Iteration], None] | None = None
        self._upper, self._cost = np.inf, (0.0, 0)
        self.whole = WholeRows(samples is not None)

    @property
    def gap(self) -> float:
        """Relative gap between the bounds; 1 before the first cut."""
        if not self.lower_bounds:
            return 1.0
        upper = self.upper_bounds[-1]
        return max(0.0, (upper - self.lower_bounds[-1]) / upper) if upper > 0 else 0.0

    @property
    def n_included(self) -> int:
        """Number of included features among the supports, of which they are the first."""
        include = set(self.include.tolist())
        return sum(feature in include for feature in self.supports.features[: len(include)])

    @property
    def n_wanted(self) -> int:
        """Number of features of the next cut."""
        settings = self.settings
        if settings.n_supports is None:
            return settings.cut_size
        return min(settings.cut_size, settings.n_supports - self.supports.n_entered)

    def unbalanced(self, rows: Block) -> Block:
        """Return rows of the problem with the moments of the sample weights: balance serves the search alone."""
        return reweighted(rows, self.sample_fold.weights) if self.settings.is_balanced else rows

    def question(self) -> Question:
        """Question for the next read."""
        n_working = max(self.settings.n_working, LEAST_CUTS * self.settings.cut_size)
        question = self._question(n_working, WORKING_VALUES)
        return replace(question, supports=self.supports.search()) if self.is_crowded else question

    def last_question(self) -> Question:
        """Question for a read after the last cut, for `verify`."""
        return self._question(LEAST_CUTS * self.settings.cut_size, 0)

    def _question(self, k: int, n_values: int) -> Question:
        n_least = LEAST_CUTS * self.settings.cut_size
        return Question(
            self.master.duals, k, self.supports.known(), n_values, n_least, least_effective=self._least_effective,
            variables=self.supports.variables,
        )  # fmt: skip

    def begin(self, whole: Block) -> None:
        """Take the included features that vary as the first cut, given their rows with all samples."""
        clock, rows = work_clock(), self.fold.of(whole)
        there = np.flatnonzero(rows.norms)
        features, rows = self.include[there], rows.rows(there)
        if not len(features):
            return
        self.whole.add(features, whole.rows(there))
        self.supports.add(features.tolist(), rows)
        scores, n_new = self.supports.sizes(self.master.duals) / self._norm(), self.supports.n_entered
        features, scores = by_rank(features, np.repeat(scores, self.supports.counts(np.arange(n_new))))
        self._add_solved(features.tolist(), rows)
        assert self.settings.constraints is not None
        n_most = len(features) + self.settings.constraints.most_features(self.settings.cut_size)
        self._upper = self.upper_bounds[-1] = self.master.bound(n_most * self.master.largest_square())
        self._note(scores.tolist(), n_new, (0, 0), {"matching": 0.0, "master": work_clock() - clock})

    def see(self, seen: Seen, seconds: float = 0.0, bytes_read: int = 0) -> None:
        """Take the result of a read, and its cost."""
        self.working_set = self.supports.working_set(seen)
        self.n_reads += 1
        self._cost = seconds, bytes_read

    def advance(self) -> None:
        """Take cuts from the working set until a read is needed or the problem is solved."""
        self.stopped = self.enough()
        while self.working_set is not None and not self.stopped:
            if self._take_cut(self.working_set):
                self.stopped = self.enough()
            else:
                self.working_set = None
        if self.stopped:
            self.working_set = None

    def enough(self) -> str:
        """Return why no further cut is wanted."""
        settings = self.settings
        if settings.n_supports is not None and self.supports.n_entered >= settings.n_supports:
            return "enough supports"
        return "max_cuts" if len(self.cuts) >= settings.max_cuts else ""

    def restore(self, lower_bounds: list[float], upper_bounds: list[float], n_reads: int, is_crowded: bool) -> None:
        """Restore saved bounds and counts."""
        self.lower_bounds, self.upper_bounds = lower_bounds, upper_bounds
        self.n_reads, self.is_crowded = n_reads, is_crowded
        self._upper = upper_bounds[-1]

    def verify(self, seen: Seen) -> None:
        """Take the bound of the last duals from the result of a read."""
        self._bound(self._find_cut(self.supports.working_set(seen)))

    def finish(self) -> None:
        """Solve the last master problem to full accuracy: its weights are the result."""
        self.solution = self.master.solve(MASTER_TOL)
        self.lower_bounds[-1] = max(self.lower_bounds[-1], self.solution.lower)

    def _take_cut(self, seen: WorkingSet) -> bool:
        """Take a cut; return whether there was one worth taking."""
        if seen.n_cuts >= self.settings.cuts_per_read:
            return False
        clock = work_clock()
        cut = self._find_cut(seen)
        if seen.is_fresh:
            self._bound(cut)
        if not self._is_worth_it(seen, cut):
            return False
        n_new = min(len(cut.positions), self.n_wanted)
        matched = work_clock()
        self._keep_passed(seen, cut)
        self._keep_seen(seen, seen.expand(np.array(cut.positions[:n_new], np.int64)))
        features, sizes = self._features(seen, cut, n_new)
        scores = (sizes / self._norm()).tolist()
        self._add_solved(features, seen.take(cut.positions[:n_new]))
        seconds = {"matching": matched - clock, "master": work_clock() - matched}
        self._note(scores, n_new, (len(seen.features), seen.n_compared), seconds)
        return True

    def _norm(self) -> float:
        """Norm of the present duals: no score is larger."""
        return norm_of(self.master.duals, self.fold.weights)

    def _add_solved(self, features: list[int], rows: Block | None) -> None:
        """Add a cut and solve the master problem."""
        self.add_cut(features, rows)
        self.solution = self._solve_master()
        self.lower_bounds.append(max([self._lower(self.solution), *self.lower_bounds[-1:]]))
        self.upper_bounds.append(self._upper)

    def _find_cut(self, seen: WorkingSet) -> Cut:
        settings, sizes = self.settings, self.supports.sizes(self.master.duals)
        limit, new_only = self.supports.limit, settings.n_supports is not None
        is_included = self.supports.starts < self.n_included
        included = float(np.sum(sizes[is_included] ** 2))
        sizes = np.where(is_included, 0.0, sizes)  # they are in the cut already
        chance = chance_correlation(self.master.total_weight) if settings.is_diverse else None
        cut = find_cut(seen, self.master.duals, sizes, settings.cut_size, limit, settings.matching, new_only, chance)
        return replace(cut, value=cut.value + included, bound=cut.bound + included)

    def _bound(self, cut: Cut) -> None:
        """Update the upper bound on (4); it belongs to the duals of the cuts so far."""
        self._upper = min(self._upper, self.master.bound(cut.bound))
        if self.upper_bounds:
            self.upper_bounds[-1] = self._upper

    def _is_worth_it(self, seen: WorkingSet, cut: Cut) -> bool:
        """Return whether to add a cut; if not, the data is read again unless the problem is solved."""
        n_found = len(cut.positions) + len(cut.supports)
        if not seen.is_fresh and n_found < self.n_wanted:
            return False
        self.is_crowded |= cut.is_crowded
        if not n_found:
            self.stopped = "" if cut.is_crowded else "nothing left"
            return False
        if self.settings.n_supports is not None:
            return bool(cut.positions)
        if seen.is_fresh and self.cuts and self.gap <= self.settings.tol:
            self.stopped = "tolerance"
        elif self._is_repeated(seen, cut):
            self.stopped = "repeated cut" if seen.is_fresh and not cut.is_crowded else ""
            return False
        elif not seen.is_fresh and self._is_satisfied(cut):
            return False
        return not self.stopped

    def _is_repeated(self, seen: WorkingSet, cut: Cut) -> bool:
        return set(self._features(seen, cut, len(cut.positions))[0]) in [set(earlier) for earlier in self.cuts]

    def _is_satisfied(self, cut: Cut) -> bool:
        """Return whether the master problem over the cuts so far satisfies this cut, well within the tolerance."""
        return bool(self.lower_bounds[-1] >= (1.0 - SATISFIED * self.settings.tol) * self.master.bound(cut.value))

    def _features(self, seen: WorkingSet, cut: Cut, n_new: int) -> tuple[list[int], np.ndarray]:
        """Return the features of a cut by rank, with `n_new` new ones, and their |scores|."""
        new, old = np.array(cut.positions[:n_new], np.int64), np.array(cut.supports, np.int64)
        known = np.array(self.supports.features, np.int64)[self.supports.expand(old)]
        sizes = [(cut.sizes[new], seen.counts(new)), (cut.support_sizes[old], self.supports.counts(old))]
        features = np.concatenate([seen.row_features[seen.expand(new)], known])
        features, ranked = by_rank(features, np.concatenate([np.repeat(*one) for one in sizes]))
        return features.tolist(), ranked

    def _keep_passed(self, seen: WorkingSet, cut: Cut) -> None:
        """Add the features that the cut passed over to the pool."""
        known = set(self.pool.features)
        fresh = [place for place in cut.passed[: self.settings.pool_per_cut] if seen.features[place] not in known]
        if fresh:
            self.pool.add(seen.features[fresh], seen.rows.rows(np.array(fresh)))
            self._keep_seen(seen, np.array(fresh))

    def _keep_seen(self, seen: WorkingSet, rows: np.ndarray) -> None:
        if seen.whole is not None and self.whole.is_needed:
            self.whole.add(seen.row_features[rows], seen.whole.rows(rows))

    def add_cut(self, features: list[int], rows: Block | None) -> None:
        """Add a cut and the included features to the master problem; `rows` holds the features that are new."""
        position = {feature: place for place, feature in enumerate(self.supports.features)}
        places = np.array([position[feature] for feature in features])
        places = np.concatenate([np.setdiff1d(np.arange(self.n_included), places), places])
        if rows is None:
            self.master.add_cut(places, np.zeros((0, self.master.rows.n_samples)), np.zeros(0), np.zeros(0))
        else:
            self.master.add_cut(places, rows.matrix(), rows.means, rows.norms)
        self.cuts.append(features)

    def _solve_master(self) -> MasterSolution:
        if self.settings.merged:
            return self.master.solve_union(MASTER_TOL)
        return self.master.solve(self._master_tol())

    def _lower(self, solution: MasterSolution) -> float:
        """Lower bound on (4): the master's own, or computed from the merged machine's weights split by cut.

        The merged cut is larger than (4) allows, so its optimum bounds nothing. But its weights are a solution of (5)
        if the norms of the cuts are summed, as in (5), instead of their squares. Included features are in all cuts.
        """
        if not self.settings.merged:
            return solution.lower
        first = self.n_included
        squares = np.array([np.sum(solution.weights[:, cut[cut >= first]] ** 2) for cut in self.master.cuts])
        value = 0.25 / solution.lower - 0.5 * squares.sum() + 0.5 * np.sqrt(squares).sum() ** 2
        return float(0.25 / value) if np.isfinite(solution.lower) else solution.lower

    def _master_tol(self) -> float:
        """Accuracy for the next master problem: a small part of the remaining gap and of the target gap.

        A repeated cut proves no smaller gap than the master's own.
        """
        return float(np.clip(min(1e-2 * self.gap, 0.1 * self.settings.tol), MASTER_TOL, 1e-4))

    def _note(self, scores: list[float], n_new: int, n_seen: tuple[int, int], seconds: dict[str, float]) -> None:
        """Record and report the last cut, with the numbers of features that were ranked and examined for it."""
        (read_seconds, bytes_read), self._cost = self._cost, (0.0, 0)
        self.iterations.append(
            Iteration(
                number=len(self.cuts),
                cut=self.cuts[-1],
                n_new=n_new,
                n_supports=self.supports.n_entered,
                best_score=scores[0],
                lower=self.lower_bounds[-1],
                upper=self.upper_bounds[-1],
                gap=self.gap,
                n_ranked=n_seen[0],
                n_examined=n_seen[1],
                bytes_read=bytes_read,
                seconds={"scores": read_seconds, **seconds},
                scores=scores,
                n_reads=self.n_reads,
                n_entering=self.settings.n_supports,
            )
        )
        if self.on_cut is not None:
            self.on_cut(self.iterations[-1])
