"""A linear SVM with squared hinge loss on subsets of a few features: problem (3) with an intercept.

    F(S) = min over W, b of  1/2 ||W||^2 + C/2 sum_i w_i sum_k (1 - y_ik (W_k . z_i + b_k))_+^2     on the features S.

This is the master problem with one cut, which holds all of S, and it is solved as such.

The same machine, on the chosen supports alone, is the refit: the paper's protocol for judging a selection.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from gdm_dask.features.block import Block
from gdm_dask.master.losses import SquaredHinge
from gdm_dask.master.newton import Newton, Point, pulls
from gdm_dask.master.rows import Rows
from gdm_dask.system.blas import single_threaded_blas

#: Gap that only rounding leaves open: the active samples decide when the minimum is reached.
EXACT = 1e-15

#: H (K, d, d) and g (K, d) of ``F = sum_k (1/2 W_k' H_k W_k - g_k' W_k) + const``, with b eliminated.
Quadratic: TypeAlias = tuple[np.ndarray, np.ndarray]


class LocalMachine:
    """Solves (3) with an intercept on subsets of the rows; each solution starts from the one before.

    Parameters
    ----------
    rows : Rows
    targets : ndarray of shape (n_outputs, n_samples) or (n_samples,)
        -1 or +1.
    C : float
    weights : ndarray of shape (n_samples,), optional
        Weights of the samples.

    Attributes
    ----------
    W : ndarray of shape (n_outputs, d)
        Weights of all rows; zero for those that are not in the subset.
    b : ndarray of shape (n_outputs,)
    value : float
        F of the subset.
    total_weight : float
        Sum of the weights of the samples: their number by default.
    """

    def __init__(self, rows: Rows, targets: np.ndarray, C: float, weights: np.ndarray | None = None) -> None:
        self._rows, self._C, self._weights = rows, C, weights
        self.total_weight = float(rows.n_samples if weights is None else np.add.reduce(weights))
        self._newton = Newton(rows, np.atleast_2d(targets), weights, SquaredHinge(), intercept=True)
        self._grams = self._newton.grams
        self._newton.place_without_features(C)
        self.value = self._without_features = self._newton.value
        self.W, self.b = self._newton.point.W, self._newton.point.b

    def solve(self, chosen: np.ndarray) -> None:
        """Newton's method on the subset `chosen`, given by increasing positions."""
        newton = self._newton
        newton.rows = self._rows.subset(chosen)
        newton.grams = [gram.subset(newton.rows, chosen) for gram in self._grams]
        newton.solve(np.ones((len(chosen), 1)), Point(self.W[:, chosen], self.b, np.ones(1)), self._C, EXACT)
        if len(chosen) == self._rows.n_rows:
            self._grams = newton.grams
        self.W = np.zeros_like(self.W)
        self.W[:, chosen], self.b, _ = newton.point
        self.value = newton.value

    def subset_quadratic(self) -> Quadratic:
        """F as a function of the weights of the subset, for its active samples."""
        _, model, _ = self._newton.model()
        return _hessians(model.covariances, self._C), model.pull

    def quadratic(self) -> Quadratic:
        """F as a function of the weights of all rows, for the active samples of the subset."""
        duals = self._newton.A
        for gram, a in zip(self._grams, duals, strict=True):
            gram.update(a)
        covariances = [gram.covariance(centred=True)[0] for gram in self._grams]
        return _hessians(covariances, self._C), pulls(self._rows.scores(duals), covariances, self.W, self._C)

    def extend(self, others: Block) -> None:
        """Add further rows; the solution stays the same."""
        known = np.arange(self._rows.n_rows)
        self._rows = self._rows.copy()
        self._grams = [gram.subset(self._rows, known) for gram in self._grams]
        self._rows.append(others.matrix(), others.means, others.norms)
        self.W = np.pad(self.W, ((0, 0), (0, others.n_rows)))
        self.__dict__.pop("correlations", None)  # they are of fewer rows

    @cached_property
    def correlations(self) -> np.ndarray:
        """``|rho|`` of the rows, 0 on the diagonal: the Gram matrix of normalised rows over all samples has it."""
        gram, _ = self._rows.normalised(self._rows.moments(np.ones(self._rows.n_samples, np.int8), self._weights))
        np.fill_diagonal(gram, 0.0)
        absolute: np.ndarray = np.abs(gram)
        return absolute

    @property
    def explained(self) -> float:
        """G of the subset: by how much it lowers F."""
        return self._without_features - self.value


def _hessians(covariances: list[np.ndarray], C: float) -> np.ndarray:
    hessians: np.ndarray = C * np.array(covariances) + np.eye(len(covariances[0]))
    return hessians


#: Trade-off of the refit, for columns of unit variance, as scikit-learn's LinearSVC counts it.
REFIT_C = 1.0
#: Beyond so many features the direct solution, whose cost grows with their cube, takes longer than an iterative one.
MAX_DIRECT = 2500
#: Columns with fewer nonzeros than this are scaled but not centred there, so that they stay sparse.
SPARSE_DENSITY = 0.2


def refit(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a linear SVM with squared hinge loss on raw support rows, standardised.

    It is scikit-learn's ``LinearSVC(dual=False)``, except that the intercept is not penalised and the minimum is exact:
    for few features a direct solution is many times faster than an iterative one where they correlate. Very many
    features are left to scikit-learn.

    Parameters
    ----------
    rows : Block
        Raw rows of the supports, k of them, none constant, with the weights of the samples if these have any.
    y : ndarray of shape (n_samples,)
        Labels, -1 or +1.

    Returns
    -------
    coef : ndarray of shape (k,)
        In raw units.
    intercept : float
    """
    with single_threaded_blas():
        return _direct(rows, y) if rows.n_rows <= MAX_DIRECT else _iterative(rows, y)


def _direct(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """By Newton's method in the features."""
    normalised = Rows(rows.n_samples)
    normalised.append(rows.matrix(), rows.means, rows.norms)
    # A feature of unit norm is sqrt(n) times smaller than one of unit variance, and (3) halves the sum of the losses.
    machine = LocalMachine(normalised, np.asarray(y, float), 2.0 * rows.total_weight * REFIT_C, rows.weights)
    machine.solve(np.arange(rows.n_rows))
    coef = machine.W[0] / rows.norms
    return coef, float(machine.b[0] - coef @ rows.means)


def _iterative(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """By liblinear; the intercept takes the means of columns that are not centred."""
    deviations = rows.norms / np.sqrt(rows.total_weight)
    matrix = rows.to_scipy()
    if rows.is_sparse and matrix.nnz < SPARSE_DENSITY * rows.n_rows * rows.n_samples:
        columns = sp.csr_array(matrix.T.astype(np.float64).multiply(1.0 / deviations))
        centres = np.zeros(rows.n_rows)
    else:
        columns = np.ascontiguousarray(((matrix.toarray() - rows.means[:, None]) / deviations[:, None]).T)
        centres = rows.means
    machine = LinearSVC(C=REFIT_C, dual=False, max_iter=10_000, tol=1e-6).fit(columns, y, rows.weights)
    coef = machine.coef_[0] / deviations
    return coef, float(machine.intercept_[0] - coef @ centres)
