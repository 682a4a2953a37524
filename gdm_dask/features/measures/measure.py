"""What a correlation measure is (section 2.1 of the paper): a few functions, which one file per measure gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.groups import Search
from gdm_dask.features.passes import Pass


@dataclass(frozen=True)
class Measure:
    """A correlation measure: two features correlate where its absolute value is at least 1 - tau.

    Attributes
    ----------
    name : str
    title : str
        Name in a sentence.
    compare : callable
        Maps two blocks, of p and q raw rows with the same samples and weights, to their values, (p, q), in [-1, 1].
    search : callable
        Prepares raw rows of supports, and the value from which features correlate, for a comparison with all features.
    distance : callable
        Maps an absolute value to a distance that satisfies the triangle inequality; the larger value is the nearer one.
    check : Pass, optional
        Pass before a fit that refuses features which the measure is not made for.
    """

    name: str
    title: str
    compare: Callable[[Block, Block], np.ndarray]
    search: Callable[[Block, float], Search]
    distance: Callable[[float], float]
    check: Pass[Any, None] | None = None
