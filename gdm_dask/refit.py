"""Refit: a linear SVM on the support features alone, the paper's protocol for judging a selection."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from gdm_dask.store.block import Block

#: Trade-off of the refit, for columns of unit variance.
REFIT_C = 1.0
#: Columns with fewer nonzeros than this are scaled but not centred, so that they stay sparse.
SPARSE_DENSITY = 0.2


def refit(rows: Block, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a linear SVM on raw support rows.

    Columns are standardised for the fit (sparse ones only scaled: the intercept takes their means) and the result is
    brought back to raw units.

    Parameters
    ----------
    rows : Block
        Raw rows of the supports, k of them, none constant.
    y : ndarray of shape (n_samples,)
        Labels, -1 or +1.

    Returns
    -------
    coef : ndarray of shape (k,)
    intercept : float
    """
    deviations = rows.norms / np.sqrt(rows.n_samples)
    if rows.is_sparse and rows.to_scipy().nnz < SPARSE_DENSITY * rows.n_rows * rows.n_samples:
        columns = sp.csr_array(rows.to_scipy().T.astype(np.float64).multiply(1.0 / deviations))
        centres = np.zeros(rows.n_rows)
    else:
        dense = rows.to_scipy().toarray() if rows.is_sparse else rows.values
        assert dense is not None
        columns = np.ascontiguousarray(((dense - rows.means[:, None]) / deviations[:, None]).T)
        centres = rows.means
    machine = LinearSVC(C=REFIT_C, dual=False, max_iter=10_000, tol=1e-6)
    machine.fit(columns, y)
    coef = machine.coef_[0] / deviations
    return coef, float(machine.intercept_[0] - coef @ centres)
