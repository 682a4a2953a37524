"""The master problem (5): weigh the samples against all cuts found so far.

    min over alpha in the simplex of  max_t  1/2 ||c_{S_t}(alpha)||^2 + 1/(2C) ||alpha||^2

with the scores c(alpha) = Z (alpha * y) of the normalised features, and S_t the features of cut t.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from gdm_dask.master_newton import Newton
from gdm_dask.master_rows import Rows

__all__ = ["Master", "MasterSolution", "Rows"]


@dataclass(frozen=True)
class MasterSolution:
    """A solution of the master problem and its proof.

    Attributes
    ----------
    alpha : (n,) array
        Weights of the samples, on the simplex; read-only.
    mu : (T,) array
        Weights of the cuts, on the simplex.
    weights : (d,) array
        Weights w of the normalised unique features, the sum over the cuts of w_t.
    scores : (d,) array
        c_j(alpha) of the unique features.
    upper : float
        max_t g_t(alpha), the value of (5) at this alpha.
    lower : float
        Lower bound on the optimum of (5) by weak duality, from `weights` and `mu`.
    gap : float
        (upper - lower) / upper.
    n_outer : int
        Quadratic programmes in the weights of the cuts; none of them touches the samples.
    n_newton : int
        Newton steps, each of which passes over the samples.
    """

    alpha: np.ndarray
    mu: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    upper: float
    lower: float
    gap: float
    n_outer: int
    n_newton: int


class Master:
    """The cuts found so far, and the solution of the master problem over them.

    Each solution starts from `alpha` and `mu`, which hold the one before. A run that stopped goes on to the
    same bits if the cuts are added again and both are set to what they were.

    Parameters
    ----------
    y : (n,) array
        Labels, -1 or +1.
    C : float
        Trade-off of the paper, for features of norm one.
    tol : float
        Relative duality gap to reach.

    Attributes
    ----------
    alpha : (n,) array
        Weights of the samples, uniform at first.
    mu : (T,) array
        Weights of the cuts; zero for those added since the last solution.
    cuts : list of arrays
        Positions of each cut's features among the unique features.
    rows : Rows
        The unique features.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 1.0, 0.0]])
    >>> master = Master(y=np.array([-1, -1, 1, 1]), C=10.0)
    >>> master.add_cut(np.array([0]), X[:1], means=np.array([2.5]), norms=np.array([5**0.5]))
    >>> master.add_cut(np.array([0, 1]), X[1:], means=np.array([0.5]), norms=np.array([1.0]))
    >>> solution = master.solve()
    >>> solution.alpha.round(3)
    array([0.173, 0.327, 0.327, 0.173])
    >>> solution.gap <= 1e-6
    True
    """

    def __init__(self, y: np.ndarray, C: float, tol: float = 1e-6) -> None:
        self.y = np.array(y, dtype=np.float64)
        if self.y.ndim != 1 or not self.y.size or not (np.abs(self.y) == 1).all():
            raise ValueError("y must be a vector of labels -1 and +1")
        if not 0 < C < np.inf:
            raise ValueError(f"C must be positive and finite, got {C}")
        self.C, self.tol = float(C), _checked_tol(tol)
        self.rows = Rows(self.y.size)
        self.cuts: list[np.ndarray] = []
        self._newton = Newton(self.rows, self.y)
        self._alpha = np.full(self.y.size, 1.0 / self.y.size)
        self._mu = np.zeros(0)
        self._scores: np.ndarray | None = None

    @property
    def alpha(self) -> np.ndarray:
        """Weights of the samples from which the next solution starts."""
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: np.ndarray) -> None:
        self._alpha = _checked_weights("alpha", alpha, self.y.size)
        self._scores = None

    @property
    def mu(self) -> np.ndarray:
        """Weights of the cuts from which the next solution starts."""
        return self._mu

    @mu.setter
    def mu(self, mu: np.ndarray) -> None:
        unsolved = np.shape(mu) == (len(self.cuts),) and not np.any(mu)
        self._mu = np.zeros(len(self.cuts)) if unsolved else _checked_weights("mu", mu, len(self.cuts))

    def add_cut(
        self,
        features: np.ndarray,
        rows: sparse.csr_array | sparse.csr_matrix | np.ndarray,
        means: np.ndarray,
        norms: np.ndarray,
    ) -> None:
        """Add a cut, and those of its features that no earlier cut holds.

        Parameters
        ----------
        features : (B,) array of int
            Positions of the cut's features among the unique features; new ones have the next positions, in
            the order of `rows`.
        rows : (k, n) sparse or dense array
            Raw values of the new features, k of them, or none.
        means, norms : (k,) arrays
            Mean of each new feature, and its norm after centring.
        """
        features = np.array(features, dtype=np.int64)
        n_rows = self.rows.n_rows + rows.shape[0]
        if not features.size or features.min() < 0 or features.max() >= n_rows:
            raise ValueError(f"a cut needs features with positions from 0 to {n_rows - 1}, got {features}")
        if np.unique(features).size < features.size:
            raise ValueError(f"a cut holds each feature once, got {features}")
        self.rows.append(rows, means, norms)
        self.cuts.append(features)
        self._mu = np.append(self._mu, 0.0)

    def solve(self, tol: float | None = None) -> MasterSolution:
        """Solve the master problem over all cuts, from the solution before.

        Parameters
        ----------
        tol : float, optional
            Relative duality gap to reach this time.

        Returns
        -------
        MasterSolution
        """
        if not self.cuts:
            raise ValueError("add a cut before solving")
        tol = self.tol if tol is None else _checked_tol(tol)
        with single_threaded_blas():
            self._iterate(tol)
        newton = self._newton
        if not newton.gap <= tol:
            message = f"the master problem stopped at a relative gap of {newton.gap:.1e} instead of {tol:.1e}"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self._alpha, self._mu = newton.alpha, newton.mu.copy()
        self._alpha.flags.writeable = False  # the solution holds it too
        self._scores = newton.c.copy()
        return MasterSolution(
            alpha=self._alpha,
            mu=newton.mu,
            weights=newton.w,
            scores=newton.c,
            upper=newton.upper,
            lower=newton.lower,
            gap=newton.gap,
            n_outer=newton.n_rounds,
            n_newton=newton.n_steps,
        )

    def _iterate(self, tol: float) -> None:
        """Start from the weights that belong to alpha and mu, which are zero before the first solution."""
        members = np.zeros((self.rows.n_rows, len(self.cuts)))
        for t, features in enumerate(self.cuts):
            members[features, t] = 1.0
        w = (members @ self._mu) * self._scores_at_start()
        mu = self._mu if self._mu.any() else np.full(len(self.cuts), 1.0 / len(self.cuts))
        self._newton.solve(members, w, mu, self.C, tol)

    def _scores_at_start(self) -> np.ndarray:
        """Scores at alpha, zero for features that no cut with a weight holds, if that spares a pass.

        The scores of sparse features do not depend on which others there are, to the last bit.
        """
        if self._scores is None or not self.rows.is_sparse:
            return self._newton.scores(self._alpha)
        return np.pad(self._scores, (0, self.rows.n_rows - self._scores.size))


def _checked_tol(tol: float) -> float:
    """Return a relative gap that can be reached for."""
    if not 0 < tol < 1:
        raise ValueError(f"tol must lie between 0 and 1, got {tol}")
    return float(tol)


def _checked_weights(name: str, weights: np.ndarray, size: int) -> np.ndarray:
    """Return a copy of weights on the simplex."""
    weights = np.array(weights, dtype=np.float64)
    if weights.shape != (size,) or not (weights >= 0).all() or not np.isclose(weights.sum(), 1.0):
        raise ValueError(f"{name} must hold {size} nonnegative weights that sum to one")
    return weights


def single_threaded_blas() -> Any:
    """Context without threads of BLAS: they would make sums, and so solutions, depend on the number of cores."""
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries once: the search takes milliseconds."""
    return ThreadpoolController()
