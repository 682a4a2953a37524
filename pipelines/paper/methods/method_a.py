"""MethodA of section 4.1: FGM on the data without the features that are known to be redundant."""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from . import fgm

NAME = "MethodA"
NESTED = False
NEEDS_TRUTH = True


def select(X: Matrix, y: np.ndarray, k: int, redundant: np.ndarray) -> np.ndarray:
    """Return features by |weight|, none of them in `redundant`."""
    left = np.setdiff1d(np.arange(X.shape[1]), redundant)
    return left[fgm.select(X[:, left], y, min(k, len(left)))]
