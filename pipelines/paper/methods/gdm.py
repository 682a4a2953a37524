"""GDM, the Group Discovery Machine with its support features only; tau = 0.25 as in the paper, C its default."""

from __future__ import annotations

import numpy as np

from gdm_dask import GroupDiscoveryMachine

from ..columns import Matrix

NAME = "GDM"
NESTED = False
NEEDS_TRUTH = False
TAU = 0.25


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Supports by |weight|."""
    machine = GroupDiscoveryMachine(k, tau=TAU, groups=False, scheduler="synchronous", fit_intercept=False).fit(X, y)
    return machine.support_features_
