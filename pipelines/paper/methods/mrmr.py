"""mRMR (Peng et al., 2005): minimum redundancy, maximum relevance, as the difference of the two (MID).

Features have three states, split one standard deviation below and above the mean, as its authors advise.
"""

from __future__ import annotations

import numpy as np

from gdm_dask.features.information import discretise, encode, information_gain

from ..columns import Matrix, dense

NAME = "mRMR"
NESTED = True
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Take repeatedly the feature with the largest IG with y minus its mean IG with the features taken so far."""
    states = encode(discretise(dense(X)))
    relevance = information_gain(states, y)
    redundancy = np.zeros(len(relevance))
    free = np.ones(len(relevance), bool)
    chosen: list[int] = []
    while len(chosen) < min(k, len(relevance)):
        score = relevance - redundancy / max(1, len(chosen))
        best = int(np.argmax(np.where(free, score, -np.inf)))
        chosen.append(best)
        free[best] = False
        redundancy += information_gain(states, states.column(best))
    return np.array(chosen, np.int64)
