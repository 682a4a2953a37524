"""Ranking: the K features with the largest |score|, ties by the smaller number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.compiled import compiled


@dataclass(frozen=True)
class Ranking:
    """Features from the largest |score| down.

    Attributes
    ----------
    features : ndarray of shape (k,), int64
    scores : ndarray of shape (k,), float64
    n_left : int
        Features with a nonzero score that were left out for being further down.
    """

    features: np.ndarray
    scores: np.ndarray
    n_left: int = 0


def top(features: np.ndarray, scores: np.ndarray, k: int, n_left: int = 0) -> Ranking:
    """The `k` best of these features; features whose score is 0 do not count.

    Examples
    --------
    >>> top(np.arange(4), np.array([0.1, -0.5, 0.5, 0.0]), 2)
    Ranking(features=array([1, 2]), scores=array([-0.5,  0.5]), n_left=1)
    """
    size = np.abs(scores)
    there = np.flatnonzero(size > 0)
    if len(there) > k:
        # the k-th largest; whatever ties with it goes on to the sort, which breaks ties by number
        threshold = np.partition(size[there], len(there) - k)[len(there) - k]
        kept = there[size[there] >= threshold]
    else:
        kept = there
    order = np.lexsort((features[kept], -size[kept]))[:k]
    kept = kept[order]
    return Ranking(features[kept].astype(np.int64), scores[kept], n_left + len(there) - len(kept))


def top_of_block(start: int, scores: np.ndarray, k: int) -> Ranking:
    """`top` of consecutive features from `start` on: most of a large block is left out by one look at each score.

    A guess from a sample of the scores tells how large the best ones are. If at least `k` are as large, the best `k`
    are among them; if not, all scores are ranked.

    Examples
    --------
    >>> top_of_block(10, np.array([0.1, -0.5, 0.5, 0.0]), 2).features.tolist()
    [11, 12]
    """
    guess, expected = _guess(scores, k)
    positions = np.empty(min(len(scores), 4 * expected), np.int64)
    n_found, n_nonzero = _collect(scores, guess, positions)
    if guess > 0.0 and not k <= n_found <= len(positions):
        return top(np.arange(start, start + len(scores)), scores, k)
    positions = positions[:n_found]
    return top(positions + start, scores[positions], k, n_nonzero - n_found)


#: The guess is meant to let this many times k through, and rests on at least so many of the sample.
GUESSED = 4
LEAST_RANK = 16
SAMPLE = 8192


def _guess(scores: np.ndarray, k: int) -> tuple[float, int]:
    """A size that a few times `k` of the scores reach, and how many will; 0 where that would be most of them."""
    stride = len(scores) // SAMPLE
    rank = max(LEAST_RANK, GUESSED * k * SAMPLE // max(1, len(scores)))
    if stride < 2 or rank > SAMPLE // 4:
        return 0.0, len(scores)
    sample = np.abs(scores[::stride])
    return float(np.partition(sample, len(sample) - rank)[len(sample) - rank]), rank * stride


@compiled
def _collect(scores, size, positions):  # type: ignore[no-untyped-def]
    """Positions of the nonzero scores that reach `size`; how many there are, and how many scores are nonzero."""
    n_found = n_nonzero = 0
    for position in range(len(scores)):
        score = abs(scores[position])
        if score > 0.0:
            n_nonzero += 1
            if score >= size:
                if n_found < len(positions):
                    positions[n_found] = position
                n_found += 1
    return n_found, n_nonzero


def merge(rankings: list[Ranking], k: int) -> Ranking:
    """The `k` best of several rankings of different features.

    Examples
    --------
    >>> parts = [top(np.array([0, 1]), np.array([1.0, 2.0]), 2), top(np.array([2]), np.array([-2.0]), 2)]
    >>> merge(parts, 2).features.tolist()
    [1, 2]
    """
    features = np.concatenate([ranking.features for ranking in rankings])
    values = np.concatenate([ranking.scores for ranking in rankings])
    return top(features, values, k, sum(ranking.n_left for ranking in rankings))
