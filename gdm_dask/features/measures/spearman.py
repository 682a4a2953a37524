"""Spearman's rank correlation: Pearson's coefficient of the ranks (see `ranks`).

Ranks are computed when they are needed, from whole feature rows: the store keeps values, on which the model is fitted.
The bound of `groups` on a row's nonzeros needs no ranks, so most rows of rare features are never sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.correlation import angle, correlations
from gdm_dask.features.groups import Pairs, Supports, merge_pairs, prepare
from gdm_dask.features.measures.measure import Measure
from gdm_dask.features.ranks import ranks

#: Ranks computed at a time: the rest of a block needs no memory for them.
VALUES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class RankSearch:
    """Ranks of supports."""

    supports: Supports

    def find(self, block: Block) -> Pairs:
        """Return the features of a block that correlate with a support."""
        return merge_pairs([self._find(rows) for rows in block.pieces(VALUES_AT_ONCE, block.n_rows)])

    def _find(self, block: Block) -> Pairs:
        near = np.flatnonzero((self.supports.near(block) > 0) & (block.norms > 0.0))
        found = self.supports.find(ranks(block.rows(near)))
        skipped = block.n_rows - found.n_scanned
        return replace(found, feature=near[found.feature] + block.start, n_skipped=skipped)


def compare(rows: Block, others: Block) -> np.ndarray:
    """Return the rank correlation of every row with every other row; 0 if one of them is constant."""
    ranked = ranks(rows)
    return correlations(ranked, ranked if others is rows else ranks(others))


def search(supports: Block, limit: float) -> RankSearch:
    """Prepare supports for the comparison with all features."""
    return RankSearch(prepare(ranks(supports), limit))


SPEARMAN = Measure("spearman", "Spearman's rank correlation", compare, search, angle)
