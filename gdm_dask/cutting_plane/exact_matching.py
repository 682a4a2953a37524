"""Exact matching: (6) is a maximum-weight independent set of at most B candidates in their conflict graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from gdm_dask.cutting_plane.working_set import WorkingSet
from gdm_dask.errors import GdmError

#: Minimum number of candidates in the first comparison.
FIRST_BATCH = 16


def exact(
    seen: WorkingSet, order: np.ndarray, sizes: np.ndarray, support_sizes: np.ndarray, size: int, limit: float
) -> tuple[list[int], list[int], float]:
    """Find the best cut among the free features of a working set and the given supports.

    Candidates that have not been compared enter as `size` dummies without conflicts, with the largest size they can
    have. The solution is exact if it uses no dummy; more candidates are compared until it does not, or until all are
    compared.

    Returns
    -------
    positions, supports : list of int
        Features of the cut: positions in the working set, and among the supports.
    bound : float
        Upper bound on the optimum over all features.
    """
    n_supports = len(support_sizes)
    order = seen.without_copies(order)
    free: list[int] = []
    first, wanted = 0, max(4 * size, FIRST_BATCH)
    while True:
        free += seen.free(order[first : first + wanted]).tolist()
        first += wanted
        floor = float(sizes[order[first]]) if first < len(order) else seen.floor
        squares = np.concatenate([support_sizes, sizes[free]]) ** 2
        close = np.tril(seen.rho(np.array(free, np.int64), np.array(free, np.int64)) >= limit, -1)
        conflicts = [set[int]()] * n_supports + [set((n_supports + np.flatnonzero(row)).tolist()) for row in close]
        solution, bound = independent_set(squares.tolist(), conflicts, size, floor**2)
        chosen = [place for place in solution if place < len(squares)]
        value = float(sum(squares[place] for place in chosen))
        if len(chosen) == len(solution) or value >= bound * (1 - 1e-12):
            break
        if first >= len(order):  # the best of the working set, though features outside may be better
            chosen, value = independent_set(squares.tolist(), conflicts, size, 0.0)
            break
        wanted = max(len(free), FIRST_BATCH)
    positions = [free[place - n_supports] for place in chosen if place >= n_supports]
    return positions, [place for place in chosen if place < n_supports], bound


def independent_set(
    squares: list[float], conflicts: list[set[int]], size: int, floor: float
) -> tuple[list[int], float]:
    """Find the best set with HiGHS; return its positions (dummies follow the candidates) and a valid bound.

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
    """Cover all conflicts by cliques, which gives fewer and stronger constraints than one per pair."""
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
