"""The pool: features that were compared for a cut and did not become supports, kept for the choice at the end.

Most of them correlate with a support that entered before them. In the end one of them may serve better than it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gdm_dask.store.block import Block, stack

#: The rows of the pool take no more memory than this.
MAX_BYTES = 256 << 20


@dataclass
class Pool:
    """Features with their raw rows, the first few of each cut.

    Attributes
    ----------
    per_cut : int
        Features that a cut may leave; 0 keeps none.
    features : list of int
    """

    per_cut: int = 0
    features: list[int] = field(default_factory=list)
    _rows: list[Block] = field(default_factory=list)
    _nbytes: int = 0

    def recording(self, fetch: Callable[[np.ndarray], Block]) -> Callable[[np.ndarray], Block]:
        """`fetch`, for one cut: what it reads first is kept."""
        left = self.per_cut

        def fetch_and_keep(features: np.ndarray) -> Block:
            nonlocal left
            rows = fetch(features)
            known = set(self.features)
            fresh = [row for row, feature in enumerate(features.tolist()) if feature not in known][:left]
            left -= len(fresh)
            self._keep(features[fresh].tolist(), rows.rows(np.array(fresh, np.int64)))
            return rows

        return fetch_and_keep

    def restore(self, features: list[int], fetch: Callable[[np.ndarray], Block]) -> None:
        """Take features that were kept before; their rows are read again."""
        if features:
            self._keep(features, fetch(np.array(features)))

    def _keep(self, features: list[int], rows: Block) -> None:
        nbytes = _size(rows)
        if features and self._nbytes + nbytes <= MAX_BYTES:
            self.features += features
            self._rows.append(rows)
            self._nbytes += nbytes

    def without(self, supports: list[int]) -> tuple[list[int], Block | None]:
        """Features of the pool that are not supports, and their rows."""
        known = set(supports)
        others = [position for position, feature in enumerate(self.features) if feature not in known]
        if not others:
            return [], None
        return [self.features[position] for position in others], stack(self._rows).rows(np.array(others))


def _size(rows: Block) -> int:
    """Bytes of rows, the same for rows that came together or one by one: a restored pool is as full as it was."""
    return rows.nbytes - (0 if rows.indptr is None else rows.indptr.itemsize)
