"""Compile skglm on import, for dense and sparse matrices, once for all cells of a run."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp

from .skglm_mcp import select

_X = np.random.default_rng(0).standard_normal((30, 4))
_Y = np.where(_X[:, 0] > 0, 1, -1)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for _matrix in (_X, sp.csr_array(_X)):
        select(_matrix, _Y, 2)
