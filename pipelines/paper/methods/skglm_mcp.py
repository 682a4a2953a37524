"""Logistic regression with the minimax concave penalty (Zhang, 2010) by skglm, along a path over its strength.

The strength falls from the largest value that selects a feature; each model starts from the one before. gamma is
skglm's default. The first model with k features serves for k. The penalty does not shrink large weights, so with few
samples the path ends with fewer features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from ..columns import Matrix, standardised
from ._path import Along, reached

NAME = "MCP"
NESTED = False
NEEDS_TRUTH = False
#: Module that the fork server imports before cells start: numba takes seconds to compile skglm.
PRELOAD = "pipelines.paper.methods._skglm_compiled"
GAMMA = 3.0
FALL = 0.85
N_STEPS = 45


def rankings(X: Matrix, y: np.ndarray, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield, for each wanted number of features, all features of the first model with as many, by |weight|."""
    return reached(_weights(standardised(X), y.astype(np.float64)), wanted)


def _weights(X: Matrix, y: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the weights of the features along the path."""
    from skglm.datafits import Logistic  # in the extra `bench`
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD

    X = sp.csc_matrix(X, dtype=np.float64) if sp.issparse(X) else np.asfortranarray(X, np.float64)
    solver = AndersonCD(max_iter=20, tol=1e-3, warm_start=True, fit_intercept=True)
    strength = float(np.abs(X.T @ (y - y.mean())).max()) / (2 * len(y))
    start, decision = np.zeros(X.shape[1] + 1), np.zeros(len(y))
    for step in range(1, N_STEPS + 1):
        penalty = MCPenalty(strength * FALL**step, GAMMA)
        start, _, _ = solver.solve(X, y, Logistic(), penalty, w_init=start, Xw_init=decision)
        decision = X @ start[:-1] + start[-1]
        yield start[:-1]


_ALONG = Along(rankings)
select, path = _ALONG.select, _ALONG.path
