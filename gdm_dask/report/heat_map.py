"""The map: correlations among the strongest supports, with similar ones beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform


def clustered_order(rho: np.ndarray) -> np.ndarray:
    """An order in which supports that correlate stand together: average linkage on 1 - |rho|.

    Examples
    --------
    >>> clustered_order(np.array([[1, 0, -0.6], [0, 1, 0.1], [-0.6, 0.1, 1]])).tolist()
    [1, 2, 0]
    """
    if len(rho) < 3:
        return np.arange(len(rho))
    distance = np.clip(1.0 - np.abs(np.asarray(rho, np.float64)), 0.0, 1.0)
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(distance, checks=False)
    tree = optimal_leaf_ordering(linkage(condensed, "average"), condensed)
    return leaves_list(tree).astype(np.int64)


def gather_map(machine: Any) -> dict[str, Any] | None:
    """Correlations in per cent, below the diagonal, row by row in the clustered order."""
    profile = getattr(machine, "profile_", None)
    if profile is None or len(profile.correlations) < 2:
        return None
    order = clustered_order(profile.correlations)
    percent = np.rint(100 * profile.correlations[np.ix_(order, order)].astype(np.float64)).astype(int)
    return {"order": order.tolist(), "percent": percent[np.tril_indices(len(order), -1)].tolist()}
