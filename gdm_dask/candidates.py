"""Candidates for a cut: the ranking's features that no support speaks for, read from the top as far as needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gdm_dask.correlation import correlations
from gdm_dask.ranking import Ranking
from gdm_dask.store.block import Block, stack

#: Scores below this part of ||alpha|| are rounding: such features are not candidates.
NEGLIGIBLE = 1e-12


class RankingExhaustedError(Exception):
    """The ranking ended before the cut was complete: rank more features."""


@dataclass
class Spoken:
    """Supports so far, with their rows, and the features that are known to be spoken for by one of them.

    Attributes
    ----------
    limit : float
        ``|rho|`` from which two features correlate.
    features : list of int
        The supports, in the order of their entry.
    rows : Block or None
        Their raw rows.
    affiliated : set of int
        Features that are known to correlate with a support.
    """

    limit: float
    features: list[int] = field(default_factory=list)
    rows: Block | None = None
    affiliated: set[int] = field(default_factory=set)

    @property
    def constrains(self) -> bool:
        """Whether features can correlate at all; not with tau = 0."""
        return bool(np.isfinite(self.limit))

    def add(self, features: list[int], rows: Block) -> None:
        """Take new supports."""
        self.features += features
        self.rows = rows if self.rows is None else stack([self.rows, rows])

    def speaks_for(self, rows: Block) -> np.ndarray:
        """Which of these rows correlate with a support."""
        if self.rows is None or not self.constrains:
            return np.zeros(rows.n_rows, bool)
        return (np.abs(correlations(rows, self.rows)) >= self.limit).any(axis=1)


@dataclass(frozen=True)
class Candidate:
    """A feature that may be in the cut.

    Attributes
    ----------
    feature : int
    square : float
        Of its score.
    row : int or None
        Position of its row in the batch; None for a support, which correlates with no other candidate.
    """

    feature: int
    square: float
    row: int | None


@dataclass(frozen=True)
class Batch:
    """The next candidates, by rank, and the raw rows of those that are not supports."""

    candidates: list[Candidate]
    rows: Block | None


class Candidates:
    """The ranking's features that nobody speaks for, handed out from the top.

    Exact copies of a feature are left out: whatever the one conflicts with, so does the other, and a cut holds one of
    them at most, which may as well be the first.

    Parameters
    ----------
    ranking : Ranking
    spoken : Spoken
    fetch : callable
        Gives the raw rows of some features.
    floor : float
        Scores up to this do not count.
    """

    def __init__(self, ranking: Ranking, spoken: Spoken, fetch: Callable[[np.ndarray], Block], floor: float) -> None:
        self.limit = spoken.limit
        self._spoken = spoken
        self._supports = set(spoken.features)
        self._fetch = fetch
        usable = np.abs(ranking.scores) > floor
        self._ranked = [
            (feature, score)
            for feature, score in zip(ranking.features[usable].tolist(), ranking.scores[usable].tolist(), strict=True)
            if feature not in spoken.affiliated
        ]
        self._all_ranked = ranking.n_left == 0 or not usable.all()
        self._position = 0
        self._first: dict[bytes, int] = {}
        self._copies: list[tuple[int, int]] = []
        self.n_examined = 0

    @property
    def complete(self) -> bool:
        """Whether every feature with a score that counts has been examined."""
        return self._all_ranked and self._position >= len(self._ranked)

    @property
    def floor(self) -> float:
        """No feature that was not examined has a squared score above this."""
        if self.complete:
            return 0.0
        if self._position < len(self._ranked):
            return self._ranked[self._position][1] ** 2
        return self._ranked[-1][1] ** 2 if self._ranked else np.inf

    def examine(self, count: int) -> Batch | None:
        """Read the next `count` features of the ranking; those that nobody speaks for, or None where all were read."""
        if self._position >= len(self._ranked):
            if self.complete:
                return None
            raise RankingExhaustedError
        ranked = self._ranked[self._position : self._position + count]
        self._position += len(ranked)
        fresh = [feature for feature, _ in ranked if feature not in self._supports]
        self.n_examined += len(fresh)
        rows = self._fetch(np.array(fresh, np.int64)) if fresh else None
        free = self._free(fresh, rows) if rows is not None else []
        row_of = {fresh[row]: place for place, row in enumerate(free)}
        batch = [
            Candidate(feature, score * score, row_of.get(feature))
            for feature, score in ranked
            if feature in self._supports or feature in row_of
        ]
        return Batch(batch, rows.rows(np.array(free, np.int64)) if rows is not None and free else None)

    def _free(self, features: list[int], rows: Block) -> list[int]:
        """Rows of the features that nobody speaks for and that are no copies."""
        free = []
        for row, taken in enumerate(self._spoken.speaks_for(rows)):
            if taken:
                self._spoken.affiliated.add(features[row])
            elif self._spoken.constrains and (content := _digest(rows, row)) in self._first:
                self._copies.append((features[row], self._first[content]))
            else:
                if self._spoken.constrains:
                    self._first[content] = features[row]
                free.append(row)
        return free

    def new(self, features: list[int]) -> list[int]:
        """Those that are not supports yet."""
        return [feature for feature in features if feature not in self._supports]

    def remember(self, chosen: list[int], conflicting: list[int]) -> None:
        """Note for the cuts to come whom the new supports speak for: what conflicts with them, and all copies."""
        gone = set(conflicting)
        self._spoken.affiliated |= gone
        gone.update(chosen)
        self._spoken.affiliated.update(copy for copy, first in self._copies if first in gone)


def _digest(rows: Block, row: int) -> bytes:
    """Identifies the content of a row."""
    content = hashlib.blake2b(digest_size=16)
    values, span = rows.values, slice(row, row + 1)
    if rows.indptr is not None and rows.indices is not None:
        span = slice(rows.indptr[row], rows.indptr[row + 1])
        content.update(rows.indices[span].tobytes())
    if values is not None:
        content.update(values[span].tobytes())
    return content.digest()
