"""A measure under its own sample weights, whatever the weights of the rows that it is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.groups import Pairs, Search
from gdm_dask.features.measures.measure import Measure
from gdm_dask.features.moments import reweighted


@dataclass(frozen=True)
class ReweightedSearch:
    """A search under its own sample weights; None if all are 1."""

    search: Search
    weights: np.ndarray | None

    def find(self, block: Block) -> Pairs:
        """Return the features of a block that correlate with a support."""
        return self.search.find(reweighted(block, self.weights))


def under(measure: Measure, weights: np.ndarray | None) -> Measure:
    """Return a measure under these sample weights; None if all are 1.

    Examples
    --------
    >>> from gdm_dask.features.measures.pearson import PEARSON
    >>> rows = Block(0, 2, 3, np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]), np.zeros(2), np.zeros(2))
    >>> weighted = reweighted(rows, np.array([1.0, 1.0, 5.0]))
    >>> [one.compare(weighted, weighted)[0, 1].round(2).tolist() for one in (PEARSON, under(PEARSON, None))]
    [-0.65, -0.5]
    """

    def compare(rows: Block, others: Block) -> np.ndarray:
        return measure.compare(reweighted(rows, weights), reweighted(others, weights))

    def search(rows: Block, limit: float) -> Search:
        return ReweightedSearch(measure.search(reweighted(rows, weights), limit), weights)

    return replace(measure, compare=compare, search=search)
