"""Search for `tau`, `C` and the size of cuts by cross-validation on one store, driven by dask-ml.

Nothing is copied: a fold is the store with some of its samples.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from gdm_dask.errors import BadInput
from gdm_dask.estimator import GroupDiscoveryMachine
from gdm_dask.store import FeatureStore, open_store
from gdm_dask.store.folder import write_whole
from gdm_dask.store.sampled import taken_store

logger = logging.getLogger(__name__)

#: What is searched for.
TUNED = ("tau", "C", "cut_size")


class StoreMachine(ClassifierMixin, BaseEstimator):
    """A machine whose samples are named by their numbers in a store, for searches that cut `X` into folds.

    Parameters
    ----------
    store : FeatureStore
    machine : GroupDiscoveryMachine
        What is fitted, with the parameters that stay.
    tau, C, cut_size
        Those that are searched for; None leaves the machine's.
    """

    def __init__(
        self,
        store: FeatureStore,
        machine: GroupDiscoveryMachine,
        tau: float | None = None,
        C: float | None = None,
        cut_size: int | str | None = None,
    ) -> None:
        self.store = store
        self.machine = machine
        self.tau = tau
        self.C = C
        self.cut_size = cut_size

    def __deepcopy__(self, memo: dict[int, Any]) -> StoreMachine:
        """dask-ml copies what it fits; clones share a Client, which cannot be copied."""
        del memo
        return clone(self)

    def fit(self, X: np.ndarray, y: np.ndarray) -> StoreMachine:
        """Fit on the samples whose numbers are in the one column of `X`."""
        tuned = {name: getattr(self, name) for name in TUNED if getattr(self, name) is not None}
        samples = np.sort(np.asarray(X)[:, 0])
        chosen = taken_store(self.store.url, samples, self.store.storage_options)
        self.machine_ = clone(self.machine).set_params(**tuned, groups=False).fit(chosen)
        self.classes_ = np.array([-1, 1])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels of the samples of these numbers."""
        rows = self.store.read_rows(self.machine_.support_features_)
        columns = rows[:, np.asarray(X)[:, 0]]
        decision = np.asarray(columns.T @ self.machine_.coef_[0]).ravel() + self.machine_.intercept_[0]
        return np.where(decision > 0, 1, -1)


def tune(
    store: FeatureStore | str | os.PathLike[str],
    parameters: Mapping[str, Any],
    grid: Mapping[str, Any],
    path: Path | None = None,
) -> dict[str, Any]:
    """Search a grid by cross-validation.

    Parameters
    ----------
    store : store or path
    parameters : dict
        Of `GroupDiscoveryMachine`, those that stay.
    grid : dict
        Values (or lists of them) of tau, C and cut_size; ``folds`` (3) and ``samples``, the most to use (all).
    path : Path, optional
        Where to write the table of all combinations, as JSON.

    Returns
    -------
    dict
        The best values; of equal ones those that come first in the grid.
    """
    from dask_ml.model_selection import GridSearchCV
    from sklearn.model_selection import StratifiedKFold

    opened = store if isinstance(store, FeatureStore) else open_store(store)
    values = {name: grid[name] if isinstance(grid[name], list) else [grid[name]] for name in TUNED if name in grid}
    if not values:
        raise BadInput(f"nothing to search: give values for {', '.join(TUNED)}")
    numbers, labels = _chosen_samples(opened, grid.get("samples"))
    folds = StratifiedKFold(grid.get("folds", 3), shuffle=True, random_state=0)
    if np.bincount(labels > 0, minlength=2).min() < folds.get_n_splits():
        raise BadInput(f"{opened.url}: a class has fewer samples than there are folds")
    # each fit has the engine for itself
    search = GridSearchCV(
        StoreMachine(opened, GroupDiscoveryMachine(**parameters)), values, cv=folds, refit=False,
        scheduler="synchronous", cache_cv=False,
    )  # fmt: skip
    search.fit(numbers[:, None], labels)
    table = _table(search.cv_results_)
    best = table[int(np.argmax([row["accuracy"] for row in table]))]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"table": table, "best": best}, indent=1).encode())
    logger.info("best of %d: %s", len(table), best)
    return {name: best[name] for name in values}


def _chosen_samples(store: FeatureStore, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    labels = store.labels.astype(np.int64)
    numbers = np.arange(len(labels))
    if most is not None and most < len(labels):
        numbers = np.sort(np.random.default_rng(0).choice(len(labels), most, replace=False))
    return numbers, labels[numbers]


def _table(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each combination: its values, mean accuracy over the folds, and their standard deviation."""
    return [
        {**chosen, "accuracy": round(float(mean), 6), "deviation": round(float(deviation), 6)}
        for chosen, mean, deviation in zip(
            results["params"], results["mean_test_score"], results["std_test_score"], strict=True
        )
    ]
