"""Certificate for k: a proven lower bound on the share of the best possible gain that the chosen features reach.

Let P(S) be the optimum of the machine on the features S alone; the gain of S is P(no features) - P(S). Problem (4) with
cuts of k features is a relaxation of the search for the best S of k uncorrelated features, so every dual A of the
master problem proves, for all such S at once,

    1 / (4 P(S)) <= (quad(A) + 1/2 q) / lin(A)^2

where q bounds the sum of squared scores of k uncorrelated features, over all features: supports cover nothing here. The
duals of the chosen set give the first bound; a cutting plane with cuts of k features improves it. `constraints` tells
what changes if some features must or must not be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gdm_dask.cutting_plane.matching import Cut, find_cut
from gdm_dask.cutting_plane.problem import LEAST_CUTS, MASTER_TOL, search_measure
from gdm_dask.cutting_plane.variable_set import constrained
from gdm_dask.cutting_plane.working_set import Supports, WorkingSet, read, sizes_of
from gdm_dask.engine.data import Data
from gdm_dask.features.block import Block
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.ranking import WORKING_VALUES, Fold, Question
from gdm_dask.master.problem import Master
from gdm_dask.settings.settings import Settings
from gdm_dask.settings.tasks import task_of
from gdm_dask.system.blas import single_threaded_blas

#: Maximum number of reads of the data.
CERTIFY_READS = 10
#: Stop reading unless the share grows by this much in two reads.
LEAST_GROWTH = 2e-3
#: Maximum number of features in all cuts, per support that entered: the memory plan has room for them. A few features
#: with short rows, up to this many values in all, need no plan.
MOST_FEATURES = 3
FEW_FEATURES, FEW_VALUES = 300, 5_000_000
#: Accuracy of master problems whose duals are only needed for a bound.
SEARCH_TOL = 1e-4
#: Bounds are loosened by this part of P(no features), to allow for rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Certificate:
    """Proven quality of a set of features."""

    #: The gain of the set is at least this share, in [0, 1], of the gain of any k uncorrelated features. 1 if all k
    #: features are included: there is no choice.
    share: float
    n_reads: int  # of the data, for the proof


@single_threaded_blas()
def certify(
    data: Data,
    targets: np.ndarray,
    settings: Settings,
    k: int,
    features: np.ndarray,
    rows: Block,
    weights: np.ndarray | None = None,
) -> Certificate:
    """Prove which share of the best possible gain of `k` uncorrelated features the given ones reach, at most `k`.

    `settings` and `weights` are those of the fit, `rows` the raw rows of the features.
    """
    is_included = np.isin(features, _included(settings))
    if k == (0 if settings.constraints is None else settings.constraints.n_included):
        return Certificate(1.0, 0)
    search = Search(targets, settings, k, weights)
    empty = search.begin(features[is_included], rows.rows(np.flatnonzero(is_included)))
    search.add(features, rows)
    reached = objective(search.master.solve_union(MASTER_TOL).lower)
    least, shares = 0.0, [0.0]
    while len(shares) <= CERTIFY_READS and (len(shares) < 3 or shares[-1] >= shares[-3] + LEAST_GROWTH):
        (found,) = read(data, [search.question()], [search.fold])
        seen = search.included.working_set(found)
        cut = search.find(seen, settings.matching)
        least = max(least, objective(search.master.bound(cut.bound)))
        possible = empty - least + ROUNDING * empty
        shares.append(float(np.clip((empty - reached) / possible, 0.0, 1.0)) if possible > 0 else 0.0)
        if not search.improve(seen, cut):
            break
    return Certificate(shares[-1], len(shares) - 1)


def _included(settings: Settings) -> np.ndarray:
    return np.zeros(0, np.int64) if settings.constraints is None else settings.constraints.include


def objective(theta: float) -> float:
    """Return P for theta = 1/(4P): an upper bound on theta gives a lower bound on P."""
    return 0.25 / theta if theta > 0 else np.inf


class Search:
    """Cutting plane over all features, with cuts of k features.

    Attributes
    ----------
    included : Supports
        Included features, which all cuts hold.
    """

    def __init__(self, targets: np.ndarray, settings: Settings, k: int, weights: np.ndarray | None = None) -> None:
        self.limit = correlation_limit(settings.tau)
        measure = search_measure(settings, weights)
        weights = settings.search_weights(targets, weights)
        self.fold = Fold(weights=weights)
        self._task = task_of(settings.task, settings.epsilon)
        self.master = Master(targets, settings.C, weights, self._task.search, settings.intercept, MASTER_TOL)
        self._settings, self._k = settings, k
        self.included = Supports(self.limit, measure)
        if settings.constraints is not None:
            self.included = constrained(self.included, settings.constraints)
        few = min(FEW_FEATURES, FEW_VALUES // self.master.rows.n_samples)
        self._most = max(MOST_FEATURES * (settings.n_supports or k), few)
        self._places: dict[int, int] = {}
        self._cuts: list[set[int]] = []

    def begin(self, features: np.ndarray, rows: Block) -> float:
        """Take the included features, and return P of the machine on them: without any, of no features."""
        if not len(features):
            return objective(self.master.bound(0.0))
        self.included.add(features.tolist(), rows)
        self.add(features, rows)
        self._k -= self.included.n_entered
        return objective(self.master.solve_union(MASTER_TOL).upper)

    def question(self) -> Question:
        """Ask for the best of all features under the current duals."""
        n_least = LEAST_CUTS * self._k
        n_working = max(self._settings.n_working, n_least)
        least_effective = self._task.least_effective(self.master.total_weight)
        included = self.included
        return Question(
            self.master.duals, n_working, included.known(), WORKING_VALUES, n_least, least_effective=least_effective,
            supports=included.search(), variables=included.variables,
        )  # fmt: skip

    def find(self, seen: WorkingSet, matching: str) -> Cut:
        """Find the most violated cut."""
        cut = find_cut(seen, self.master.duals, np.zeros(0), self._k, self.limit, matching)
        included = float(np.sum(sizes_of(self.included.rows, self.master.duals) ** 2))
        return replace(cut, value=cut.value + included, bound=cut.bound + included)

    def improve(self, seen: WorkingSet, cut: Cut) -> bool:
        """Add a cut, and further cuts from the same working set; return whether the duals have changed."""
        n_before = len(self._cuts)
        while len(self._cuts) < n_before + self._settings.cuts_per_read and self._is_worth_it(seen, cut):
            rows = seen.expand(np.array(cut.positions))
            features = np.concatenate([seen.row_features[rows], self.included.features]).astype(np.int64)
            self.add(features, seen.rows.rows(rows))
            self.master.solve(SEARCH_TOL)
            seen.take([])  # the scores have changed since the read
            cut = self.find(seen, "greedy")
        return len(self._cuts) > n_before

    def _is_worth_it(self, seen: WorkingSet, cut: Cut) -> bool:
        rows = seen.expand(np.array(cut.positions, np.int64))
        features = {*seen.row_features[rows].tolist(), *self.included.features}
        is_new = bool(cut.positions) and features not in self._cuts
        return is_new and len(self._places.keys() | features) <= self._most

    def add(self, features: np.ndarray, rows: Block) -> None:
        """Add a cut to the master problem, given the rows of at least its first features: all that are new to it."""
        fresh = np.array([n for n, feature in enumerate(features.tolist()) if feature not in self._places], np.int64)
        for feature in features[fresh].tolist():
            self._places[feature] = len(self._places)
        places = np.array([self._places[feature] for feature in features.tolist()])
        new = rows.rows(fresh)
        self.master.add_cut(places, new.matrix(), new.means, new.norms)
        self._cuts.append(set(features.tolist()))
