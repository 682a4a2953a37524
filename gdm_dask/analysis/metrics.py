"""Accuracy or R2, and redundancy, of a fitted model on data with a target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from gdm_dask.engine import LOCAL_SCHEDULERS
from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.features.correlation import as_rows, block_redundancy_rate
from gdm_dask.features.values import as_array
from gdm_dask.ingestion.objects import is_dask
from gdm_dask.inputs import LIKE, check_names, in_memory
from gdm_dask.model import FittedModel, decision
from gdm_dask.store import FeatureStore, as_store, is_store

#: Samples per prediction task.
CHUNK = 100_000
#: Classes that an error names.
MOST_NAMED = 5


class Labelled:
    """A store, or a matrix with its labels or numbers, as rows of features and outputs of a model.

    Parameters
    ----------
    data : store, path or URL of one, or tuple (X, y)
        In a tuple, X is samples x features.
    model : GroupDiscoveryMachine or GroupDiscoveryRegressor
        A fitted model; the data must have its features and classes. Classes are matched by value, or else by text: a
        store made from text has the classes "0" and "1" where a matrix has 0 and 1.

    Attributes
    ----------
    outputs : ndarray of shape (n_outputs, n_samples)
        Encoded targets, see `Target.encode`.
    y : ndarray
        Targets in terms of the model: its classes, or numbers.
    members : ndarray of shape (n_classes, n_samples), bool
        Class membership, see `Target.members`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from gdm_dask.store.targets import TwoClasses
    >>> fitted = SimpleNamespace(n_features_in_=2, target_=TwoClasses(("ham", "spam")))
    >>> data = Labelled(([[1.0, 0.0], [0.0, 3.0]], ["spam", "ham"]), fitted)
    >>> data.outputs.tolist(), data.rows(np.array([1])).values.tolist()
    ([[1.0, -1.0]], [[0.0, 3.0]])
    """

    def __init__(self, data: Any, model: FittedModel) -> None:
        self.store: FeatureStore | None = None
        self._X: Any = None
        if is_store(data):
            given = self.store = as_store(data)
            self.name = self.store.url.rstrip("/").rsplit("/", 1)[-1]
            self.n_features, n_samples, y = *self.store.shape, self.store.y
        elif isinstance(data, tuple) and len(data) == 2:
            self.name = "the given matrix"
            given = in_memory(data[0])
            self._X, y = _in_memory(given), np.atleast_1d(as_array(data[1], "y"))
            n_samples, self.n_features = self._X.shape
        else:
            raise BadInput(
                f"the data must be a store, the path or URL of one, or a tuple (X, y), got {type(data).__name__}"
            )
        if len(y) != n_samples:
            raise BadInput(f"{self.name} has {n_samples} samples, but there are {len(y)} labels")
        if self.n_features != model.n_features_in_:
            raise BadInput(
                f"{self.name} has {self.n_features} features, but the model was fitted on {model.n_features_in_}"
            )
        check_names(model, given)
        known = getattr(model.target_, "classes", None)
        self.y = y if known is None else self._known(y.ravel(), list(known))
        self.outputs = model.target_.encode(self.y, self.name)
        self.members = model.target_.members(self.outputs)

    def _known(self, y: np.ndarray, known: list[Any]) -> np.ndarray:
        """Convert labels to the classes of the model."""
        classes, codes = np.unique(y, return_inverse=True)
        positions = [_position(name, known) for name in classes.tolist()]
        unknown = [str(name) for name, position in zip(classes, positions, strict=True) if position < 0]
        if unknown:
            raise BadInput(f"{self.name} has the classes {_some(unknown)}, but the model was fitted on {_some(known)}")
        return np.array(known)[positions][codes]

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.outputs.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether rows are compressed."""
        return self.store.is_sparse if self.store is not None else not isinstance(self._X, np.ndarray)

    def rows(self, features: np.ndarray) -> Block:
        """Return raw rows of some features, in the given order."""
        if self.store is not None:
            return self.store.load_rows(features)
        columns = self._X[:, features] if self.is_sparse is False else self._X.tocsc()[:, features]
        return as_rows(columns)

    def blocks(self) -> Iterator[Block]:
        """Yield all rows, block by block."""
        if self.store is None:
            yield as_rows(self._X)
            return
        for number in range(self.store.n_blocks):
            yield self.store.load_block(number)


def _some(classes: list[Any]) -> str:
    """Return the first classes as text: if the target holds numbers, there are as many classes as samples.

    >>> _some([0, 1]), _some([*range(100)])
    ('[0, 1]', '[0, 1, 2, 3, 4] and 95 more')
    """
    more = len(classes) - MOST_NAMED
    return f"{classes[:MOST_NAMED]}" + (f" and {more:,} more" if more > 0 else "")


def _position(name: Any, known: list[Any]) -> int:
    """Return the position of a class among the known classes, by value or else by text; -1 if unknown."""
    if name in known:
        return known.index(name)
    texts = [str(one) for one in known]
    return texts.index(str(name)) if str(name) in texts else -1


def _in_memory(X: Any) -> Any:
    """Load a matrix as an array or a sparse matrix."""
    if is_dask(X):
        raise BadInput("a Dask collection is not in memory: ingest it and pass the store, or compute() it first")
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2:
        raise BadInput(f"X must be a matrix of samples x features, got an array of shape {X.shape}")
    return X


def evaluate(
    model: FittedModel, store: FeatureStore, distributed: bool = False, scheduler: Any = None
) -> dict[str, Any]:
    """Compute the metrics of the model's target, such as accuracy or R2, the redundancy rate and sizes on a store.

    Metrics that need several classes are None if the store has samples of only one class. With `distributed`, the
    decision values are computed by Dask tasks over the samples, with `dask_ml.wrappers.ParallelPostFit`, on the Dask
    scheduler of this name or address.
    """
    if store.target is None:
        raise BadInput(f"{store.url}: the store has no targets to compare predictions with: ingest it with --target")
    try:
        y = Labelled(store, model).y
    except BadInput as error:
        raise BadInput(str(error).removesuffix(LIKE) + LIKE) from error
    rows = store.load_rows(model.support_features_)
    values = decision(rows, model.coef_, model.intercept_)
    if distributed:
        outputs = zip(model.coef_, model.intercept_, strict=True)
        values = np.array([LinearDecision(*output).predict_in_parallel(rows, scheduler) for output in outputs])
    members = 0 if model.groups_ is None else len(np.unique(np.concatenate(list(model.groups_.values()))))
    return {
        **model.target_.measures(y, values),
        "redundancy_rate": block_redundancy_rate(rows),
        "n_samples": store.shape[1],
        "n_features": store.shape[0],
        "n_supports": len(model.support_features_),
        "n_affiliated": max(0, members - len(model.support_features_)),
    }


class LinearDecision:
    """Decision values of one output as the `predict` method that dask-ml calls on each chunk of samples."""

    def __init__(self, coef: np.ndarray, intercept: float) -> None:
        self.coef, self.intercept = coef, intercept

    def predict(self, columns: Any) -> np.ndarray:
        """Return decision values of raw columns, or of a block of rows."""
        values: np.ndarray = decision(columns, self.coef[None], np.array([self.intercept]))[0]
        return values

    def predict_in_parallel(self, rows: Block, scheduler: Any = None, chunk: int = CHUNK) -> np.ndarray:
        """Run `predict` as one task per chunk of samples."""
        import dask.array as da
        from dask_ml.wrappers import ParallelPostFit

        from gdm_dask.engine.connect import open_client

        matrix = rows.matrix()
        columns = matrix.T if isinstance(matrix, np.ndarray) else matrix.T.tocsr()
        found = ParallelPostFit(self).predict(da.from_array(columns, chunks=(chunk, -1), asarray=False))
        scheduler = None if scheduler == "local" else scheduler
        with nullcontext(scheduler) if scheduler in (None, *LOCAL_SCHEDULERS) else open_client(scheduler) as chosen:
            values: np.ndarray = found.compute(scheduler=chosen)
        return values
