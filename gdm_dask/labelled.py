"""Labelled data to look at a fitted machine with: a store, or a matrix and its labels, behind one small interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gdm_dask.correlation import as_rows
from gdm_dask.data import as_store, is_store
from gdm_dask.errors import BadInput
from gdm_dask.store import Block, FeatureStore


class Labelled:
    """Rows and labels (-1 and +1) of data that fits a machine.

    Parameters
    ----------
    data : store, path or URL of one, or tuple (X, y)
        Samples x features in a tuple.
    machine : GroupDiscoveryMachine
        Fitted; the data must have its features and classes.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> fitted = SimpleNamespace(n_features_in_=2, classes_=np.array(["ham", "spam"]))
    >>> data = Labelled(([[1.0, 0.0], [0.0, 3.0]], ["spam", "ham"]), fitted)
    >>> data.labels.tolist(), data.rows(np.array([1])).values.tolist()
    ([1, -1], [[0.0, 3.0]])
    """

    def __init__(self, data: Any, machine: Any) -> None:
        self._X: Any = None
        if is_store(data):
            self.store: FeatureStore | None = as_store(data)
            self.name = self.store.url.rstrip("/").rsplit("/", 1)[-1]
            n_features, classes = self.store.shape[0], self.store.classes
            self.labels = self.store.labels.astype(np.int64)
        elif isinstance(data, tuple) and len(data) == 2:
            self.store, self.name = None, "the given matrix"
            self._X = data[0] if hasattr(data[0], "shape") else np.asarray(data[0])
            self._X = self._X.to_numpy() if hasattr(self._X, "to_numpy") else self._X
            n_features, classes = self._X.shape[1], np.unique(np.asarray(data[1])).tolist()
            self.labels = np.where(np.asarray(data[1]) == machine.classes_[1], 1, -1)
        else:
            raise BadInput("give the data as a store, the path or URL of one, or a tuple (X, y)")
        if n_features != machine.n_features_in_:
            raise BadInput(f"{self.name} has {n_features} features, but the machine has {machine.n_features_in_}")
        unknown = {str(name) for name in classes} - {str(name) for name in machine.classes_}
        if unknown:
            raise BadInput(f"{self.name} has the classes {sorted(unknown)}, which the machine does not know")
        self.n_features = n_features

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
