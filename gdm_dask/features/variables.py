"""Variables: features that enter together, such as the one-hot columns of a variable.

A variable is known by its first feature, and a feature that belongs to none is a variable of its own. The score of a
variable is the norm of the scores of its features. Blocks may cut a variable into pieces, so a pass returns the scores
of all features that belong to one, and the driver adds up their squares, in the order of the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gdm_dask.features.block import AlignedArrays, Block
from gdm_dask.features.ranking import Ranking, lengths_of


@dataclass(frozen=True, eq=False)
class Variables(AlignedArrays):
    """The variables of at least two features."""

    features: np.ndarray  # of all variables, increasing
    firsts: np.ndarray  # first feature of the variable of each feature

    @classmethod
    def of(cls, lists: Sequence[np.ndarray]) -> Variables:
        """Make variables of lists of different features, each increasing.

        >>> Variables.of([np.array([1, 4]), np.array([2, 3])]).firsts.tolist()
        [1, 2, 2, 1]
        """
        features = np.concatenate(lists)
        order = np.argsort(features)
        return cls(features[order], np.repeat([own[0] for own in lists], [len(own) for own in lists])[order])

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of features of each variable, largest first."""
        return np.sort(np.unique(self.firsts, return_counts=True)[1])[::-1]

    def most_features(self, n_variables: int) -> int:
        """Most features that some variables may have, features of their own included."""
        return int(self.sizes[:n_variables].sum()) + max(0, n_variables - len(self.sizes))

    def firsts_of(self, features: np.ndarray) -> np.ndarray:
        """First feature of the variable of each feature: itself if it is on its own."""
        places = np.minimum(np.searchsorted(self.features, features), len(self.features) - 1)
        return np.where(self.features[places] == features, self.firsts[places], features)

    def starts_of(self, features: np.ndarray) -> np.ndarray:
        """Position of the first feature of each variable among features that are sorted by variable."""
        firsts = self.firsts_of(np.asarray(features, np.int64))
        return np.flatnonzero(np.concatenate([[True], firsts[1:] != firsts[:-1]])) if len(firsts) else np.arange(0)

    def members_of(self, features: np.ndarray) -> np.ndarray:
        """All features of the variables of some features, sorted by variable."""
        all_features = np.union1d(features, self.features[np.isin(self.firsts, self.firsts_of(features))])
        return all_features[np.lexsort((all_features, self.firsts_of(all_features)))]

    def expand(self, firsts: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Return the features of some variables, in this order, out of `members` and features on their own."""
        alone = np.setdiff1d(firsts, self.features)
        features = np.concatenate([alone, members[np.isin(self.firsts_of(members), firsts)]])
        place = np.argsort(firsts)
        of = place[np.searchsorted(firsts[place], self.firsts_of(features))]
        return features[np.lexsort((features, of))]

    def take(self, block: Block, scores: np.ndarray) -> Ranking | None:
        """Return the scores of a block's features that belong to a variable, if any, and replace them by NaN."""
        first, last = np.searchsorted(self.features, [block.start, block.stop])
        if first == last:
            return None
        local = self.features[first:last] - block.start
        found = Ranking(self.features[first:last], scores[local], 0, lengths_of(block, local))
        scores[local] = np.nan
        return found

    def ranked(self, pieces: Sequence[Ranking], known: np.ndarray) -> tuple[Ranking, np.ndarray]:
        """Return a ranking of the variables that hold no known feature, and their features, increasing.

        Parameters
        ----------
        pieces : list of Ranking
            From `take`, in any order. Features with a NaN score cannot be supports: they count for nothing.
        known : ndarray of int64, increasing
            Features that are supports or covered.
        """
        pieces = [Ranking.empty(), *pieces]
        features, scores, lengths = (
            np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("features", "scores", "lengths")
        )
        firsts = self.firsts_of(features)
        is_free = ~np.isnan(scores) & ~np.isin(firsts, self.firsts_of(known))
        order = np.lexsort((features, firsts))
        order = order[is_free[order]]
        if not len(order):
            return Ranking.empty(), np.zeros(0, np.int64)
        features, firsts = features[order], firsts[order]
        starts = self.starts_of(features)
        sizes, lengths = norms_of(np.abs(scores[order]), starts), np.add.reduceat(lengths[order], starts)
        return Ranking(firsts[starts], sizes, 0, lengths), np.sort(features)


def norms_of(sizes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Norm of the sizes of each variable, given the position of its first feature.

    >>> norms_of(np.array([3.0, 4.0, 2.0]), np.array([0, 2])).tolist()
    [5.0, 2.0]
    """
    if len(starts) == len(sizes):
        return sizes
    is_alone = np.diff(starts, append=len(sizes)) == 1
    return np.where(is_alone, sizes[starts], np.sqrt(np.add.reduceat(sizes * sizes, starts)))


def spread(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate ranges, given by their starts and lengths.

    >>> spread(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    positions: np.ndarray = np.repeat(starts, counts) + within
    return positions
