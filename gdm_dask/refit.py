"""Refit: a linear SVM on the support features alone, the paper's protocol for judging a selection."""

from __future__ import annotations

import numpy as np

from gdm_dask.local_machine import LocalMachine
from gdm_dask.master import single_threaded_blas
from gdm_dask.master_rows import Rows
from gdm_dask.store.block import Block

#: Trade-off of the refit, for columns of unit variance, as scikit-learn's LinearSVC counts it.
REFIT_C = 1.0


def refit(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a linear SVM with squared hinge loss on raw support rows, standardised, to the exact minimum.

    It is scikit-learn's ``LinearSVC(dual=False)``, except that the intercept is not penalised. A direct solution for
    the few features is many times faster than an iterative one where they correlate.

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
    normalised = Rows(rows.n_samples)
    normalised.append(rows.to_scipy() if rows.is_sparse else rows.values, rows.means, rows.norms)
    # A feature of unit norm is sqrt(n) times smaller than one of unit variance, and (3) halves the sum of the losses.
    machine = LocalMachine(normalised, np.asarray(y, float), 2.0 * rows.n_samples * REFIT_C)
    with single_threaded_blas():
        machine.solve(np.arange(rows.n_rows))
    coef = machine.w / rows.norms
    return coef, float(machine.b - coef @ rows.means)
