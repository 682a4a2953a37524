"""Master problem (5), in form P: weigh features and samples against all cuts found so far.

    P = min over W_t, b of  1/2 (sum_t ||W_t||_F)^2 + C sum_i w_i sum_k l(y_ik, f_ik + b_k),     f = sum_t W_t Z_t

over outputs k and samples i, with Z_t the normalised features of cut t. For two classes, with the squared hinge loss
and without intercept, theta = 1/(4P) is the optimum of the paper's (5), and |A| / sum |A| is its alpha, for the duals
A.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from gdm_dask.master.losses import Loss, SquaredHinge
from gdm_dask.master.newton import ActiveGram, Newton, Point, check_state, upper_bound, vectors
from gdm_dask.master.rows import Rows

__all__ = ["Master", "MasterSolution", "Rows"]

SQUARED_HINGE = SquaredHinge()
CONSTANT = 1e-28
"""Part of the squares of constant targets that rounding leaves unexplained."""


@dataclass(frozen=True)
class MasterSolution:
    """A solution of the master problem and its proof."""

    duals: np.ndarray  # A = C w R, (K, n); read-only
    mu: np.ndarray  # weights of the cuts, on the simplex, (T,); a single weight if they are merged
    weights: np.ndarray  # of the normalised unique features: the sum of W_t over the cuts, (K, d)
    intercept: np.ndarray  # (K,)
    scores: np.ndarray  # A Z' of the unique features, (K, d)
    upper: float  # bound on theta = 1/(4P), from the duals
    lower: float  # bound on theta, from `weights`, `intercept` and `mu`
    gap: float  # (upper - lower) / upper
    n_newton: int  # Newton steps; each passes over the samples


class Master:
    """The cuts found so far, and the solution of the master problem over them.

    Each solution starts from the previous one.

    Parameters
    ----------
    targets : (K, n) or (n,) array
        Targets of each output, -1 or +1 for the squared hinge loss.
    C : float
        Trade-off of the paper, for features of unit norm.
    weights : (n,) array, optional
        Nonnegative sample weights, of mean one by convention. All one by default.
    loss : Loss
    intercept : bool
        Whether each output has an intercept. Without it, two classes have the paper's form.
    tol : float
        Relative duality gap to reach.

    Attributes
    ----------
    mu : (T,) array
        Weights of the cuts; zero for cuts added since the last solution over cuts.
    cuts : list of arrays
        Features of each cut, as positions among the unique features.
    rows : Rows
        The unique features.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 1.0, 0.0]])
    >>> master = Master(np.array([-1, -1, 1, 1]), C=10.0)
    >>> master.add_cut(np.array([0]), X[:1], means=np.array([2.5]), norms=np.array([5**0.5]))
    >>> master.add_cut(np.array([0, 1]), X[1:], means=np.array([0.5]), norms=np.array([1.0]))
    >>> solution = master.solve()
    >>> (solution.duals / np.abs(solution.duals).sum()).round(3)
    array([[-0.173, -0.327,  0.327,  0.173]])
    >>> solution.gap <= 1e-6
    True
    """

    def __init__(
        self,
        targets: np.ndarray,
        C: float,
        weights: np.ndarray | None = None,
        loss: Loss = SQUARED_HINGE,
        intercept: bool = True,
        tol: float = 1e-6,
    ) -> None:
        self.targets = np.array(np.atleast_2d(targets), dtype=np.float64, order="C")
        if self.targets.ndim != 2 or not self.targets.size or not np.isfinite(self.targets).all():
            raise ValueError(f"targets must be finite, of shape (K, n) or (n,), got {np.shape(targets)}")
        loss.check(self.targets)
        if not 0 < C < np.inf:
            raise ValueError(f"C must be positive and finite, got {C}")
        self.C, self.tol = float(C), _checked_tol(tol)
        self.weights = None if weights is None else _checked_weights(weights, self.targets.shape[1])
        self.rows = Rows(self.targets.shape[1])
        self.cuts: list[np.ndarray] = []
        self.mu = np.zeros(0)
        newton = self._newton = Newton(self.rows, self.targets, self.weights, loss, intercept)
        newton.place_without_features(self.C)
        if not newton.linear > CONSTANT * self.C * _squares(self.targets, self.weights):
            raise ValueError("targets must differ between samples, by more than the loss ignores")

    @property
    def duals(self) -> np.ndarray:
        """Duals A = C w R (K, n), read-only: of the last solution, or of W = 0 before the first one.

        The duals of an output with an intercept sum to zero.
        """
        duals = self._newton.A.view()
        duals.flags.writeable = False
        return duals

    @property
    def grams(self) -> list[ActiveGram]:
        """Gram matrices of the active samples: one for each output, or one for all."""
        return self._newton.grams

    @property
    def total_weight(self) -> float:
        """Sum of the sample weights; by default the number of samples."""
        return float(self.rows.n_samples if self.weights is None else np.add.reduce(self.weights))

    def add_cut(
        self,
        features: np.ndarray,
        rows: sparse.csr_array | sparse.csr_matrix | np.ndarray,
        means: np.ndarray,
        norms: np.ndarray,
    ) -> None:
        """Add a cut, and its features that no earlier cut holds.

        Parameters
        ----------
        features : (B,) array of int
            Positions of the cut's features among the unique features; new features get the next positions, in the order
            of `rows`.
        rows : (k, n) sparse or dense array
            Raw values of the k new features, if any.
        means, norms : (k,) arrays
            Mean of each new feature, and its norm after centring, both with the sample weights.
        """
        features = np.array(features, dtype=np.int64)
        n_rows = self.rows.n_rows + rows.shape[0]
        if not features.size or features.min() < 0 or features.max() >= n_rows:
            raise ValueError(f"a cut needs features with positions from 0 to {n_rows - 1}, got {features}")
        if np.unique(features).size < features.size:
            raise ValueError(f"a cut holds each feature once, got {features}")
        self.rows.append(rows, means, norms)
        self.cuts.append(features)
        self.mu = np.append(self.mu, 0.0)

    def solve(self, tol: float | None = None) -> MasterSolution:
        """Solve the master problem over all cuts to a relative gap, starting from the previous solution."""
        members = np.zeros((self.rows.n_rows, len(self.cuts)))
        for t, features in enumerate(self.cuts):
            members[features, t] = 1.0
        mu = self.mu if self.mu.any() else np.full(len(self.cuts), 1.0 / max(1, len(self.cuts)))
        solution = self._solve(members, mu, tol)
        self.mu = solution.mu.copy()
        return solution

    def solve_union(self, tol: float | None = None) -> MasterSolution:
        """Solve the problem with one merged cut of all features, a ridge machine, from the previous solution on."""
        return self._solve(np.ones((self.rows.n_rows, 1)), np.ones(1), tol)

    def _solve(self, members: np.ndarray, mu: np.ndarray, tol: float | None) -> MasterSolution:
        if not self.cuts:
            raise ValueError("add a cut before solving")
        tol = self.tol if tol is None else _checked_tol(tol)
        newton, before = self._newton, self._newton.point
        W = np.zeros((len(before.W), self.rows.n_rows))
        W[:, : before.W.shape[1]] = before.W
        W[:, members @ mu == 0] = 0.0
        newton.A = vectors(*self.targets.shape)  # the previous solution holds the old duals
        newton.solve(members, Point(W, before.b, mu), self.C, tol)
        if not newton.gap <= tol:
            message = f"the master problem stopped at a relative gap of {newton.gap:.1e} instead of {tol:.1e}"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        return MasterSolution(
            duals=self.duals,
            mu=newton.point.mu,
            weights=newton.point.W,
            intercept=newton.point.b,
            scores=newton.c,
            upper=newton.upper,
            lower=newton.lower,
            gap=newton.gap,
            n_newton=newton.n_steps,
        )

    def bound(self, most: float) -> float:
        """Return an upper bound on theta over any cuts, from the current duals; infinite if they prove nothing.

        `most` bounds (6), the sum of squared scores of the features of a cut, under the current duals.
        """
        return upper_bound(self._newton.linear, self._newton.quadratic, most)

    def largest_square(self) -> float:
        """Return an upper bound on the squared score of any feature of norm 1, by the Cauchy-Schwarz inequality."""
        weights = 1.0 if self.weights is None else np.where(self.weights > 0, self.weights, np.inf)
        return float(np.sum(self.duals**2 / weights))

    def state(self) -> dict[str, np.ndarray]:
        """Return everything the next solution starts from, apart from the cuts."""
        newton = self._newton
        state = {"duals": self.duals, "mu": self.mu, "weights": newton.point.W, "intercept": newton.point.b}
        state["certificate"] = np.array([newton.linear, newton.quadratic])
        for number, gram in enumerate(newton.grams):
            state |= {f"{name}_{number}": array for name, array in gram.state().items()}
        return state

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue, to the same bits, from the state of a master with the same cuts."""
        newton = self._newton
        n_outputs, known = len(self.targets), min((*state["weights"].shape[-1:], self.rows.n_rows))
        shapes = {"duals": self.targets.shape, "mu": (len(self.cuts),), "weights": (n_outputs, known),
                  "intercept": (n_outputs,), "certificate": (2,)}  # fmt: skip
        for name, shape in shapes.items():
            check_state(name, state[name], shape)
        newton.A = vectors(*self.targets.shape)
        newton.A[:] = state["duals"]
        newton.linear, newton.quadratic = state["certificate"].tolist()
        newton.point = Point(state["weights"].copy(), state["intercept"].copy(), np.ones(1))
        self.mu = state["mu"].copy()
        for number, gram in enumerate(newton.grams):
            gram.restore({name: state[f"{name}_{number}"] for name in gram.state()})


def _checked_tol(tol: float) -> float:
    """Return the relative gap if it lies between 0 and 1, else refuse it."""
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, got {tol}")
    return float(tol)


def _checked_weights(weights: np.ndarray, n_samples: int) -> np.ndarray:
    """Return a checked copy of sample weights."""
    weights = np.array(weights, dtype=np.float64)
    if weights.shape != (n_samples,) or not np.isfinite(weights).all() or not (weights >= 0).all() or not weights.any():
        raise ValueError(f"weights must be {n_samples} finite numbers >= 0, not all 0")
    return weights


def _squares(targets: np.ndarray, weights: np.ndarray | None) -> float:
    """Weighted sum of the squares of the targets."""
    return float((targets**2 * (1.0 if weights is None else weights)).sum())
