"""What a correlation measure is (section 2.1 of the paper): a few functions, which one file per measure gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.groups import Pairs, Search
from gdm_dask.features.passes import Pass


@dataclass(frozen=True)
class ChangedSearch:
    """A search in blocks that are changed before."""

    search: Search
    change: Callable[[Block], Block]

    def find(self, block: Block) -> Pairs:
        """Return the features of a block that correlate with a support."""
        return self.search.find(self.change(block))


@dataclass(frozen=True)
class Measure:
    """A correlation measure: two features correlate where its absolute value is at least 1 - tau."""

    name: str
    title: str  # name in a sentence
    #: Maps two blocks, of p and q raw rows with the same samples and weights, to their values, (p, q), in [-1, 1].
    compare: Callable[[Block, Block], np.ndarray]
    #: Prepares raw rows of supports, and the value from which features correlate, for a comparison with all features.
    search: Callable[[Block, float], Search]
    #: Maps an absolute value to a distance with the triangle inequality; a larger value is a smaller distance.
    distance: Callable[[float], float]
    check: Pass[Any, None] | None = None  # refuses features that it is not made for, before a fit
    #: Gives rows the sample weights that they are compared under, if any: before several comparisons, to do it once.
    weigh: Callable[[Block], Block] | None = None
