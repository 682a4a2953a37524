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
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from gdm_dask.correlation import correlations
from gdm_dask.errors import GdmError
from gdm_dask.ranking import Ranking
from gdm_dask.store.block import Block, stack

#: Scores below this part of ||alpha|| are rounding: such features are not candidates.
NEGLIGIBLE = 1e-12


class RankingExhaustedError(Exception):
    """The ranking ended before the cut was complete: rank more features."""


@dataclass
class Spoken:
    """Supports so far, with their rows, and the features that are known to be spoken for by one of them.

    Attributes
    ----------
    limit : float
        ``|rho|`` from which two features correlate.
    features : list of int
        The supports, in the order of their entry.
    rows : Block or None
        Their raw rows.
    affiliated : set of int
        Features that are known to correlate with a support.
    """

    limit: float
    features: list[int] = field(default_factory=list)
    rows: Block | None = None
    affiliated: set[int] = field(default_factory=set)

    def add(self, features: list[int], rows: Block) -> None:
        """Take new supports."""
        self.features += features
        self.rows = rows if self.rows is None else stack([self.rows, rows])

    def speaks_for(self, rows: Block) -> np.ndarray:
        """Which of these rows correlate with a support."""
        if self.rows is None or not np.isfinite(self.limit):
            return np.zeros(rows.n_rows, bool)
        return (np.abs(correlations(rows, self.rows)) >= self.limit).any(axis=1)


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


class Candidates:
    """The ranking's features that nobody speaks for, examined from the top, with their mutual conflicts."""

    def __init__(self, ranking: Ranking, spoken: Spoken, fetch: Callable[[np.ndarray], Block], floor: float) -> None:
        self._spoken = spoken
        self._fetch = fetch
        self._supports = set(spoken.features)
        usable = np.abs(ranking.scores) > floor
        self._ranked = [
            (int(feature), float(score))
            for feature, score in zip(ranking.features[usable], ranking.scores[usable], strict=True)
            if int(feature) not in spoken.affiliated
        ]
        self._position = 0
        self._all_ranked = ranking.n_left == 0 or not usable.all()
        self.features: list[int] = []
        self.squares: list[float] = []
        self.conflicts: list[set[int]] = []  # positions of the earlier candidates that each conflicts with
        self._rows: Block | None = None  # rows of the candidates that are not supports
        self._row_of: list[int] = []  # position of the candidate of each row
        self.n_examined = 0

    @property
    def complete(self) -> bool:
        """Whether every feature with a score that counts has been examined."""
        return self._all_ranked and self._position >= len(self._ranked)

    @property
    def floor(self) -> float:
        """No feature that was not examined has a squared score above this."""
        if self.complete:
            return 0.0
        if self._position < len(self._ranked):
            return self._ranked[self._position][1] ** 2
        return self._ranked[-1][1] ** 2 if self._ranked else np.inf

    def examine(self, count: int) -> None:
        """Read the next `count` features of the ranking and compare them with the supports and with each other."""
        if self._position >= len(self._ranked):
            if self.complete:
                return
            raise RankingExhaustedError
        batch = self._ranked[self._position : self._position + count]
        self._position += len(batch)
        fresh = [feature for feature, _ in batch if feature not in self._supports]
        rows = self._fetch(np.array(fresh, np.int64)) if fresh else None
        taken = self._spoken.speaks_for(rows) if rows is not None else np.zeros(0, bool)
        self.n_examined += len(fresh)
        self._spoken.affiliated.update(feature for feature, gone in zip(fresh, taken, strict=True) if gone)
        kept = dict(zip(np.array(fresh, np.int64)[~taken].tolist(), np.flatnonzero(~taken), strict=True))
        first_row = len(self._row_of)
        for feature, score in batch:
            if feature in self._supports or feature in kept:
                if feature in kept:
                    self._row_of.append(len(self.features))
                self.features.append(feature)
                self.squares.append(score * score)
                self.conflicts.append(set())
        if rows is not None and kept:
            self._append_rows(rows.rows(np.array(list(kept.values()))), first_row)

    def _append_rows(self, rows: Block, first_row: int) -> None:
        self._rows = rows if self._rows is None else stack([self._rows, rows])
        if not np.isfinite(self._spoken.limit):
            return
        close = np.abs(correlations(rows, self._rows)) >= self._spoken.limit
        for j, k in np.argwhere(close):
            if k < first_row + j:
                self.conflicts[self._row_of[first_row + j]].add(self._row_of[k])

    def cut(self, chosen: list[int], bound: float) -> Cut:
        """A cut of the candidates at these positions; remembers whom the new supports speak for."""
        features = [self.features[position] for position in chosen]
        new = [position for position in chosen if self.features[position] not in self._supports]
        row_at = {position: row for row, position in enumerate(self._row_of)}
        new_rows = self._rows.rows(np.array([row_at[p] for p in new])) if new and self._rows is not None else None
        members = set(chosen)
        for position, earlier in enumerate(self.conflicts):
            for other in earlier:
                if other in members:
                    self._spoken.affiliated.add(self.features[position])
                if position in members:
                    self._spoken.affiliated.add(self.features[other])
        value = sum(self.squares[position] for position in chosen)
        return Cut(features, [self.features[p] for p in new], new_rows, value, max(bound, value), self.n_examined)


def clique_bound(squares: list[float], conflicts: list[set[int]], size: int, floor: float) -> float:
    """Upper bound on (6): candidates are covered by cliques, of each of which a cut holds one at most.

    Parameters
    ----------
    squares : list of float
        Squared scores, decreasing.
    conflicts : list of set
        For each candidate the earlier ones that it conflicts with.
    size : int
        B, the most features of a cut.
    floor : float
        No feature outside the candidates has a larger squared score.

    Examples
    --------
    >>> clique_bound([4.0, 3.0, 2.0], [set(), {0}, set()], size=2, floor=0.0)
    6.0
    """
    cliques: list[set[int]] = []
    heads: list[float] = []
    for position, earlier in enumerate(conflicts):
        home = next((clique for clique in cliques if clique <= earlier), None)
        if home is None:
            cliques.append({position})
            heads.append(squares[position])
            if len(heads) == size:
                break
        else:
            home.add(position)
    return sum(heads) + (size - len(heads)) * floor


def greedy(candidates: Candidates, size: int) -> Cut:
    """Walk down the ranking; take what conflicts with nothing taken, until there are `size`."""
    chosen: list[int] = []
    position = 0
    while len(chosen) < size:
        if position == len(candidates.features):
            before = len(candidates.features)
            candidates.examine(max(2 * (size - len(chosen)), 8))
            if candidates.complete and len(candidates.features) == before:
                break
            continue
        if not candidates.conflicts[position] & set(chosen):
            chosen.append(position)
        position += 1
    bound = clique_bound(candidates.squares, candidates.conflicts, size, candidates.floor)
    return candidates.cut(chosen, bound)


def exact(candidates: Candidates, size: int) -> Cut:
    """Solve (6): a maximum-weight independent set of at most `size` candidates, by HiGHS.

    Features that were not examined enter as `size` dummies without conflicts and with the largest square that they can
    have; the solution is exact when it uses none of them, and more candidates are examined until that is so.
    """
    candidates.examine(max(4 * size, 16))
    while True:
        floor = candidates.floor
        solution, bound = _independent_set(candidates.squares, candidates.conflicts, size, floor)
        chosen = [position for position in solution if position < len(candidates.squares)]
        value = sum(candidates.squares[position] for position in chosen)
        if len(chosen) == len(solution) or value >= bound * (1 - 1e-12):
            return candidates.cut(chosen, bound)
        candidates.examine(max(len(candidates.features), 16))  # there may be none yet: all spoken for


def _independent_set(
    squares: list[float], conflicts: list[set[int]], size: int, floor: float
) -> tuple[list[int], float]:
    """Positions of the best set (those past the candidates are dummies), and a valid bound on its value."""
    n_dummies = size if floor > 0 else 0
    weights = np.array([*squares, *([floor] * n_dummies)])
    if len(weights) == 0:
        return [], 0.0
    cliques = _edge_cliques(conflicts)
    rows = np.repeat(np.arange(len(cliques) + 1), [*(len(clique) for clique in cliques), len(weights)])
    columns = np.concatenate([*(sorted(clique) for clique in cliques), np.arange(len(weights))]).astype(np.int64)
    matrix = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(cliques) + 1, len(weights)))
    most = np.append(np.ones(len(cliques)), size)
    scale = weights.max()
    result = milp(
        -weights / scale,
        constraints=LinearConstraint(matrix, -np.inf, most),
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    if result.x is None:
        raise GdmError(f"the exact matching could not be solved: {result.message}. Use matching='greedy'.")
    bound = -scale * float(result.mip_dual_bound if result.mip_dual_bound is not None else result.fun)
    return np.flatnonzero(result.x > 0.5).tolist(), bound


def _edge_cliques(conflicts: list[set[int]]) -> list[set[int]]:
    """Cliques that cover every conflict: fewer and stronger constraints than one for each pair."""
    neighbours = [set(earlier) for earlier in conflicts]
    for position, earlier in enumerate(conflicts):
        for other in earlier:
            neighbours[other].add(position)
    covered: set[tuple[int, int]] = set()
    cliques = []
    for position, earlier in enumerate(conflicts):
        for other in sorted(earlier):
            if (other, position) in covered:
                continue
            clique, shared = {other, position}, neighbours[other] & neighbours[position]
            for third in sorted(shared):
                if clique <= neighbours[third]:
                    clique.add(third)
            covered.update((a, b) for a in clique for b in clique if a < b)
            cliques.append(clique)
    return cliques


METHODS: dict[str, Callable[[Candidates, int], Cut]] = {"greedy": greedy, "exact": exact}
