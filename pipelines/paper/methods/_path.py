"""Select along a path of models with more and more features, for penalties that do not set a number of features.

For k features, take the k largest weights of the first model on the path with at least `reach` times k features. With a
reach of 1 this is the first model with k features. Cross-validation on the training data chooses the reach.
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
#: Numbers of features at which to compare reaches.
JUDGED = (20, 50, 100)

#: For each wanted number of features, increasing, yields all features of the first model with as many, by |weight|.
Rankings = Callable[[Matrix, np.ndarray, Sequence[int]], Iterator[tuple[int, np.ndarray]]]


def reached(path: Iterable[np.ndarray], wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield, for each wanted number, increasing, the features of the first weights with as many, or of the last."""
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
    """A method that selects along a path; provides `select`, `path` and `tune`."""

    rankings: Rankings

    def select(self, X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
        """Return the features of the first model on the path with k of them, or of the last one, by |weight|."""
        return next(self.path(X, y, [k]))[1]

    def path(
        self, X: Matrix, y: np.ndarray, sizes: Sequence[int], reaches: dict[int, int] | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each number of features, in the order of the models on the path, with its features by |weight|.

        `reaches` has the reach for some numbers of features; others take the reach of the nearest.
        """
        reaches = reaches or {1: 1}
        targets = {}
        for size in sorted(sizes):
            nearest = min(reaches, key=lambda judged: abs(judged - size))
            targets[size] = target(size, reaches[nearest], X.shape)
        for number, order in self.rankings(X, y, sorted(set(targets.values()))):
            yield from ((size, order[:size]) for size in targets if targets[size] == number)

    def tune(self, X: Matrix, y: np.ndarray) -> dict[str, dict[int, int]]:
        """Choose the reaches that are best on held-out training samples; ties go to the smallest."""
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
    """Return the number of features that a model needs to serve for `size` of them.

    It is capped at half of the features or samples: beyond, the path crawls.

    >>> target(50, 2, (2048, 10_000)), target(200, 4, (500, 10_000)), target(40, 4, (500, 50)), target(60, 1, (500, 50))
    (100, 250, 40, 50)
    """
    return min(max(size, min(reach * size, min(shape) // 2)), shape[1])


def _best(values: dict[int, list[float]]) -> int:
    return max(values, key=lambda reach: (np.mean(values[reach]), -reach))
