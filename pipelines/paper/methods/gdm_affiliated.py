"""GDM-affiliated: k supports and all their affiliated features, so more than k features in total."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import PAPER, fitted
from .gdm import TAU

NAME = "GDM-affiliated"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|, then the affiliated features in the order of their supports."""
    machine = fitted(X, y, k, tau=TAU, groups=True, **PAPER)
    supports = machine.support_features_
    assert machine.groups_ is not None
    members = np.concatenate([supports, *(machine.groups_[int(support)] for support in supports)])
    _, first = np.unique(members, return_index=True)
    return members[np.sort(first)]
