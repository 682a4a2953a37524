"""Labelled data to look at a fitted machine with: a store, or a matrix and its labels, behind one small interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gdm_dask.correlation import as_rows
from gdm_dask.data import as_store, is_dask, is_store
from gdm_dask.errors import BadInput
from gdm_dask.store import Block, FeatureStore


class Labelled:
    """Rows and labels (-1 and +1) of data that fits a machine.

    Parameters
    ----------
    data : store, path or URL of one, or tuple (X, y)
        Samples x features in a tuple.
    machine : GroupDiscoveryMachine
        Fitted; the data must have its features and classes. A class is known by its value, or by its text: a store
        that was made of text has the classes "0" and "1" where a matrix has 0 and 1.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> fitted = SimpleNamespace(n_features_in_=2, classes_=np.array(["ham", "spam"]))
    >>> data = Labelled(([[1.0, 0.0], [0.0, 3.0]], ["spam", "ham"]), fitted)
    >>> data.labels.tolist(), data.rows(np.array([1])).values.tolist()
    ([1, -1], [[0.0, 3.0]])
    """

    def __init__(self, data: Any, machine: Any) -> None:
        self.store: FeatureStore | None = None
        self._X: Any = None
        codes: np.ndarray  # position of each sample's class in `classes`
        if is_store(data):
            self.store = as_store(data)
            self.name = self.store.url.rstrip("/").rsplit("/", 1)[-1]
            self.n_features, classes, codes = self.store.shape[0], self.store.classes, self.store.labels > 0
        elif isinstance(data, tuple) and len(data) == 2:
            self.name = "the given matrix"
            self._X = _in_memory(data[0])
            self.n_features = self._X.shape[1]
            found, codes = np.unique(np.asarray(data[1]).ravel(), return_inverse=True)
            classes = found.tolist()
            if len(codes) != self._X.shape[0]:
                raise BadInput(f"{self.name} has {self._X.shape[0]} samples, but there are {len(codes)} labels")
        else:
            raise BadInput("give the data as a store, the path or URL of one, or a tuple (X, y)")
        if self.n_features != machine.n_features_in_:
            raise BadInput(f"{self.name} has {self.n_features} features, but the machine has {machine.n_features_in_}")
        self.labels = self._signs(classes, machine.classes_.tolist())[codes.astype(np.int64)]

    def _signs(self, classes: list[Any], known: list[Any]) -> np.ndarray:
        """-1 or +1 for each class, by the order that the machine has them in."""
        places = [_place(name, known) for name in classes]
        unknown = [str(name) for name, place in zip(classes, places, strict=True) if place < 0]
        if unknown:
            raise BadInput(f"{self.name} has the classes {unknown}, which the machine does not know")
        return np.array([-1, 1])[places]

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return len(self.labels)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are compressed."""
        return self.store.is_sparse if self.store is not None else not isinstance(self._X, np.ndarray)

    def rows(self, features: np.ndarray) -> Block:
        """Raw rows of some features, in the order given."""
        if self.store is not None:
            return self.store.load_rows(features)
        columns = self._X[:, features] if self.is_sparse is False else self._X.tocsc()[:, features]
        return as_rows(columns)

    def blocks(self) -> Iterator[Block]:
        """All rows, block by block."""
        if self.store is None:
            yield as_rows(self._X)
            return
        for number in range(self.store.n_blocks):
            yield self.store.load_block(number)

    def columns(self, features: np.ndarray) -> Any:
        """Samples x some features, as a sparse matrix or an array."""
        block = self.rows(features)
        if block.is_sparse:
            return block.to_scipy().T.tocsr()
        assert block.values is not None
        return block.values.T


def _place(name: Any, known: list[Any]) -> int:
    """Position of a class among those that are known, by its value or else by its text; -1 where it is not."""
    if name in known:
        return known.index(name)
    texts = [str(one) for one in known]
    return texts.index(str(name)) if str(name) in texts else -1


def _in_memory(X: Any) -> Any:
    """A matrix as an array or a sparse matrix."""
    if is_dask(X):
        raise BadInput("a Dask collection is not in memory: ingest it and give the store, or compute() it first")
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2:
        raise BadInput(f"a matrix of samples x features is needed, not an array of shape {X.shape}")
    return X
