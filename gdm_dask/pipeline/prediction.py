"""Prediction over a large test set, by dask-ml: samples in chunks, each predicted by a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gdm_dask.estimator import GroupDiscoveryMachine
from gdm_dask.evaluation import evaluate
from gdm_dask.store import FeatureStore

#: Samples of a task.
CHUNK = 100_000


def evaluate_store(
    machine: GroupDiscoveryMachine, store: FeatureStore, distributed: bool = False, scheduler: Any = None
) -> dict[str, Any]:
    """`gdm_dask.evaluation.evaluate`; with `distributed`, accuracy comes from dask-ml's tasks over the samples."""
    facts = evaluate(machine, store)
    if distributed:
        facts["accuracy"] = distributed_accuracy(machine, store, scheduler)
    return facts


def distributed_accuracy(machine: GroupDiscoveryMachine, store: FeatureStore, scheduler: Any = None) -> float:
    """Accuracy of a machine on a store, predicted in parallel by `dask_ml.wrappers.ParallelPostFit`."""
    import dask.array as da
    from dask_ml.metrics import accuracy_score

    labels = da.from_array(np.where(store.labels > 0, 1, -1), chunks=CHUNK)
    with _chosen(scheduler):
        return float(accuracy_score(labels, predict_labels(machine, store)))


def predict_labels(machine: GroupDiscoveryMachine, store: FeatureStore, chunk: int = CHUNK) -> Any:
    """Labels (-1 and +1) of the samples of a store, as a Dask array that is computed chunk by chunk."""
    import dask.array as da
    from dask_ml.wrappers import ParallelPostFit

    columns = np.asarray(store.read_rows(machine.support_features_).todense()).T
    rows = da.from_array(columns, chunks=(chunk, -1))
    return ParallelPostFit(as_classifier(machine)).predict(rows)


def as_classifier(machine: GroupDiscoveryMachine) -> Any:
    """The refitted SVM as a scikit-learn classifier of the supports' columns alone."""
    from sklearn.svm import LinearSVC

    found = LinearSVC()
    found.coef_, found.intercept_ = machine.coef_, machine.intercept_
    found.classes_, found.n_features_in_ = np.array([-1, 1]), machine.coef_.shape[1]
    return found


@contextmanager
def _chosen(scheduler: Any) -> Iterator[None]:
    """Dask's own setting for a scheduler: its name, or a client of a running one."""
    import dask

    if scheduler in (None, "local"):
        yield
    elif scheduler in ("synchronous", "threads", "processes"):
        with dask.config.set(scheduler=scheduler):
            yield
    else:
        from gdm_dask.engine.cluster import open_client

        with open_client(scheduler) as client, dask.config.set(scheduler=client):
            yield
