"""Refit: a linear SVM on the support features alone, the paper's protocol for judging a selection."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from gdm_dask.local_machine import LocalMachine
from gdm_dask.master import single_threaded_blas
from gdm_dask.master_rows import Rows
from gdm_dask.store.block import Block

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
        Raw rows of the supports, k of them, none constant.
    y : ndarray of shape (n_samples,)
        Labels, -1 or +1.

    Returns
    -------
    coef : ndarray of shape (k,)
        In raw units.
    intercept : float
    """
    return _direct(rows, y) if rows.n_rows <= MAX_DIRECT else _iterative(rows, y)


def _direct(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """By Newton's method in the features."""
    normalised = Rows(rows.n_samples)
    normalised.append(rows.matrix(), rows.means, rows.norms)
    # A feature of unit norm is sqrt(n) times smaller than one of unit variance, and (3) halves the sum of the losses.
    machine = LocalMachine(normalised, np.asarray(y, float), 2.0 * rows.n_samples * REFIT_C)
    with single_threaded_blas():
        machine.solve(np.arange(rows.n_rows))
    coef = machine.w / rows.norms
    return coef, float(machine.b - coef @ rows.means)


def _iterative(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """By liblinear; the intercept takes the means of columns that are not centred."""
    deviations = rows.norms / np.sqrt(rows.n_samples)
    matrix = rows.to_scipy()
    if rows.is_sparse and matrix.nnz < SPARSE_DENSITY * rows.n_rows * rows.n_samples:
        columns = sp.csr_array(matrix.T.astype(np.float64).multiply(1.0 / deviations))
        centres = np.zeros(rows.n_rows)
    else:
        columns = np.ascontiguousarray(((matrix.toarray() - rows.means[:, None]) / deviations[:, None]).T)
        centres = rows.means
    machine = LinearSVC(C=REFIT_C, dual=False, max_iter=10_000, tol=1e-6).fit(columns, y)
    coef = machine.coef_[0] / deviations
    return coef, float(machine.intercept_[0] - coef @ centres)
