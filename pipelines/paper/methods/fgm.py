"""FGM, the Feature Generating Machine (Tan et al., 2010): the machine without the correlation constraint (tau = 0).

C is the default of the machine: with features of unit norm the paper's C = 1 stops at a few features.
"""

from __future__ import annotations

import numpy as np

from gdm_dask import GroupDiscoveryMachine

from ..columns import Matrix

NAME = "FGM"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Features by |weight|."""
    machine = GroupDiscoveryMachine(k, tau=0.0, groups=False, scheduler="synchronous", fit_intercept=False).fit(X, y)
    return machine.support_features_
