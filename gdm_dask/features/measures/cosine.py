"""Cosine similarity: Pearson's coefficient without centring. Constant features correlate like any others.

Features keep their raw values; only mean and norm change. The bound of `groups` on a row's nonzeros holds a fortiori:
without centring, ||f_j|| / norm_j is 1. The one on the rest of a row does not: it needs the true means.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.correlation import angle, correlations
from gdm_dask.features.groups import prepare
from gdm_dask.features.measures.measure import ChangedSearch, Measure


def uncentred(block: Block) -> Block:
    """Return a block with mean 0 and the norm of the raw values.

    Examples
    --------
    >>> block = Block(0, 1, 2, np.array([[3.0, 4.0]]), np.array([3.5]), np.array([np.sqrt(0.5)]))
    >>> uncentred(block).norms.tolist()
    [5.0]
    """
    norms = np.hypot(block.norms, np.sqrt(block.total_weight) * np.abs(block.means))
    return replace(block, means=np.zeros(block.n_rows), norms=norms)


def compare(rows: Block, others: Block) -> np.ndarray:
    """Return the cosine of every row with every other row; 0 if one of them is zero."""
    return correlations(uncentred(rows), uncentred(others))


def search(supports: Block, limit: float) -> ChangedSearch:
    """Prepare supports for the comparison with all features, to the end of each row."""
    prepared = prepare(uncentred(supports), limit)
    return ChangedSearch(replace(prepared, checks=prepared.checks[-1:]), uncentred)


COSINE = Measure("cosine", "cosine similarity", compare, search, angle)
