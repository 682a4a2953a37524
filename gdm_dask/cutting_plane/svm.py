"""A linear machine on small subsets of features: problem (3) with an intercept, for any loss and number of outputs.

    F(S) = min over W, b of  1/2 ||W||^2 + C sum_i w_i sum_k l(y_ik, W_k . z_i + b_k)     on the features S.

This is the master problem with a single cut that holds all of S, and is solved as such.

On the chosen supports alone, the same machine is the refit: the paper's protocol for judging a selection.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC

from gdm_dask.features.block import Block
from gdm_dask.master.losses import Loss
from gdm_dask.master.newton import Newton, Point, pulls
from gdm_dask.master.problem import SQUARED_HINGE
from gdm_dask.master.rows import Rows
from gdm_dask.system.blas import single_threaded_blas

#: Gap at the level of rounding: the active samples decide when the minimum is reached.
EXACT = 1e-15

#: H and g (K, d) of ``F = sum_k (1/2 W_k' H_k W_k - g_k' W_k) + const``, with b eliminated. H is (K, d, d), or
#: (1, d, d) if all outputs share it.
Quadratic: TypeAlias = tuple[np.ndarray, np.ndarray]
#: W, b, F, and F as a function of the weights of all rows, if known.
Solution: TypeAlias = tuple[np.ndarray, np.ndarray, float, Quadratic | None]


class LocalMachine:
    """Solve (3) with an intercept on subsets of the rows; each solution starts from the previous one.

    Parameters
    ----------
    rows : Rows
    targets : ndarray of shape (n_outputs, n_samples) or (n_samples,)
    C : float
    weights : ndarray of shape (n_samples,), optional
        Weights of the samples.
    loss : Loss

    Attributes
    ----------
    W : ndarray of shape (n_outputs, d)
        Weights of all rows; zero for rows outside the subset.
    b : ndarray of shape (n_outputs,)
    value : float
        F of the subset.
    total_weight : float
        Sum of the sample weights; by default the number of samples.
    """

    def __init__(
        self,
        rows: Rows,
        targets: np.ndarray,
        C: float,
        weights: np.ndarray | None = None,
        loss: Loss = SQUARED_HINGE,
    ) -> None:
        self._rows, self._C, self._weights = rows, C, weights
        self.total_weight = float(rows.n_samples if weights is None else np.add.reduce(weights))
        self._newton = Newton(rows, np.atleast_2d(targets), weights, loss, intercept=True)
        self._grams = self._newton.grams
        self._chosen = np.zeros(0, np.int64)
        self._quadratic: Quadratic | None = None
        self._newton.place_without_features(C)
        self.value = self._without_features = self._newton.value
        self.W, self.b = self._newton.point.W, self._newton.point.b

    def solve(self, chosen: np.ndarray) -> None:
        """Run Newton's method on the subset `chosen`, given by increasing positions."""
        newton, grams, places = self._newton, self._grams, chosen
        if np.isin(chosen, self._chosen).all():  # fewer samples have changed since the last subset
            grams, places = newton.grams, np.searchsorted(self._chosen, chosen)
        newton.rows = self._rows.subset(chosen)
        newton.grams = [gram.subset(newton.rows, places) for gram in grams]
        newton.solve(np.ones((len(chosen), 1)), Point(self.W[:, chosen], self.b, np.ones(1)), self._C, EXACT)
        if len(chosen) == self._rows.n_rows:
            self._grams = newton.grams
        self.W = np.zeros_like(self.W)
        self.W[:, chosen], self.b, _ = newton.point
        self.value, self._chosen, self._quadratic = newton.value, chosen, None

    def solution(self) -> Solution:
        """Return the solution of the subset, to come back to."""
        return self.W, self.b, self.value, self._quadratic

    def restore(self, solution: Solution) -> None:
        """Come back to an earlier solution, whose `quadratic` is known."""
        self.W, self.b, self.value, self._quadratic = solution

    def subset_quadratic(self) -> Quadratic:
        """F as a function of the weights of the subset, for its active samples."""
        _, model, _ = self._newton.model()
        return _hessians(model.covariances[: len(self._grams)], self._C), model.pull

    def quadratic(self) -> Quadratic:
        """F as a function of the weights of all rows, for the active samples of the subset."""
        if self._quadratic is not None:
            return self._quadratic
        covariances = [covariance for covariance, _ in self._newton.bring_up(self._grams)[1]]
        c = self._rows.scores(self._newton.A)
        pull = pulls(c, covariances * (len(c) // len(covariances)), self.W, self._C)
        self._quadratic = _hessians(covariances, self._C), pull
        return self._quadratic

    def extend(self, others: Block) -> None:
        """Add further rows; the solution does not change."""
        known = np.arange(self._rows.n_rows)
        self._rows = self._rows.copy()
        self._grams = [gram.subset(self._rows, known) for gram in self._grams]
        self._rows.append(others.matrix(), others.means, others.norms)
        self.W = np.pad(self.W, ((0, 0), (0, others.n_rows)))
        self._quadratic = None
        self.__dict__.pop("correlations", None)  # computed for fewer rows

    @cached_property
    def correlations(self) -> np.ndarray:
        """``|rho|`` of the rows, 0 on the diagonal, from the Gram matrix of normalised rows over all samples."""
        gram, _ = self._rows.normalised(self._rows.moments(np.ones(self._rows.n_samples, np.int8), self._weights))
        np.fill_diagonal(gram, 0.0)
        absolute: np.ndarray = np.abs(gram)
        return absolute

    @property
    def explained(self) -> float:
        """G of the subset: the amount by which it lowers F."""
        return self._without_features - self.value


def _hessians(covariances: list[np.ndarray], C: float) -> np.ndarray:
    hessians: np.ndarray = C * np.array(covariances) + np.eye(len(covariances[0]))
    return hessians


#: C of the refit, for columns of unit variance, as defined by scikit-learn's LinearSVC; and the alpha of Ridge.
REFIT_C, REFIT_RIDGE = 1.0, 1.0
#: Beyond this many features, the direct solution (cost cubic in their number) is slower than an iterative one.
MAX_DIRECT = 2500
#: Columns with a smaller share of nonzeros are scaled but not centred by the iterative solution, so that they stay
#: sparse.
SPARSE_DENSITY = 0.2


def refit(rows: Block, targets: np.ndarray, loss: Loss = SQUARED_HINGE) -> tuple[np.ndarray, np.ndarray]:
    """Fit a linear machine on raw support rows, standardised: an SVM for each output, or ridge regression.

    With the squared hinge loss this is scikit-learn's ``LinearSVC(dual=False)``, except that the intercept is not
    penalised and the minimum is exact: for few features that correlate, a direct solution is many times faster than an
    iterative one. With the squared loss it is scikit-learn's ``Ridge(1.0)``. Very many features are left to
    scikit-learn.

    Parameters
    ----------
    rows : Block
        Raw rows of the k supports, none constant, with the sample weights if there are any.
    targets : ndarray of shape (n_outputs, n_samples)
        -1 or +1 for the squared hinge loss.
    loss : Loss
        The squared hinge or the squared loss.

    Returns
    -------
    coef : ndarray of shape (n_outputs, k)
        Coefficients in raw units.
    intercept : ndarray of shape (n_outputs,)
    """
    with single_threaded_blas():
        return (_direct if rows.n_rows <= MAX_DIRECT else _iterative)(rows, targets, loss)


def _direct(rows: Block, targets: np.ndarray, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """Refit by Newton's method in the features."""
    normalised = Rows(rows.n_samples)
    normalised.append(rows.matrix(), rows.means, rows.norms)
    # A feature of unit norm is sqrt(n) times smaller than one of unit variance, and (3) halves the sum of the losses.
    C = rows.total_weight * (1.0 / REFIT_RIDGE if loss.one_gram else 2.0 * REFIT_C)
    # Outputs share at most the Gram matrix of the squared loss; solved together, the slowest output would set the pace.
    coef, intercept = [], []
    for part in [targets] if loss.one_gram else targets[:, None]:
        machine = LocalMachine(normalised, part, C, rows.weights, loss)
        machine.solve(np.arange(rows.n_rows))
        coef.append(machine.W / rows.norms)
        intercept.append(machine.b - coef[-1] @ rows.means)
    return np.concatenate(coef), np.concatenate(intercept)


def _iterative(rows: Block, targets: np.ndarray, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """Refit with scikit-learn; the intercept absorbs the means of columns that are not centred."""
    deviations = rows.norms / np.sqrt(rows.total_weight)
    matrix = rows.to_scipy()
    if rows.is_sparse and matrix.nnz < SPARSE_DENSITY * rows.n_rows * rows.n_samples:
        columns = sp.csr_array(matrix.T.astype(np.float64).multiply(1.0 / deviations))
        centres = np.zeros(rows.n_rows)
    else:
        columns = np.ascontiguousarray(((matrix.toarray() - rows.means[:, None]) / deviations[:, None]).T)
        centres = rows.means
    if loss.one_gram:
        solver = Ridge(REFIT_RIDGE, solver="sparse_cg", tol=1e-8)
    else:
        solver = LinearSVC(C=REFIT_C, dual=False, max_iter=10_000, tol=1e-6)
    machines = [clone(solver).fit(columns, y, rows.weights) for y in targets]
    coef = np.array([np.ravel(machine.coef_) for machine in machines]) / deviations
    intercepts = np.array([float(np.ravel(machine.intercept_)[0]) for machine in machines])
    return coef, intercepts - coef @ centres
