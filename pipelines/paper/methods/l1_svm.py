"""L1-SVM (Yuan et al., 2011), by liblinear, along a path over C.

C grows from the smallest one that gives a feature, a quarter at each step. For k features the machine is the first of
the path with a multiple of k of them, the reach, and its k largest weights are taken: with a reach of 1, C is the one
that gives k features. How far beyond it C goes is free, and is chosen by cross-validation on the training data. The
training time is that of the path up to the machine, without the cross-validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC, l1_min_c

from ..columns import Matrix, best_first, standardised
from ..criteria import accuracy

NAME = "L1-SVM"
NESTED = False
NEEDS_TRUTH = False
GROWTH = 1.25
LARGEST = 1e4  # times the smallest C
REACHES = (1, 2, 4, 8, 16)
N_FOLDS = 3
#: Numbers of features at which reaches are compared.
JUDGED = (20, 50, 100)


def select(X: Matrix, y: np.ndarray, k: int) -> np.ndarray:
    """Features by |weight| at the first C of the path with k of them, or at its end."""
    return next(path(X, y, [k]))[1]


def path(
    X: Matrix, y: np.ndarray, sizes: Sequence[int], reaches: dict[int, int] | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """For each number of features, in the order of their machines on the path, the features by |weight|.

    `reaches` has the reach for some numbers of features; others take that of the nearest.
    """
    reaches = reaches or {1: 1}
    targets = {}
    for size in sorted(sizes):
        nearest = min(reaches, key=lambda judged: abs(judged - size))
        targets[size] = target(size, reaches[nearest], X.shape)
    for number, order in rankings(X, y, sorted(set(targets.values()))):
        yield from ((size, order[:size]) for size in targets if targets[size] == number)


def target(size: int, reach: int, shape: tuple[int, int]) -> int:
    """Features that a machine must have to serve for `size` of them: near all features, or samples, a path crawls.

    >>> target(50, 2, (2048, 10_000)), target(200, 4, (500, 10_000)), target(40, 4, (500, 50)), target(60, 1, (500, 50))
    (100, 250, 40, 50)
    """
    return min(max(size, min(reach * size, min(shape) // 2)), shape[1])


def tune(X: Matrix, y: np.ndarray) -> dict[str, dict[int, int]]:
    """The reach with the best accuracy on held-out parts of the training data; of equal ones the smallest."""
    found: dict[int, dict[int, list[float]]] = {size: {reach: [] for reach in REACHES} for size in JUDGED}
    for train, held_out in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(y, y):
        shape = (len(train), X.shape[1])
        targets = {(size, reach): target(size, reach, shape) for size, reach in product(JUDGED, REACHES)}
        orders = dict(rankings(X[train], y[train], sorted(set(targets.values()))))
        for (size, reach), number in targets.items():
            features = orders[number][:size]
            found[size][reach].append(accuracy(X[train], y[train], X[held_out], y[held_out], features))
    return {"reaches": {size: _best(accuracies) for size, accuracies in found.items()}}


def _best(accuracies: dict[int, list[float]]) -> int:
    return max(accuracies, key=lambda reach: (np.mean(accuracies[reach]), -reach))


def rankings(X: Matrix, y: np.ndarray, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """For each wanted number of features, increasing, all features of the first machine with so many, by |weight|."""
    X = standardised(X)
    smallest = l1_min_c(X, y, loss="squared_hinge")
    waiting = list(wanted)
    for factor in GROWTH ** np.arange(1, int(np.log(LARGEST) / np.log(GROWTH)) + 1):
        machine = LinearSVC(penalty="l1", dual=False, C=factor * smallest, tol=1e-3, random_state=0).fit(X, y)
        weights = np.abs(machine.coef_[0])
        order = best_first(weights)[: np.count_nonzero(weights)]
        while waiting and len(order) >= waiting[0]:
            yield waiting.pop(0), order
        if not waiting:
            return
    yield from ((number, order) for number in waiting)
