"""Correlation Redundancy Matching (Algorithm 2), corrected: the most violated cut, and a valid bound on (6).

As printed, Algorithm 2 picks B + 1 features, skips uncorrelated ones inside its score window and need not end. What it
means: walk down the ranking of |c| and take a feature unless it correlates with one already taken; stop at B. That is
`greedy`. It need not solve (6), because correlation is not transitive, so its own value is no upper bound; the bound
that goes with it comes from a clique cover. `exact` solves (6) as an integer program.

The walk also keeps the promise across cuts: a feature that correlates with a support of an earlier cut is spoken for by
that support and never becomes one itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gdm_dask.candidates import NEGLIGIBLE, Batch, Candidates, RankingExhaustedError, Spoken
from gdm_dask.correlation import correlations
from gdm_dask.exact_matching import solve_exactly
from gdm_dask.store.block import Block, stack

__all__ = ["METHODS", "NEGLIGIBLE", "Candidates", "Cut", "RankingExhaustedError", "Spoken", "exact", "greedy"]

#: Candidates are read in batches that grow up to this: within a batch all pairs are compared.
LARGEST_BATCH = 128
#: Members of a clique that are far from its head are compared one by one; no more than this many.
MAX_FAR = 8
#: Angles are taken with this much room for rounding; that of a correlation near 1 is known to a few 1e-6.
ANGLE_SLACK = 2e-5


@dataclass(frozen=True)
class Cut:
    """The index set of a cut.

    Attributes
    ----------
    features : list of int
        In the order of their rank.
    new : list of int
        Those that are not supports yet.
    new_rows : Block or None
        Their raw rows.
    value : float
        Sum of the squared scores.
    bound : float
        At least the optimum of (6), the sum of squared scores.
    n_examined : int
        Candidates whose rows were read.
    """

    features: list[int]
    new: list[int]
    new_rows: Block | None
    value: float
    bound: float
    n_examined: int


def greedy(candidates: Candidates, size: int, new_only: bool = False) -> Cut:
    """Walk down the ranking; take what conflicts with nothing taken, until there are `size`.

    With `new_only`, features that are supports already are passed over. They still count for the bound.
    """
    walk = Walk(candidates.limit, size, new_only)
    while len(walk.chosen) < size:
        batch = candidates.examine(max(8, 2 * (size - len(walk.chosen)), min(candidates.n_examined, LARGEST_BATCH)))
        if batch is None:
            break
        walk.down(batch)
    candidates.remember(walk.chosen, walk.passed)
    new = candidates.new(walk.chosen)
    return Cut(walk.chosen, new, walk.rows_of(new), walk.value, max(walk.bound, walk.value), candidates.n_examined)


@dataclass
class Clique:
    """Candidates that all conflict with each other: a cut holds one of them at most.

    Angles between features are a metric, so what lies within half the angle of conflict from the head conflicts with
    all others that do, and need not be compared with them.

    Attributes
    ----------
    kept : list of int
        Kept rows to compare with: of the head, the first and best of them, and of the members that are far from it.
    radius : float
        Largest angle between the head and a member whose row is not kept.
    """

    kept: list[int]
    radius: float = 0.0


@dataclass
class Walk:
    """The walk down the ranking: what was chosen, and a bound from a cover of all that was passed by cliques.

    A cut holds one feature of each clique at most, so the squares of the first `size` heads, which are the largest,
    bound (6). No more cliques than that are needed, and no more rows are kept than theirs and those of the chosen: the
    work is linear in the number of candidates, also where thousands of them are near copies.

    Attributes
    ----------
    chosen, passed : list of int
        Features that were taken, and those that conflict with one of these.
    value : float
        Sum of the squared scores of the chosen.
    bound : float
        Sum of the squared scores of the heads.
    """

    limit: float
    size: int
    new_only: bool
    chosen: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    value: float = 0.0
    bound: float = 0.0
    _n_heads: int = 0
    _cliques: list[Clique] = field(default_factory=list)
    _kept: Block | None = None
    _kept_features: list[int] = field(default_factory=list)
    _chosen_rows: list[int] = field(default_factory=list)

    def down(self, batch: Batch) -> None:
        """Walk past the candidates of a batch, until there are enough."""
        n_kept = len(self._kept_features)
        columns = list(range(n_kept))  # of `near`, for each kept row
        near = self._compare(batch.rows)
        fresh: list[int] = []
        for candidate in batch.candidates:
            if len(self.chosen) == self.size:
                break
            if candidate.row is None:
                self._pass_support(candidate.feature, candidate.square)
                continue
            rho = near[candidate.row][columns]
            place = len(columns)  # of this row, should it be kept
            keep = self._cover(candidate.square, rho, place)
            if (rho[self._chosen_rows] >= self.limit).any():
                self.passed.append(candidate.feature)
            else:
                self._choose(candidate.feature, candidate.square)
                self._chosen_rows.append(place)
                keep = True
            if keep:
                columns.append(n_kept + candidate.row)
                fresh.append(candidate.row)
                self._kept_features.append(candidate.feature)
        if batch.rows is not None and fresh:
            rows = batch.rows.rows(np.array(fresh))
            self._kept = rows if self._kept is None else stack([self._kept, rows])

    def _compare(self, rows: Block | None) -> np.ndarray:
        """|rho| of new rows with the kept ones and, after these, with each other."""
        if rows is None:
            return np.zeros((0, 0))
        others = rows if self._kept is None else stack([self._kept, rows])
        if not np.isfinite(self.limit):
            return np.zeros((rows.n_rows, others.n_rows))
        return np.abs(correlations(rows, others))

    def _pass_support(self, feature: int, square: float) -> None:
        """A support conflicts with nothing: it is a clique of its own."""
        if self._n_heads < self.size:
            self._add_head(square)
        if not self.new_only:
            self._choose(feature, square)

    def _add_head(self, square: float) -> None:
        self._n_heads += 1
        self.bound += square

    def _choose(self, feature: int, square: float) -> None:
        self.chosen.append(feature)
        self.value += square

    def _cover(self, square: float, rho: np.ndarray, place: int) -> bool:
        """Put a candidate into a clique, or make it the head of a new one; whether its row has to be kept."""
        if self._n_heads == self.size:
            return False
        widest = np.arccos(min(self.limit, 1.0)) - ANGLE_SLACK
        to_heads = rho[[clique.kept[0] for clique in self._cliques]]
        for number in np.flatnonzero(to_heads >= self.limit):
            clique, angle = self._cliques[number], float(np.arccos(min(to_heads[number], 1.0)))
            if not (rho[clique.kept] >= self.limit).all():
                continue
            if angle <= widest / 2:
                clique.radius = max(clique.radius, angle)
                return False
            if angle + clique.radius <= widest and len(clique.kept) <= MAX_FAR:
                clique.kept.append(place)
                return True
        self._add_head(square)
        self._cliques.append(Clique([place]))
        return True

    def rows_of(self, features: list[int]) -> Block | None:
        """Rows of chosen features."""
        if not features or self._kept is None:
            return None
        return self._kept.rows(np.array([self._kept_features.index(feature) for feature in features]))


def exact(candidates: Candidates, size: int, new_only: bool = False) -> Cut:
    """Solve (6) as an integer program.

    With `new_only`, it is solved over the features that are not supports yet; the bound is that of all.
    """
    found = solve_exactly(candidates, size, new_only)
    value = sum(found.squares[position] for position in found.chosen)
    features = [found.features[position] for position in found.chosen]
    candidates.remember(features, [found.features[position] for position in found.conflicting])
    return Cut(
        features, candidates.new(features), found.rows_of(found.chosen), value, max(found.bound, value),
        candidates.n_examined,
    )  # fmt: skip


METHODS: dict[str, Callable[[Candidates, int, bool], Cut]] = {"greedy": greedy, "exact": exact}
