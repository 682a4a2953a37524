"""The machine of this package as the methods run it: one thread, no groups unless they are wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask import GroupDiscoveryMachine

from ..columns import Matrix

#: The machine as published, but for C, see `fgm`: a master over all cuts, without an intercept.
PAPER: dict[str, Any] = {"C": 50.0, "master": "cuts", "fit_intercept": False}


def fitted(X: Matrix, y: np.ndarray, k: int, groups: bool = False, **parameters: Any) -> GroupDiscoveryMachine:
    """A machine with k supports."""
    return GroupDiscoveryMachine(k, groups=groups, scheduler="synchronous", **parameters).fit(X, y)


def supports(X: Matrix, y: np.ndarray, k: int, **parameters: Any) -> np.ndarray:
    """Its supports by |weight|."""
    return fitted(X, y, k, **parameters).support_features_
