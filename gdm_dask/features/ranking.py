"""Ranking: the features with the largest |score|, ties by the smaller number; and the rows of the best of them.

The cutting plane works on the rows of the best features next. A block that does not fit into memory is gone when its
scores are known, and to read a row of it again is to decode whole chunks. So these rows come back with the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gdm_dask.features.block import AlignedArrays, Block, stack
from gdm_dask.features.effective import effective_samples
from gdm_dask.features.groups import Supports, find_pairs
from gdm_dask.features.moments import ALL_SAMPLES, Fold
from gdm_dask.features.scores import interleaved, scores
from gdm_dask.system.scratch import work_space

#: Features of a working set, and values of their rows: a set of long rows has fewer features.
WORKING_FEATURES = 2048
WORKING_VALUES = 50_000_000
#: Scores that are taken at a time, where there are several vectors.
SCORES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Ranking:
    """Features from the largest |score| down.

    Attributes
    ----------
    features : ndarray of shape (k,), int64
    scores : ndarray of shape (k,), float64
        With several outputs, the norm over them.
    n_left : int
        Features that were left out for being further down.
    lengths : ndarray of shape (k,), int64
        Values in each row: nonzeros of a sparse one.
    """

    features: np.ndarray
    scores: np.ndarray
    n_left: int
    lengths: np.ndarray

    @classmethod
    def empty(cls) -> Ranking:
        """Before any feature was ranked."""
        return cls(np.zeros(0, np.int64), np.zeros(0), 0, np.zeros(0, np.int64))

    @property
    def floor(self) -> float:
        """No feature that was left out has a larger |score|."""
        return float(abs(self.scores[-1])) if self.n_left else 0.0


def top(
    features: np.ndarray, scores: np.ndarray, k: int, n_left: int = 0, lengths: np.ndarray | None = None
) -> Ranking:
    """The `k` best of these features; those whose score is NaN do not count.

    Examples
    --------
    >>> ranking = top(np.arange(4), np.array([0.1, -0.5, 0.5, np.nan]), 2)
    >>> ranking.features.tolist(), ranking.scores.tolist(), ranking.n_left
    ([1, 2], [-0.5, 0.5], 1)
    """
    size = np.abs(scores)
    there = np.flatnonzero(size >= 0)
    if len(there) > k:
        # the k-th largest; whatever ties with it goes on to the sort, which breaks ties by number
        threshold = np.partition(size[there], len(there) - k)[len(there) - k]
        kept = there[size[there] >= threshold]
    else:
        kept = there
    kept = kept[np.lexsort((features[kept], -size[kept]))[:k]]
    lengths = np.zeros(len(features), np.int64) if lengths is None else lengths
    return Ranking(features[kept].astype(np.int64), scores[kept], n_left + len(there) - len(kept), lengths[kept])


def top_of_block(block: Block, scores: np.ndarray, k: int, floor: float = 0.0) -> Ranking:
    """`top` of the features of a block, of those whose |score| is at least `floor`."""
    size = np.abs(scores)
    positions = np.flatnonzero(size >= floor)
    n_below = int(np.count_nonzero(size >= 0)) - len(positions)
    return top(positions + block.start, scores[positions], k, n_below, _lengths(block, positions))


def merge(rankings: Sequence[Ranking], k: int) -> Ranking:
    """The `k` best of several rankings of different features.

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


def _lengths(block: Block, local: np.ndarray) -> np.ndarray:
    """Values in some rows of a block."""
    if block.indptr is None:
        return np.full(len(local), block.n_samples)
    lengths: np.ndarray = block.indptr[local + 1].astype(np.int64) - block.indptr[local]
    return lengths


@dataclass(frozen=True)
class Question(AlignedArrays):
    """A problem's question to a pass: the free features with the largest scores, and their rows.

    Attributes
    ----------
    duals : ndarray of shape (K, n_samples)
        One vector for each output.
    k : int
        How many of the best features to find.
    known : ndarray of int64, increasing
        Features to leave out: supports, and features that are known to correlate with one.
    supports : Supports, optional
        Leave out all features that correlate with one of these.
    fold : int
        The samples that the problem has, as a position among the pass's folds.
    n_values : int
        Rows are wanted up to so many values in all.
    n_least : int
        So many rows are wanted in any case.
    share : float
        A part of the pass brings back the rows of this share of the features; the rest is read again.
    least_effective : float
        Leave out all features with fewer effective samples.
    """

    duals: np.ndarray
    k: int
    known: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    n_values: int = 0
    n_least: int = 0
    share: float = 1.0
    supports: Supports | None = None
    fold: int = 0
    least_effective: float = 0.0

    def n_wanted(self, ranking: Ranking, share: float = 1.0) -> int:
        """How many of the best rows of a ranking are wanted."""
        fitting = int(np.searchsorted(np.cumsum(ranking.lengths), share * self.n_values, side="right"))
        return min(max(fitting, math.ceil(share * self.n_least)), math.ceil(share * self.k), len(ranking.features))

    def led(self, ranking: Ranking) -> np.ndarray:
        """The features of a part's ranking whose rows it brings back."""
        led: np.ndarray = ranking.features[: self.n_wanted(ranking, self.share)]
        return led


@dataclass
class Ranked:
    """The best features for every question, and rows of the best of these.

    Attributes
    ----------
    rankings : list of Ranking
    features : ndarray of int64, increasing
        Features whose rows are here.
    pieces : list of Block
        Their rows, among others that are no longer asked for.
    places : ndarray of shape (features, 2), int64
        The piece of each row, and its position there.
    """

    rankings: list[Ranking]
    features: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    pieces: list[Block] = field(default_factory=list)
    places: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def rows(self, features: np.ndarray) -> Block:
        """Raw rows of some features that are here, in this order."""
        number, place = self.places[np.searchsorted(self.features, features)].T
        firsts = np.cumsum([0, *(piece.n_rows for piece in self.pieces)])
        return stack(self.pieces).rows(firsts[number] + place)

    def has(self, features: np.ndarray) -> np.ndarray:
        """Whether the row of each of these features is here."""
        there: np.ndarray = np.isin(features, self.features)
        return there

    def keep(self, asked: np.ndarray) -> None:
        """Let go of other features than these, and of their rows as soon as they outnumber the others."""
        kept = np.isin(self.features, asked)
        self.features, self.places = self.features[kept], self.places[kept]
        if sum(piece.n_rows for piece in self.pieces) > 2 * len(self.features):
            self.pieces = [self.rows(self.features)] if len(self.features) else []
            self.places = np.stack([np.zeros(len(self.features), np.int64), np.arange(len(self.features))], axis=1)

    def add(self, features: np.ndarray, rows: Block) -> None:
        """Take the rows of further features."""
        places = np.stack([np.full(len(features), len(self.pieces)), np.arange(len(features))], axis=1)
        order = np.argsort(np.concatenate([self.features, features]))
        self.features = np.concatenate([self.features, features])[order]
        self.places = np.concatenate([self.places, places])[order]
        self.pieces.append(rows)


@dataclass(frozen=True)
class ScorePass:
    """Ranks all features by the size of their scores, for several problems at once.

    Attributes
    ----------
    questions : list of Question
    folds : list of Fold
        Samples of the problems, and their weights: moments, scores and correlations are those of these samples.
    """

    questions: Sequence[Question]
    folds: Sequence[Fold] = (ALL_SAMPLES,)
    name = "scores"

    def begin(self) -> Ranked:
        """Nothing is ranked yet."""
        return Ranked([Ranking.empty() for _ in self.questions])

    def see(self, part: Ranked, block: Block) -> None:
        """Rank the features of a block among those so far: below the k-th best so far they need no look."""
        for number, fold in enumerate(self.folds):
            asked = [place for place, question in enumerate(self.questions) if question.fold == number]
            if asked:
                self._rank(part.rankings, asked, fold.of(block), *self._vectors[number])
        self._keep_rows(part, block)

    @cached_property
    def _vectors(self) -> dict[int, tuple[np.ndarray, list[np.ndarray]]]:
        """The duals of each fold's questions, one below the other, and interleaved."""
        found = {}
        for number in {question.fold for question in self.questions}:
            duals = [question.duals for question in self.questions if question.fold == number]
            vectors = duals[0] if len(duals) == 1 else np.concatenate(duals)
            found[number] = vectors, interleaved(vectors)
        return found

    def _rank(
        self,
        rankings: list[Ranking],
        asked: Sequence[int],
        block: Block,
        vectors: np.ndarray,
        columns: Sequence[np.ndarray],
    ) -> None:
        """Rank the features of a block for some questions, given by their places."""
        for rows in block.parts(block.n_rows if len(vectors) == 1 else max(1, SCORES_AT_ONCE // len(vectors))):
            shape = len(vectors), rows.n_rows
            room = work_space("scores", shape[0] * shape[1], np.float64).reshape(shape)
            found, done = scores(rows, vectors, room, columns), 0
            for place in asked:
                question, so_far = self.questions[place], rankings[place]
                own = found[done : done + len(question.duals)]
                done += len(own)
                floor = float(abs(so_far.scores[-1])) if len(so_far.scores) == question.k else 0.0
                best = top_of_block(rows, self._sizes(question, rows, own), question.k, floor)
                rankings[place] = merge([so_far, best], question.k)

    def _sizes(self, question: Question, block: Block, sizes: np.ndarray) -> np.ndarray:
        """Scores of a block's free features, NaN for the others; with several outputs, their norm.

        A score of 0 counts: rounding decides whether it is, and it may be the best one at the duals of the next cut.
        """
        row: np.ndarray = sizes[0] if len(sizes) == 1 else np.sqrt(np.add.reduce(sizes * sizes))
        first, last = np.searchsorted(question.known, [block.start, block.stop])
        row[block.norms == 0.0] = np.nan
        row[question.known[first:last] - block.start] = np.nan
        if question.least_effective > 0:
            row[effective_samples(block) < question.least_effective] = np.nan
        if question.supports is not None:
            row[find_pairs(block, question.supports).feature - block.start] = np.nan
        return row

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
        """The best of all parts, and the rows of each."""
        ranked = Ranked(
            [merge([part.rankings[n] for part in parts], question.k) for n, question in enumerate(self.questions)]
        )
        wanted = np.concatenate([np.zeros(0, np.int64), *(ranking.features for ranking in ranked.rankings)])
        for part in parts:
            features = part.features[np.isin(part.features, wanted)]
            if len(features):
                ranked.add(features, part.rows(features))
        return ranked

    def finish(self, part: Ranked) -> Ranked:
        """As it is."""
        return part
