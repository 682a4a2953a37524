"""Symmetrical uncertainty: SU = 2 IG / (H + H), 0 if independent, 1 if each feature determines the other."""

from __future__ import annotations

from functools import partial

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.measures.information import FewValues, InformationSearch, compare, search
from gdm_dask.features.measures.measure import Measure


def uncertainty(shared: np.ndarray, entropies: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return SU from the shared information and both entropies; 0 if both are 0."""
    total = entropies + others
    return 2.0 * shared / np.where(total > 0.0, total, 1.0)


def distance(value: float) -> float:
    """Return the Rajski distance, 1 - IG / H(both): a metric, which SU determines.

    >>> distance(1.0), distance(0.0), round(distance(2 / 3), 12)
    (0.0, 1.0, 0.5)
    """
    value = min(value, 1.0)
    return 2.0 * (1.0 - value) / (2.0 - value)


def prepared(supports: Block, limit: float) -> InformationSearch:
    """Prepare supports; with entropies in the ratio q <= 1, SU is at most 2q / (1 + q)."""
    return search(supports, limit, limit / (2.0 - limit), uncertainty)


SU = Measure(
    "su", "symmetrical uncertainty", partial(compare, normalise=uncertainty), prepared, distance, FewValues()
)  # fmt: skip
