"""A measure under its own sample weights, whatever the weights of the rows that it is given."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.groups import Search
from gdm_dask.features.measures.measure import ChangedSearch, Measure
from gdm_dask.features.moments import reweighted


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
    weigh = partial(reweighted, weights=weights)

    def compare(rows: Block, others: Block) -> np.ndarray:
        return measure.compare(weigh(rows), weigh(others))

    def search(rows: Block, limit: float) -> Search:
        return ChangedSearch(measure.search(weigh(rows), limit), weigh)

    return replace(measure, compare=compare, search=search, weigh=weigh)
