"""RCFS, Redundancy Constrained Feature Selection (Zhou et al., 2010).

RCFS clusters the features by the distance 1 - |rho| (complete linkage, so all members of a cluster correlate at
1 - tau or more) and takes the best feature of each cluster by a graph-based score (Nie et al., 2008). The graph joins
the samples of a class with weight 1 / n_class. The Laplacian score is then the share of the variance that lies within
the classes; it needs no choice of neighbours and ranks like the Fisher score.

It holds the distances of all pairs in memory: m (m - 1) / 2 numbers.
"""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from gdm_dask.features.correlation import correlation_limit

from ..columns import Matrix, dense

NAME = "RCFS"
NESTED = True
NEEDS_TRUTH = False
TAU = 0.25


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the best feature of each cluster, by the Laplacian score."""
    X = dense(X)
    order = np.argsort(laplacian_scores(X, y), kind="stable")
    _, first = np.unique(clusters(X)[order], return_index=True)
    return order[np.sort(first)][:k]


def clusters(X: np.ndarray) -> np.ndarray:
    """Return the cluster number of each feature."""
    if X.shape[1] < 2:
        return np.ones(X.shape[1], np.int64)
    distances = squareform(1 - np.abs(np.corrcoef(X, rowvar=False)), checks=False)
    return fcluster(linkage(distances, "complete"), 1 - correlation_limit(TAU), "distance")


def laplacian_scores(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return each feature's Laplacian score, in [0, 1], for the graph of the classes; small is good."""
    within = sum((y == label).sum() * X[y == label].var(axis=0, dtype=np.float64) for label in (-1, 1))
    return within / (len(y) * X.var(axis=0, dtype=np.float64))
