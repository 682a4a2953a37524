"""Fit this package's GroupDiscoveryMachine in one thread, by default without groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask import GroupDiscoveryMachine

from ..columns import Matrix

#: GDM as published, except for C (see `fgm`): a master problem over all cuts, without an intercept.
PAPER: dict[str, Any] = {"C": 50.0, "master": "cuts", "fit_intercept": False}


def fitted(X: Matrix, y: np.ndarray, k: int, groups: bool = False, **parameters: Any) -> GroupDiscoveryMachine:
    """Fit a machine with k supports."""
    return GroupDiscoveryMachine(k, groups=groups, scheduler="synchronous", **parameters).fit(X, y)


def supports(X: Matrix, y: np.ndarray, k: int, **parameters: Any) -> np.ndarray:
    """Return the supports of a fitted machine, by |weight|."""
    return fitted(X, y, k, **parameters).support_features_
