"""FGM, the Feature Generating Machine (Tan et al., 2010): GDM without the correlation constraint (tau = 0).

C is 50: with features of unit norm, the paper's C = 1 stops after a few features.
"""

from __future__ import annotations

import numpy as np

from ..columns import Matrix
from ._machine import PAPER, supports

NAME = "FGM"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the features by |weight|."""
    return supports(X, y, k, tau=0.0, **PAPER)
