"""Information gain as a part of the larger entropy: IG / max(H, H), 1 if each feature determines the other."""

from __future__ import annotations

from functools import partial

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.measures.information import FewValues, InformationSearch, compare, search
from gdm_dask.features.measures.measure import Measure


def gain(shared: np.ndarray, entropies: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return IG over the larger entropy; 0 if both are 0."""
    larger = np.maximum(entropies, others)
    return shared / np.where(larger > 0.0, larger, 1.0)


def distance(value: float) -> float:
    """Return 1 - IG / max(H, H), which is a metric."""
    return 1.0 - min(value, 1.0)


def prepared(supports: Block, limit: float) -> InformationSearch:
    """Prepare supports; the gain is at most the ratio of both entropies."""
    return search(supports, limit, limit, gain)


IG = Measure(
    "ig", "information gain over the larger entropy", partial(compare, normalise=gain), prepared, distance, FewValues()
)
