"""Ranking: the features with the largest |score|, ties broken by the smaller number, and the rows of the best of them.

The cutting plane next needs the rows of the best features. A block that does not fit into memory is gone once its
scores are known, and reading a row again means decoding whole chunks. So the ranking returns these rows too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gdm_dask.features.block import AlignedArrays, Block, gather
from gdm_dask.features.effective import effective_samples
from gdm_dask.features.moments import with_samples, with_weights
from gdm_dask.features.scores import interleaved, scores
from gdm_dask.system.jit import kernel
from gdm_dask.system.scratch import work_space

if TYPE_CHECKING:
    from gdm_dask.features.groups import Search
    from gdm_dask.features.variables import Variables

#: Features in a working set, and values in their rows: a set of long rows has fewer features.
WORKING_FEATURES = 2048
WORKING_VALUES = 50_000_000
#: Scores computed at a time if there are several vectors.
SCORES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Ranking:
    """Features in order of decreasing |score|."""

    features: np.ndarray
    scores: np.ndarray  # with several outputs, the norm over the outputs
    n_left: int  # lower-ranked features that were left out
    lengths: np.ndarray  # values in each row: nonzeros in a sparse row

    @classmethod
    def empty(cls) -> Ranking:
        """Return a ranking of no features."""
        return cls(np.zeros(0, np.int64), np.zeros(0), 0, np.zeros(0, np.int64))

    @property
    def floor(self) -> float:
        """Upper bound on the |score| of every feature that was left out."""
        return float(abs(self.scores[-1])) if self.n_left else 0.0


def top(
    features: np.ndarray, scores: np.ndarray, k: int, n_left: int = 0, lengths: np.ndarray | None = None
) -> Ranking:
    """Return the `k` best of these features; features with a NaN score are ignored.

    Examples
    --------
    >>> ranking = top(np.arange(4), np.array([0.1, -0.5, 0.5, np.nan]), 2)
    >>> ranking.features.tolist(), ranking.scores.tolist(), ranking.n_left
    ([1, 2], [-0.5, 0.5], 1)
    """
    size = np.abs(scores)
    there = np.flatnonzero(size >= 0)
    if len(there) > k:
        # The k-th largest; features that tie with it go on to the sort, which breaks ties by number.
        threshold = np.partition(size[there], len(there) - k)[len(there) - k]
        kept = there[size[there] >= threshold]
    else:
        kept = there
    kept = kept[np.lexsort((features[kept], -size[kept]))[:k]]
    lengths = np.zeros(len(features), np.int64) if lengths is None else lengths
    return Ranking(features[kept].astype(np.int64), scores[kept], n_left + len(there) - len(kept), lengths[kept])


def top_of_block(block: Block, scores: np.ndarray, k: int, floor: float = 0.0) -> Ranking:
    """Return the `top` features of a block, among those with |score| at least `floor`."""
    positions = work_space("positions", len(scores), np.int64)
    n_reaching, n_there = reach_floor(scores, floor, positions)
    positions = positions[:n_reaching]
    return top(positions + block.start, scores[positions], k, n_there - n_reaching, lengths_of(block, positions))


@kernel
def reach_floor(scores, floor, positions):  # type: ignore[no-untyped-def]
    """Write the positions of all |scores| of at least `floor`; return their number, and the number that are not NaN."""
    n_reaching = n_there = 0
    for position in range(len(scores)):
        size = abs(scores[position])
        n_there += size >= 0.0
        if size >= floor:
            positions[n_reaching] = position
            n_reaching += 1
    return n_reaching, n_there


def merge(rankings: Sequence[Ranking], k: int) -> Ranking:
    """Return the `k` best of several rankings of different features.

    Examples
    --------
    >>> parts = [top(np.array([0, 1]), np.array([1.0, 2.0]), 2), top(np.array([2]), np.array([-2.0]), 2)]
    >>> merge(parts, 2).features.tolist()
    [1, 2]
    """
    features, values, lengths = (
        np.concatenate([getattr(ranking, name) for ranking in rankings]) for name in ("features", "scores", "lengths")
    )
    return top(features, values, k, sum(ranking.n_left for ranking in rankings), lengths)


def lengths_of(block: Block, local: np.ndarray) -> np.ndarray:
    """Return the number of values in some rows of a block."""
    if block.indptr is None:
        return np.full(len(local), block.n_samples)
    lengths: np.ndarray = block.indptr[local + 1].astype(np.int64) - block.indptr[local]
    return lengths


@dataclass(frozen=True)
class Fold(AlignedArrays):
    """The samples of a problem that uses a subset of them, or weights them."""

    samples: np.ndarray | None = None  # numbers, increasing; None for all samples
    weights: np.ndarray | None = None  # of each of these samples; None if all are 1

    def is_same(self, other: Fold) -> bool:
        """Whether another fold has the same array of samples and equal weights."""
        mine, theirs = self.weights, other.weights
        if self.samples is not other.samples:
            return False
        return mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs))

    def of(self, block: Block) -> Block:
        """Return a block restricted to these samples and weights."""
        seen = block if self.samples is None else with_samples(block, self.samples)
        return seen if self.weights is None else with_weights(seen, self.weights)


#: All samples, each with weight 1.
ALL_SAMPLES = Fold()


@dataclass(frozen=True)
class Question(AlignedArrays):
    """Query of a problem to a pass: the free features with the largest scores, and their rows."""

    duals: np.ndarray  # of each output, (K, n_samples)
    k: int  # best features to find
    #: Features to exclude: supports, and features known to correlate with one; increasing.
    known: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    n_values: int = 0  # most values in the returned rows
    n_least: int = 0  # rows to return in any case
    share: float = 1.0  # of the features whose rows a part of the pass returns; the other rows are read again
    supports: Search | None = None  # exclude all features that correlate with one of these
    fold: int = 0  # position of the samples of the problem among the folds of the pass
    least_effective: float = 0.0  # exclude all features with fewer effective samples
    #: Rank features on their own only, and return the scores of all others: their variables are ranked by the driver.
    variables: Variables | None = None

    def n_wanted(self, ranking: Ranking, share: float = 1.0) -> int:
        """Return the number of best rows of a ranking to return."""
        fitting = int(np.searchsorted(np.cumsum(ranking.lengths), share * self.n_values, side="right"))
        return min(max(fitting, math.ceil(share * self.n_least)), math.ceil(share * self.k), len(ranking.features))

    def led(self, ranking: Ranking) -> np.ndarray:
        """Return the features of a part's ranking whose rows the part returns."""
        return ranking.features[: self.n_wanted(ranking, self.share)]


@dataclass
class Ranked:
    """The best features for every question, and the rows of the best of these."""

    rankings: list[Ranking]
    #: Features whose rows are present, increasing.
    features: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    pieces: list[Block] = field(default_factory=list)  # blocks with these rows, and with others
    #: Piece of each row, and its position there, (features, 2).
    places: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    #: For each question with variables, by its position: the scores of all features that belong to one.
    together: dict[int, list[Ranking]] = field(default_factory=dict)

    def rows(self, features: np.ndarray) -> Block:
        """Return the raw rows of some present features, in this order."""
        return gather(self.pieces, *self.places[np.searchsorted(self.features, features)].T)

    def has(self, features: np.ndarray) -> np.ndarray:
        """Return whether the row of each of these features is present."""
        return np.isin(features, self.features)

    def keep(self, asked: np.ndarray) -> None:
        """Keep only these features; drop the other rows once they outnumber the rows that are kept."""
        kept = np.isin(self.features, asked)
        self.features, self.places = self.features[kept], self.places[kept]
        if sum(piece.n_rows for piece in self.pieces) > 2 * len(self.features):
            self.pieces = [self.rows(self.features)] if len(self.features) else []
            self.places = np.stack([np.zeros(len(self.features), np.int64), np.arange(len(self.features))], axis=1)

    def add(self, features: np.ndarray, rows: Block) -> None:
        """Add the rows of further features."""
        places = np.stack([np.full(len(features), len(self.pieces)), np.arange(len(features))], axis=1)
        order = np.argsort(np.concatenate([self.features, features]))
        self.features = np.concatenate([self.features, features])[order]
        self.places = np.concatenate([self.places, places])[order]
        self.pieces.append(rows)


@dataclass(frozen=True)
class ScorePass:
    """Rank all features by |score|, for several problems at once."""

    questions: Sequence[Question]
    folds: Sequence[Fold] = (ALL_SAMPLES,)  # samples and weights of the problems
    name = "scores"

    def begin(self) -> Ranked:
        """Return empty rankings."""
        return Ranked([Ranking.empty() for _ in self.questions])

    def see(self, part: Ranked, block: Block) -> None:
        """Rank the features of a block with the best so far; features below the k-th best are skipped."""
        for number, fold in enumerate(self.folds):
            asked = [place for place, question in enumerate(self.questions) if question.fold == number]
            if asked:
                self._rank(part, asked, fold.of(block), *self._vectors[number])
        self._keep_rows(part, block)

    @cached_property
    def _vectors(self) -> dict[int, tuple[np.ndarray, list[np.ndarray]]]:
        """The duals of each fold's questions, stacked, and interleaved."""
        found = {}
        for number in {question.fold for question in self.questions}:
            duals = [question.duals for question in self.questions if question.fold == number]
            vectors = duals[0] if len(duals) == 1 else np.concatenate(duals)
            found[number] = vectors, interleaved(vectors)
        return found

    def _rank(
        self,
        part: Ranked,
        asked: Sequence[int],
        block: Block,
        vectors: np.ndarray,
        columns: Sequence[np.ndarray],
    ) -> None:
        """Rank the features of a block for some questions, given by their positions."""
        for rows in block.parts(block.n_rows if len(vectors) == 1 else max(1, SCORES_AT_ONCE // len(vectors))):
            shape = len(vectors), rows.n_rows
            room = work_space("scores", shape[0] * shape[1], np.float64).reshape(shape)
            found, done = scores(rows, vectors, room, columns), 0
            for place in asked:
                question, so_far = self.questions[place], part.rankings[place]
                sizes = self._sizes(question, rows, found[done : done + len(question.duals)])
                done += len(question.duals)
                taken = None if question.variables is None else question.variables.take(rows, sizes)
                if taken is not None:
                    part.together.setdefault(place, []).append(taken)
                self._leave_out(question, rows, sizes)
                floor = float(abs(so_far.scores[-1])) if len(so_far.scores) == question.k else 0.0
                best = top_of_block(rows, sizes, question.k, floor)
                part.rankings[place] = merge([so_far, best], question.k)

    def _sizes(self, question: Question, block: Block, sizes: np.ndarray) -> np.ndarray:
        """Return the scores of a block's features, NaN where they cannot be supports; with several outputs, their norm.

        A score of 0 counts: rounding decides whether it is exactly 0, and it may be the best one at the duals of the
        next cut.
        """
        row: np.ndarray = sizes[0] if len(sizes) == 1 else np.sqrt(np.add.reduce(sizes * sizes))
        row[np.flatnonzero(block.norms == 0.0)] = np.nan  # in less time than by a mask that is nearly empty
        if question.least_effective > 0:
            row[effective_samples(block) < question.least_effective] = np.nan
        return row

    def _leave_out(self, question: Question, block: Block, row: np.ndarray) -> None:
        """Replace the scores of features that are supports, excluded or covered by NaN."""
        first, last = np.searchsorted(question.known, [block.start, block.stop])
        row[question.known[first:last] - block.start] = np.nan
        if question.supports is not None:
            row[question.supports.find(block).feature - block.start] = np.nan

    def _keep_rows(self, part: Ranked, block: Block) -> None:
        led = self._led(part.rankings)
        fresh = led[np.searchsorted(led, block.start) : np.searchsorted(led, block.stop)]
        if len(fresh):
            part.keep(led)
            part.add(fresh, block.rows(fresh - block.start))

    def _led(self, rankings: Sequence[Ranking]) -> np.ndarray:
        led = [question.led(ranking) for question, ranking in zip(self.questions, rankings, strict=True)]
        return np.unique(np.concatenate(led)) if led else np.zeros(0, np.int64)

    def merge(self, parts: Sequence[Ranked]) -> Ranked:
        """Merge the best features of all parts, and their rows."""
        ranked = Ranked(
            [merge([part.rankings[n] for part in parts], question.k) for n, question in enumerate(self.questions)]
        )
        wanted = np.concatenate([np.zeros(0, np.int64), *(ranking.features for ranking in ranked.rankings)])
        for part in parts:
            features = part.features[np.isin(part.features, wanted)]
            if len(features):
                ranked.add(features, part.rows(features))
            for place, pieces in part.together.items():
                ranked.together.setdefault(place, []).extend(pieces)
        return ranked

    def finish(self, part: Ranked) -> Ranked:
        """Return the merged part unchanged."""
        return part
