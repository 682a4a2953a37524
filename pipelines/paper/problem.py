"""A data set as the methods and the criteria see it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gdm_dask.errors import BadInput

from .columns import Matrix, varying


@dataclass(frozen=True)
class Problem:
    """A data set of two classes, split into training and test samples.

    Attributes
    ----------
    X, X_test : array or sparse matrix of shape (n_samples, n_features)
    y, y_test : ndarray of shape (n_samples,)
        -1 or +1.
    groups : list of ndarray
        The true groups of predictive features, if they are known.
    portraits : dict
        If the features are pixels: images, by name, to show selected pixels on.
    """

    X: Matrix
    y: np.ndarray
    X_test: Matrix
    y_test: np.ndarray
    groups: list[np.ndarray] = field(default_factory=list)
    portraits: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def redundant(self) -> np.ndarray:
        """All members of the true groups except the first of each."""
        return np.concatenate([np.zeros(0, np.int64), *(group[1:] for group in self.groups)])

    @property
    def training(self) -> Training:
        """The part that a method sees."""
        kept = varying(self.X)
        X = self.X if len(kept) == self.X.shape[1] else self.X[:, kept]
        return Training(X, self.y, kept, np.flatnonzero(np.isin(kept, self.redundant)))

    def sample(self, n_samples: int | None, seed: int) -> Problem:
        """Draw at most `n_samples` training samples at random."""
        if n_samples is None or n_samples >= len(self.y):
            return self
        rows = np.sort(np.random.default_rng(seed).permutation(len(self.y))[:n_samples])
        return replace(self, X=self.X[rows], y=self.y[rows])


@dataclass(frozen=True)
class Training:
    """The training samples, without constant columns.

    Attributes
    ----------
    X : array or sparse matrix of shape (n_samples, n_varying)
    y : ndarray of shape (n_samples,)
    kept : ndarray of shape (n_varying,)
        Index of each column in the problem.
    redundant : ndarray
        Columns that are known to be redundant.
    """

    X: Matrix
    y: np.ndarray
    kept: np.ndarray
    redundant: np.ndarray


def is_there(path: str) -> Path | None:
    """Return the path of a file below the folder GDM_DATA, or None if there is none."""
    folder = os.environ.get("GDM_DATA")
    found = Path(folder) / path if folder else None
    return found if found is not None and found.is_file() else None


def data_file(path: str, page: str) -> Path:
    """Return the path of a file below the folder GDM_DATA; if it is missing, the error says where to get it."""
    found = is_there(path)
    if found is not None:
        return found
    if "GDM_DATA" not in os.environ:
        raise BadInput(f"set GDM_DATA to the folder that holds {path}; the data is from {page}")
    raise BadInput(f"{Path(os.environ['GDM_DATA']) / path} is missing; the data is from {page}")


def split(X: Matrix, y: np.ndarray, test_fraction: float, seed: int, **more: object) -> Problem:
    """Split a set; the same share of each class becomes the test set."""
    rng = np.random.default_rng(seed)
    test = np.zeros(len(y), bool)
    for label in (-1, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        test[rows[: round(test_fraction * len(rows))]] = True
    return Problem(X[~test], y[~test], X[test], y[test], **more)  # type: ignore[arg-type]
