"""Exact matching: (6) is a maximum-weight independent set of at most B candidates in their conflict graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from gdm_dask.candidates import Batch, Candidates
from gdm_dask.correlation import correlations
from gdm_dask.errors import GdmError
from gdm_dask.store.block import Block, stack

#: Candidates that are read first, at least.
FIRST_BATCH = 16


@dataclass
class ConflictGraph:
    """Candidates, by rank, with all conflicts between them.

    Attributes
    ----------
    features : list of int
    squares : list of float
    is_support : list of bool
        Supports of earlier cuts conflict with nothing.
    conflicts : list of set
        For each candidate the positions of the earlier ones that it conflicts with.
    chosen : list of int
        Positions of the solution.
    bound : float
        At least the optimum of (6).
    """

    limit: float
    features: list[int] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    is_support: list[bool] = field(default_factory=list)
    conflicts: list[set[int]] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    bound: float = 0.0
    _rows: Block | None = None
    _position_of_row: list[int] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Take further candidates and compare them with all others."""
        first = len(self._position_of_row)
        for candidate in batch.candidates:
            if candidate.row is not None:
                self._position_of_row.append(len(self.features))
            self.features.append(candidate.feature)
            self.squares.append(candidate.square)
            self.is_support.append(candidate.row is None)
            self.conflicts.append(set())
        if batch.rows is None:
            return
        self._rows = batch.rows if self._rows is None else stack([self._rows, batch.rows])
        if not np.isfinite(self.limit):
            return
        close = np.abs(correlations(batch.rows, self._rows)) >= self.limit
        positions = np.array(self._position_of_row)
        for row, near in enumerate(close):
            self.conflicts[positions[first + row]].update(positions[: first + row][near[: first + row]].tolist())

    @property
    def conflicting(self) -> list[int]:
        """Positions of the candidates that conflict with the solution."""
        chosen = set(self.chosen)
        later = {position for position, earlier in enumerate(self.conflicts) if earlier & chosen}
        return sorted(later.union(*(self.conflicts[position] for position in chosen)))

    def rows_of(self, positions: list[int]) -> Block | None:
        """Raw rows of some candidates; supports are passed over."""
        row_of = {position: row for row, position in enumerate(self._position_of_row)}
        rows = [row_of[position] for position in positions if position in row_of]
        return self._rows.rows(np.array(rows)) if rows and self._rows is not None else None


def solve_exactly(candidates: Candidates, size: int, new_only: bool = False) -> ConflictGraph:
    """Find the best cut among all features.

    Features that were not examined enter as `size` dummies without conflicts and with the largest square that they can
    have; the solution is exact when it uses none of them, and more candidates are examined until that is so.
    """
    graph = ConflictGraph(candidates.limit)
    wanted = max(4 * size, FIRST_BATCH)
    while True:
        batch = candidates.examine(wanted)
        if batch is not None:
            graph.add(batch)
        squares = [
            0.0 if new_only and support else square
            for square, support in zip(graph.squares, graph.is_support, strict=True)
        ]
        solution, graph.bound = independent_set(squares, graph.conflicts, size, candidates.floor)
        graph.chosen = [position for position in solution if position < len(squares)]
        value = sum(squares[position] for position in graph.chosen)
        if len(graph.chosen) == len(solution) or value >= graph.bound * (1 - 1e-12):
            break
        wanted = max(len(graph.features), FIRST_BATCH)
    if new_only:
        graph.bound = independent_set(graph.squares, graph.conflicts, size, candidates.floor)[1]
    return graph


def independent_set(
    squares: list[float], conflicts: list[set[int]], size: int, floor: float
) -> tuple[list[int], float]:
    """The best set, by HiGHS: its positions (those past the candidates are dummies), and a valid bound on its value.

    Examples
    --------
    >>> independent_set([4.0, 3.0, 2.0], [set(), {0}, {0}], size=2, floor=0.0)
    ([1, 2], 5.0)
    """
    weights = np.array([*squares, *([floor] * (size if floor > 0 else 0))])
    if not weights.any():
        return [], 0.0
    cliques = edge_cliques(conflicts)
    rows = np.repeat(np.arange(len(cliques) + 1), [*(len(clique) for clique in cliques), len(weights)])
    columns = np.concatenate([*(sorted(clique) for clique in cliques), np.arange(len(weights))]).astype(np.int64)
    matrix = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(cliques) + 1, len(weights)))
    most = np.append(np.ones(len(cliques)), size)
    scale = float(weights.max())
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
    return np.flatnonzero((result.x > 0.5) & (weights > 0)).tolist(), bound


def edge_cliques(conflicts: list[set[int]]) -> list[set[int]]:
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
