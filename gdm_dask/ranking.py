"""Ranking: the K features with the largest |score|, ties by the smaller number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
