"""What a data set gives to the methods and to the criteria."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gdm_dask.errors import BadInput

from .columns import Matrix


@dataclass(frozen=True)
class Problem:
    """A data set of two classes, split.

    Attributes
    ----------
    X, X_test : array or sparse matrix of shape (n_samples, n_features)
    y, y_test : ndarray of shape (n_samples,)
        -1 or +1.
    groups : list of ndarray
        The true groups of predictive features, where they are known.
    image : (int, int), optional
        Height and width, where the features are pixels.
    """

    X: Matrix
    y: np.ndarray
    X_test: Matrix
    y_test: np.ndarray
    groups: list[np.ndarray] = field(default_factory=list)
    image: tuple[int, int] | None = None

    @property
    def redundant(self) -> np.ndarray:
        """All members of the true groups but the first of each."""
        return np.concatenate([np.zeros(0, np.int64), *(group[1:] for group in self.groups)])

    def sample(self, n_samples: int | None, seed: int) -> Problem:
        """The problem with at most so many training samples, drawn at random."""
        if n_samples is None or n_samples >= len(self.y):
            return self
        rows = np.sort(np.random.default_rng(seed).permutation(len(self.y))[:n_samples])
        return replace(self, X=self.X[rows], y=self.y[rows])


def data_file(path: str, page: str) -> Path:
    """A file below the folder GDM_DATA; says where it is to be had if it is not there."""
    folder = os.environ.get("GDM_DATA")
    found = Path(folder or ".") / path
    if not folder:
        raise BadInput(f"set GDM_DATA to the folder that holds {path}; the data is from {page}")
    if not found.is_file():
        raise BadInput(f"{found} is missing; the data is from {page}")
    return found


def split(X: Matrix, y: np.ndarray, test_fraction: float, seed: int, **more: object) -> Problem:
    """A problem from one set: the same part of each class becomes the test set."""
    rng = np.random.default_rng(seed)
    test = np.zeros(len(y), bool)
    for label in (-1, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        test[rows[: round(test_fraction * len(rows))]] = True
    return Problem(X[~test], y[~test], X[test], y[test], **more)  # type: ignore[arg-type]
