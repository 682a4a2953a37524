"""Ablation: the defaults, but every cut reads the data; no working set serves a second cut."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

from ..columns import Matrix
from ._machine import supports

NAME = "GDM, one cut a read"
NESTED = False
NEEDS_TRUTH = False


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Return the supports by |weight|."""
    with patch("gdm_dask.settings.settings.CUTS_PER_READ", 1):
        return supports(X, y, k)
