"""The paper's algorithms taken literally: short, slow and dense. The tests compare the library with them.

Features are the rows of X, (m, n). Two features correlate when ``|rho| >= 1 - tau`` (up to rounding).
"""

from __future__ import annotations

import warnings
from itertools import combinations

import cvxpy as cp
import numpy as np
from scipy.stats import rankdata

#: Tolerance: |rho| that equals 1 - tau in exact arithmetic must count as reaching it.
ROUNDING = 1e-9


def normalise(X: np.ndarray) -> np.ndarray:
    """Rows with mean 0 and norm 1; constant rows become 0."""
    X = np.asarray(X, np.float64)
    Z = np.zeros(X.shape)
    for row, z in zip(X, Z, strict=True):
        if np.ptp(row) > 0:
            centred = row - row.mean()
            centred -= centred.mean()
            z[:] = centred / np.linalg.norm(centred)
    return Z


def correlations(X: np.ndarray) -> np.ndarray:
    """Equation (1) for all pairs; 0 where a feature is constant."""
    Z = normalise(X)
    return Z @ Z.T


def measured(X: np.ndarray, measure: str) -> np.ndarray:
    """A measure of section 2.1 for all pairs; 0 where it is not defined."""
    X = np.asarray(X, np.float64)
    if measure == "spearman":
        return correlations(rankdata(X, axis=1))
    if measure == "cosine":
        norms = np.linalg.norm(X, axis=1)
        return X @ X.T / np.where(np.outer(norms, norms) > 0, np.outer(norms, norms), 1.0)
    if measure in ("su", "ig"):
        codes = np.array([np.unique(row, return_inverse=True)[1] for row in X])
        entropies = np.array([entropy(row) for row in codes])
        both = np.array([[entropy(len(row) * row + other) for other in codes] for row in codes])
        shared = np.add.outer(entropies, entropies) - both
        scale = np.add.outer(entropies, entropies) / 2 if measure == "su" else np.maximum.outer(entropies, entropies)
        return shared / np.where(scale > 0, scale, 1.0)
    return correlations(X)


def entropy(values: np.ndarray) -> float:
    """Entropy in bits of the values that occur."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def correlated(X: np.ndarray, tau: float, measure: str = "pearson") -> np.ndarray:
    """Mark the pairs that constraint (2) forbids; none with tau = 0. The diagonal does not count."""
    close = np.abs(measured(X, measure)) >= 1 - tau - ROUNDING if tau > 0 else np.zeros((len(X), len(X)), bool)
    np.fill_diagonal(close, False)
    return close


def ranking(c: np.ndarray) -> list[int]:
    """Sort features by decreasing |score|, ties by number, without scores of 0."""
    return sorted(np.flatnonzero(c).tolist(), key=lambda j: (-abs(c[j]), j))


def uncovered(close: np.ndarray, supports: list[int]) -> list[int]:
    """List the features that no support covers: the supports, and features that correlate with none of them."""
    return [j for j in range(len(close)) if j in supports or not close[j, supports].any()]


def greedy_cut(
    c: np.ndarray, close: np.ndarray, size: int, supports: list[int], barred: tuple[int, ...] = ()
) -> list[int]:
    """Algorithm 2: walk down the ranking, take what correlates with nothing taken and is not barred, stop at `size`."""
    free = set(uncovered(close, supports)) - set(barred)
    cut: list[int] = []
    for j in ranking(c):
        if len(cut) < size and j in free and not close[j, cut].any():
            cut.append(j)
    return cut


def feasible_cuts(close: np.ndarray, size: int, among: list[int]) -> list[tuple[int, ...]]:
    """Delta: all sets of at most `size` features that do not correlate with each other."""
    return [
        cut for length in range(1, size + 1) for cut in combinations(among, length) if not close[np.ix_(cut, cut)].any()
    ]


def best_value(c: np.ndarray, close: np.ndarray, size: int, among: list[int]) -> float:
    """The optimum of (6), by enumeration: the largest sum of squared scores of a cut."""
    return max((float(np.sum(c[list(cut)] ** 2)) for cut in feasible_cuts(close, size, among)), default=0.0)


def master_optimum(X: np.ndarray, y: np.ndarray, cuts: list, C: float, include: list[int] | None = None) -> float:
    """The optimum of (5) over `cuts`, by Clarabel; every cut holds the included features beside its own."""
    Z = normalise(X) * y
    beta, top = cp.Variable(len(y), nonneg=True), cp.Variable()  # alpha = beta / sqrt(n), so that beta is of order 1
    constraints = [cp.sum(beta) == np.sqrt(len(y)), *(cp.norm(Z[list(cut)] @ beta) <= top for cut in cuts)]
    squares = cp.square(top) + (cp.sum_squares(Z[include] @ beta) if include else 0.0)
    problem = cp.Problem(cp.Minimize(0.5 * squares + cp.sum_squares(beta) / (2 * C)), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an inaccurate solution: the next tolerance is within reach
        for tol in (1e-10, 1e-8):
            problem.solve(solver=cp.CLARABEL, tol_gap_rel=tol, tol_gap_abs=tol, tol_feas=tol)
            if problem.status == cp.OPTIMAL:
                return float(problem.value) / len(y)
    raise AssertionError(problem.status)


def correlated_variables(close: np.ndarray, variables: list[list[int]]) -> np.ndarray:
    """Which pairs of variables have features that correlate."""
    found = np.zeros((len(variables), len(variables)), bool)
    for i, j in combinations(range(len(variables)), 2):
        found[i, j] = found[j, i] = close[np.ix_(variables[i], variables[j])].any()
    return found


def variable_scores(c: np.ndarray, variables: list[list[int]]) -> np.ndarray:
    """The norm of the scores of each variable."""
    return np.array([np.linalg.norm(c[own]) for own in variables])


def optimum(
    X: np.ndarray,
    y: np.ndarray,
    close: np.ndarray,
    size: int,
    C: float,
    among: list[int],
    include: list[int] | None = None,
    variables: list[list[int]] | None = None,
) -> float:
    """Return the optimum of (4) over some features, by Clarabel with every maximal cut.

    With variables, `close` and `among` are about them.
    """
    cuts = [set(cut) for cut in feasible_cuts(close, size, among)]
    largest = [sorted(cut) for cut in cuts if not any(cut < other for other in cuts)]
    if variables is not None:
        largest = [[j for v in cut for j in variables[v]] for cut in largest]
    return master_optimum(X, y, largest, C, include)


def groups(X: np.ndarray, supports: list[int], tau: float, measure: str = "pearson") -> dict[int, list[int]]:
    """Every support with all features that correlate with it, itself included."""
    close = correlated(X, tau, measure)
    return {s: [j for j in range(len(X)) if j == s or close[s, j]] for s in supports}


def cliques(X: np.ndarray, supports: list[int], tau: float, measure: str = "pearson") -> dict[int, list[int]]:
    """Every support with the members of its group, nearest first, that correlate with all before them."""
    values, close = np.abs(measured(X, measure)).round(9), correlated(X, tau, measure)
    found = {}
    for s, star in groups(X, supports, tau, measure).items():
        members = [s]
        for j in sorted(set(star) - {s}, key=lambda j: (-values[s, j], j)):
            if close[j, members].all():
                members.append(j)
        found[s] = sorted(members)
    return found


def components(X: np.ndarray, supports: list[int], tau: float, measure: str = "pearson") -> dict[int, list[int]]:
    """Every support with all features that a chain of correlated features links with it."""
    close = correlated(X, tau, measure)
    found = {}
    for s in supports:
        members = {s}
        while more := {int(j) for j in np.flatnonzero(close[sorted(members)].any(axis=0))} - members:
            members |= more
        found[s] = sorted(members)
    return found


def redundancy_rate(X: np.ndarray) -> float:
    """RED of section 4: the sum of |rho| over the pairs i > j, over m (m - 1)."""
    rho, m = correlations(X), len(X)
    total = sum(abs(rho[i, j]) for i in range(m) for j in range(i))
    return total / (m * (m - 1)) if m > 1 else 0.0
