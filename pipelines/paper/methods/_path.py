"""Selections along a path of machines with more and more features, for penalties that know no number of features.

For k features the machine is the first of the path with a multiple of k of them, the reach, and its k largest weights
are taken: with a reach of 1 it is the first machine with k features. How far beyond it the path goes is free, and is
chosen by cross-validation on the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from sklearn.model_selection import StratifiedKFold

from ..columns import Matrix, best_first
from ..criteria import quality

REACHES = (1, 2, 4, 8, 16)
N_FOLDS = 3
#: Numbers of features at which reaches are compared.
JUDGED = (20, 50, 100)

#: For each wanted number of features, increasing, all features of the first machine with so many, by |weight|.
Rankings = Callable[[Matrix, np.ndarray, Sequence[int]], Iterator[tuple[int, np.ndarray]]]


def reached(path: Iterable[np.ndarray], wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """For each wanted number, increasing, the features of the first weights with so many, or of the last ones."""
    waiting = list(wanted)
    for weights in path:
        absolute = np.abs(weights)
        order = best_first(absolute)[: np.count_nonzero(absolute)]
        while waiting and len(order) >= waiting[0]:
            yield waiting.pop(0), order
        if not waiting:
            return
    yield from ((number, order) for number in waiting)


@dataclass(frozen=True)
class Along:
    """A method that selects along a path: `select`, `path` and `tune` of its file."""

    rankings: Rankings

    def select(self, X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
        """Features by |weight| of the first machine of the path with k of them, or of the last one."""
        return next(self.path(X, y, [k]))[1]

    def path(
        self, X: Matrix, y: np.ndarray, sizes: Sequence[int], reaches: dict[int, int] | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """For each number of features, in the order of their machines on the path, the features by |weight|.

        `reaches` has the reach for some numbers of features; others take that of the nearest.
        """
        reaches = reaches or {1: 1}
        targets = {}
        for size in sorted(sizes):
            nearest = min(reaches, key=lambda judged: abs(judged - size))
            targets[size] = target(size, reaches[nearest], X.shape)
        for number, order in self.rankings(X, y, sorted(set(targets.values()))):
            yield from ((size, order[:size]) for size in targets if targets[size] == number)

    def tune(self, X: Matrix, y: np.ndarray) -> dict[str, dict[int, int]]:
        """The reaches that are best on held-out parts of the training data; of equal ones the smallest."""
        found: dict[int, dict[int, list[float]]] = {size: {reach: [] for reach in REACHES} for size in JUDGED}
        for train, held_out in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(y, y):
            shape = (len(train), X.shape[1])
            targets = {(size, reach): target(size, reach, shape) for size, reach in product(JUDGED, REACHES)}
            orders = dict(self.rankings(X[train], y[train], sorted(set(targets.values()))))
            for (size, reach), number in targets.items():
                features = orders[number][:size]
                found[size][reach].append(quality(X[train], y[train], X[held_out], y[held_out], features))
        return {"reaches": {size: _best(values) for size, values in found.items()}}


def target(size: int, reach: int, shape: tuple[int, int]) -> int:
    """Features that a machine must have to serve for `size` of them: near all features, or samples, a path crawls.

    >>> target(50, 2, (2048, 10_000)), target(200, 4, (500, 10_000)), target(40, 4, (500, 50)), target(60, 1, (500, 50))
    (100, 250, 40, 50)
    """
    return min(max(size, min(reach * size, min(shape) // 2)), shape[1])


def _best(values: dict[int, list[float]]) -> int:
    return max(values, key=lambda reach: (np.mean(values[reach]), -reach))
