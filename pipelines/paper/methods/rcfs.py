"""RCFS, Redundancy Constrained Feature Selection (Zhou et al., 2010).

Features are clustered by the distance 1 - |rho| (complete linkage, so that all members of a cluster correlate at
1 - tau or more), and one feature of each cluster is taken by a graph-based score (Nie et al., 2008). The graph joins
the samples of a class with the weight 1 / n_class; with it the Laplacian score is the variance within the classes as a
part of the whole variance, needs no choice of neighbours, and ranks as the Fisher score does.

The distances of all pairs are held: m (m - 1) / 2 numbers.
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
    """The best feature of each cluster, by the Laplacian score."""
    X = dense(X)
    order = np.argsort(laplacian_scores(X, y), kind="stable")
    _, first = np.unique(clusters(X)[order], return_index=True)
    return order[np.sort(first)][:k]


def clusters(X: np.ndarray) -> np.ndarray:
    """Number of the cluster of each feature."""
    if X.shape[1] < 2:
        return np.ones(X.shape[1], np.int64)
    distances = squareform(1 - np.abs(np.corrcoef(X, rowvar=False)), checks=False)
    return fcluster(linkage(distances, "complete"), 1 - correlation_limit(TAU), "distance")


def laplacian_scores(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Laplacian score of each feature in [0, 1] for the graph of the classes; small is good."""
    within = sum((y == label).sum() * X[y == label].var(axis=0, dtype=np.float64) for label in (-1, 1))
    return within / (len(y) * X.var(axis=0, dtype=np.float64))
