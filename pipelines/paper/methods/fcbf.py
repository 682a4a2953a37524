"""FCBF, the Fast Correlation-Based Filter (Yu and Liu, 2003), with its default threshold 0 for relevance.

Features have the same three states as in mRMR. FCBF determines the number of features and may find fewer than k.
"""

from __future__ import annotations

import numpy as np

from gdm_dask.features.information import discretise, encode, symmetrical_uncertainty

from ..columns import Matrix, best_first, dense

NAME = "FCBF"
NESTED = True
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Take features by their SU with y; each removes all features whose SU with it is at least their SU with y."""
    states = encode(discretise(dense(X)))
    relevance = symmetrical_uncertainty(states, y)
    left = relevance > 0
    chosen: list[int] = []
    for feature in best_first(relevance):
        if len(chosen) == k:
            break
        if left[feature]:
            chosen.append(int(feature))
            left &= symmetrical_uncertainty(states, states.column(int(feature))) < relevance
    return np.array(chosen, np.int64)
