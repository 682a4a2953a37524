"""Correlation Redundancy Matching (Algorithm 2), corrected: the most violated cut, and a valid bound on (6).

As printed, Algorithm 2 picks B + 1 features, skips uncorrelated ones inside its score window and may not terminate. Its
intent: walk down the ranking of |c|, take each feature that correlates with none taken before, and stop at B. This is
`greedy`. It need not solve (6), because correlation is not transitive, so its own value is no upper bound; a clique
cover gives the bound. `exact_matching` solves (6) as an integer program.

Both work on a working set. A feature covered by a support never enters a cut again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gdm_dask.cutting_plane.exact_matching import exact
from gdm_dask.cutting_plane.working_set import NEGLIGIBLE, WorkingSet
from gdm_dask.features.scores import squared_norm

#: Candidates are compared in batches of twice the number still wanted, within these bounds.
SMALLEST_BATCH, LARGEST_BATCH = 8, 128
#: Number of features that `greedy` compares at a time with those taken before: most of a batch conflicts with them, or
#: is not needed any more.
AT_ONCE = 16
#: Number of best features that `diverse_order` reorders: at least DIVERSE, and this multiple of the size of a cut.
DIVERSE, DIVERSE_PER_CUT = 64, 8
#: Maximum number of clique members far from the head, which are compared one by one.
MAX_FAR = 8
#: Allowance for rounding in distances; the angle of a correlation near 1 is known to a few 1e-6.
DISTANCE_SLACK = 2e-5


@dataclass(frozen=True)
class Cut:
    """Index set of a cut."""

    positions: list[int]  # new features in the working set, best first
    supports: list[int]  # positions of the features that are already supports, best first
    sizes: np.ndarray  # |scores| of the working set
    support_sizes: np.ndarray
    value: float  # sum of the squared scores
    bound: float  # on (6) over all free features; infinite after the first cut of a working set
    is_crowded: bool  # features outside the working set might have made a better cut
    passed: list[int]  # positions in the working set that the walk visited, best first, with those of the cut


def find_cut(
    seen: WorkingSet,
    duals: np.ndarray,
    support_sizes: np.ndarray,
    size: int,
    limit: float,
    method: str = "greedy",
    new_only: bool = False,
    chance: float | None = None,
) -> Cut:
    """Find the most violated cut among the features of a working set and, unless `new_only`, the supports.

    A cut has at most `size` features; two of them conflict from |rho| = `limit` on. `support_sizes` are the |scores| of
    the supports. With a `chance`, greedy matching prefers features that correlate less with the supports, see
    `diverse_order`.
    """
    sizes = seen.sizes(duals)
    least = NEGLIGIBLE * norm_of(duals)
    order = seen.order(sizes, least)
    usable = np.zeros(0) if new_only else support_sizes
    if method == "exact":
        positions, supports, bound = exact(seen, order, sizes, usable, size, limit)
        if new_only:
            bound = exact(seen, order, sizes, support_sizes, size, limit)[2]
    else:
        walk = order if chance is None else diverse_order(seen, order, sizes, size, chance)
        positions = greedy(seen, walk, size, limit)
        bound = clique_bound(seen, order, sizes, support_sizes, size, limit) if seen.is_fresh else np.inf
        # supports conflict with nothing, so the best of both are the features that a walk down the joint ranking would
        # take
        both = np.concatenate([sizes[positions], usable])
        features = np.concatenate([seen.features[positions], seen.supports.firsts[: len(usable)]])
        best = np.lexsort((features, -both))[: min(size, np.count_nonzero(both))].tolist()
        supports = [place - len(positions) for place in best if place >= len(positions)]
        positions = [positions[place] for place in best if place < len(positions)]
    value = float(np.sum(sizes[positions] ** 2) + np.sum(support_sizes[supports] ** 2))
    is_crowded = len(positions) + len(supports) < size and seen.floor > least
    bound = max(bound, value)
    return Cut(positions, supports, sizes, support_sizes, value, bound, is_crowded, seen.passed(order))


def norm_of(duals: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Norm of the duals of all outputs; the dual of a sample of weight w is that of w equal samples together.

    >>> norm_of(np.array([[3.0, 4.0]])), norm_of(np.array([[6.0, 0.0]]), np.array([4.0, 0.0]))
    (5.0, 3.0)
    """
    if weights is not None:
        duals = np.divide(duals, np.sqrt(weights), out=np.zeros(duals.shape), where=weights > 0)
    return math.sqrt(sum(squared_norm(row) for row in duals))


def by_rank(features: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort features by size, ties by number."""
    order = np.lexsort((features, -sizes))
    return features[order], sizes[order]


def diverse_order(
    seen: WorkingSet, order: np.ndarray, sizes: np.ndarray, size: int, chance: float
) -> np.ndarray:  # fmt: skip
    """Reorder the best features: |score| times one minus their mean |correlation| with the supports beyond chance.

    With few samples, many scores are equal within their standard error, and this order selects less redundant features
    at no loss of accuracy. Bounds on (6) stay valid: they hold for every cut. `order` are positions in the working set,
    best first, `sizes` all |scores| of the set; `chance` is the mean |correlation| of independent features.
    """
    n_first = max(DIVERSE, DIVERSE_PER_CUT * size)
    first = seen.free(order[:n_first])
    worth = sizes[first] * (1.0 - np.maximum(seen.redundancy(first) - chance, 0.0))
    return np.concatenate([first[np.lexsort((seen.features[first], -worth))], order[n_first:]])


def greedy(seen: WorkingSet, order: np.ndarray, size: int, limit: float) -> list[int]:
    """Walk down the ranking, best first, and take each feature that conflicts with none taken before, up to `size`."""
    taken: list[int] = []
    first = 0
    while first < len(order) and len(taken) < size:
        stop = first + min(max(SMALLEST_BATCH, 2 * (size - len(taken)), first), LARGEST_BATCH)
        batch = seen.free(order[first:stop])
        if seen.supports.constrains:
            seen.examine(batch)
        for start in range(0, len(batch), AT_ONCE):
            _take(seen, batch[start : start + AT_ONCE], taken, size, limit)
        first = stop
    return taken


def _take(seen: WorkingSet, batch: np.ndarray, taken: list[int], size: int, limit: float) -> None:
    """Add each feature of a batch that conflicts with none taken before, up to `size` features."""
    if len(taken) == size:
        return
    rho = seen.rho(batch, np.array([*taken, *batch], np.int64))
    columns = list(range(len(taken)))
    for row, position in enumerate(batch.tolist()):
        if len(taken) < size and not (rho[row, columns] >= limit).any():
            columns.append(rho.shape[1] - len(batch) + row)
            taken.append(position)


@dataclass
class Clique:
    """Features that all conflict with each other: a cut holds at most one of them.

    Distances between features are a metric, so all features within half the conflict distance of the head conflict with
    each other and need not be compared. For correlations, the distance is the angle.
    """

    kept: list[int]  # positions to compare with: the head, which is the first and best member, and those far from it
    radius: float = 0.0  # largest distance between the head and another member
    is_full: bool = False  # no other feature may join


@dataclass
class Cover:
    """Cover of the best free features by cliques: a cut holds at most one feature of each clique."""

    limit: float  # |rho| from which two features conflict
    distance: Callable[[float], float]  # of two features with a given |rho|
    heads: list[int] = field(default_factory=list)  # position of the best feature of each clique
    _cliques: list[Clique] = field(default_factory=list)

    def add(self, seen: WorkingSet, batch: np.ndarray, size: int) -> None:
        """Cover further features, best first, until there are `size` cliques."""
        kept = [position for clique in self._cliques for position in clique.kept]
        columns = {position: column for column, position in enumerate([*kept, *batch.tolist()])}
        rho = seen.rho(batch, np.array(list(columns), np.int64))
        for row, position in enumerate(batch.tolist()):
            if len(self.heads) == size:
                return
            can_share = seen.can_share(position)
            if not can_share or not self._join(position, rho[row], columns):
                self.heads.append(position)
                self._cliques.append(Clique([position], is_full=not can_share))

    def _join(self, position: int, rho: np.ndarray, columns: dict[int, int]) -> bool:
        """Try to add a feature to a clique; return whether it became a member."""
        widest = self.distance(self.limit) - DISTANCE_SLACK
        to_heads = rho[[columns[head] for head in self.heads]]
        for number in np.flatnonzero(to_heads >= self.limit):
            clique, distance = self._cliques[number], self.distance(to_heads[number])
            if clique.is_full or not (rho[[columns[member] for member in clique.kept]] >= self.limit).all():
                continue
            if distance <= widest / 2:
                clique.radius = max(clique.radius, distance)
                return True
            if distance + clique.radius <= widest and len(clique.kept) <= MAX_FAR:
                clique.kept.append(position)
                return True
        return False


def clique_bound(
    seen: WorkingSet, order: np.ndarray, sizes: np.ndarray, support_sizes: np.ndarray, size: int, limit: float
) -> float:
    """Bound (6) over all free features and the supports by the largest squared scores that a cut can hold.

    `order` are positions in the working set, best first, `sizes` all |scores| of the set. The supports conflict with
    nothing.
    """
    cover = Cover(limit, seen.supports.measure.distance)
    first = 0
    while first < len(order) and len(cover.heads) < size:
        stop = first + min(max(SMALLEST_BATCH, 2 * (size - len(cover.heads)), first), LARGEST_BATCH)
        cover.add(seen, seen.free(order[first:stop]), size)
        first = stop
    squares = np.concatenate([sizes[cover.heads] ** 2, support_sizes**2, np.full(size, seen.floor**2)])
    return float(np.sum(np.sort(squares)[::-1][:size]))
