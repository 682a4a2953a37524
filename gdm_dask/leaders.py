"""Leaders: the rows that matching will ask for next come back with the ranking, while their blocks are at hand.

A block that does not fit into memory is gone when its scores are known. To read a row of it again is to decode whole
chunks, and a cut compares more than a hundred of them, from all over the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.ranking import Ranking
from gdm_dask.store.block import Block, stack

#: Rows that all tasks of a pass bring back, about twice as many as a cut compares, and the most bytes of them.
N_LEADERS = 256
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Wanted:
    """What a task is to bring back.

    Attributes
    ----------
    spoken : ndarray of int64
        Features that matching will not ask for, whatever their scores.
    n_rows, n_bytes : int
        The most that one task brings back.
    """

    spoken: np.ndarray
    n_rows: int
    n_bytes: int

    @classmethod
    def of_pass(cls, spoken: np.ndarray, n_tasks: int) -> Wanted:
        """Share the leaders of a pass among its tasks."""
        return cls(spoken, -(-N_LEADERS // n_tasks), MAX_BYTES // n_tasks)


class Leaders:
    """Rows of the best features that a task has seen so far."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._features = np.zeros(0, np.int64)
        self._sizes = np.zeros(0)
        self._nbytes = np.zeros(0, np.int64)
        self._rows: Block | None = None

    def see(self, block: Block, ranking: Ranking) -> None:
        """Keep the rows of a block that are among the best so far, and let go of those that no longer are."""
        asked = np.flatnonzero(~np.isin(ranking.features, self._wanted.spoken))[: self._wanted.n_rows]
        features, n_kept = ranking.features[asked], len(self._features)
        sizes = np.append(self._sizes, np.abs(ranking.scores[asked]))
        nbytes = np.append(self._nbytes, _row_bytes(block, features - block.start))
        best = np.argsort(-sizes, kind="stable")[: self._wanted.n_rows]
        best = np.sort(best[np.cumsum(nbytes[best]) <= self._wanted.n_bytes])
        if not len(best) or best[-1] < n_kept:
            return
        rows = [block.rows(features[best[best >= n_kept] - n_kept] - block.start)]
        if self._rows is not None:
            rows.insert(0, self._rows.rows(best[best < n_kept]))
        self._rows = stack(rows)
        self._features, self._sizes = np.append(self._features, features)[best], sizes[best]
        self._nbytes = nbytes[best]

    def found(self) -> tuple[np.ndarray, Block | None]:
        """The features, and their raw rows in the same order."""
        return self._features, self._rows


def _row_bytes(block: Block, local: np.ndarray) -> np.ndarray:
    """Bytes of some rows of a block."""
    itemsize = 0 if block.values is None else 8 if block.places is not None else block.values.itemsize
    if block.indptr is None:
        return np.full(len(local), block.n_samples * itemsize)
    return (block.indptr[local + 1].astype(np.int64) - block.indptr[local]) * (4 + itemsize)
