"""Search for `tau`, `C` and the size of cuts by cross-validation on one store.

Every fold of every combination is a problem on some of the samples. All of them share each read of the store.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.fit import stored_data
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.selection import select
from gdm_dask.cutting_plane.settings import expected_supports, settings_from
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.cutting_plane.trade_off import Split, splits_of
from gdm_dask.cutting_plane.weights import sample_weights
from gdm_dask.engine import active_client, open_engine
from gdm_dask.errors import BadInput
from gdm_dask.features.moments import with_samples
from gdm_dask.model import Estimator, decision
from gdm_dask.store import FeatureStore, as_store
from gdm_dask.store.folder import write_whole
from gdm_dask.system.resources import parse_bytes

logger = logging.getLogger(__name__)

#: Parameters that can be searched for.
TUNED = ("tau", "C", "cut_size")


def tune(
    store: FeatureStore | str | os.PathLike[str],
    estimator: Estimator,
    grid: Mapping[str, Any],
    path: Path | None = None,
) -> dict[str, Any]:
    """Search a grid by cross-validation.

    Parameters
    ----------
    store : store or path
    estimator : GroupDiscoveryMachine
        With the parameters that stay.
    grid : dict
        Values (or lists of them) of tau, C and cut_size; ``folds`` (3) and ``samples``, the most to use (all).
    path : Path, optional
        Where to write the table of all combinations, as JSON.

    Returns
    -------
    dict
        The best values; of equal ones those that come first in the grid.
    """
    from sklearn.model_selection import ParameterGrid

    opened = as_store(store)
    values = {name: grid[name] if isinstance(grid[name], list) else [grid[name]] for name in TUNED if name in grid}
    if not values:
        raise BadInput(f"the grid must have values of {', '.join(TUNED[:-1])} or {TUNED[-1]}, got none")
    numbers, labels = _chosen_samples(opened, grid.get("samples"))
    n_folds = grid.get("folds", 3)
    if np.bincount(labels > 0, minlength=2).min() < n_folds:
        raise BadInput(f"{opened.url}: each class must have a sample for each of the {n_folds} folds")
    splits = [Split(numbers[train], numbers[test]) for train, test in splits_of(labels, n_folds)]
    combinations = [{name: row[name] for name in values} for row in ParameterGrid(values)]
    accuracies = _accuracies(opened, estimator.get_params(deep=False), combinations, splits)
    table = [
        {**chosen, "accuracy": round(float(row.mean()), 6), "deviation": round(float(row.std()), 6)}
        for chosen, row in zip(combinations, accuracies, strict=True)
    ]
    best = table[int(np.argmax([row["accuracy"] for row in table]))]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"table": table, "best": best}, indent=1).encode())
    logger.info("best of %d: %s", len(table), best)
    return {name: best[name] for name in values}


def _accuracies(
    store: FeatureStore,
    parameters: Mapping[str, Any],
    combinations: Sequence[Mapping[str, Any]],
    splits: Sequence[Split],
) -> np.ndarray:
    """Accuracy of each combination on each split; all of them share every read of the store."""
    labels = store.outputs()[0]
    k = parameters["n_features_to_select"]
    codes, classes = (labels > 0).astype(np.int64), np.array(store.classes)
    weights = [sample_weights(None, parameters["class_weight"], classes, codes[split.train]) for split in splits]
    train = splits[0].train
    settings = [
        settings_from({**parameters, **chosen}, store.shape[0], len(train), labels[train], weights[0])
        for chosen in combinations
    ]
    settings = [replace(one, rivals=(), n_folds=0) for one in settings]  # C by the rule where none is given
    problems = [
        Problem(labels[split.train], one, split.train, own)
        for one in settings
        for split, own in zip(splits, weights, strict=True)
    ]
    limit = None if parameters["memory_limit"] is None else parse_bytes(parameters["memory_limit"])
    scheduler = parameters["scheduler"] or active_client() or "threads"
    largest = max(settings, key=expected_supports)
    accuracies: list[float] = []
    with (
        open_engine(scheduler, parameters["n_workers"]) as engine,
        stored_data(store, engine, limit, largest, len(problems)) as data,
    ):
        logger.info("engine: %s", engine.description)
        tests = itertools.cycle(split.test for split in splits)
        while problems:
            some, problems = problems[: data.n_problems], problems[data.n_problems :]
            solve(some, data, lambda problem: None)
            accuracies += [_accuracy(problem, labels, test, k) for problem, test in zip(some, tests, strict=False)]
    return np.reshape(accuracies, (len(combinations), len(splits)))


def _accuracy(problem: Problem, labels: np.ndarray, test: np.ndarray, k: int | None) -> float:
    """Accuracy on samples that a problem does not have."""
    features, rows, _ = select(problem, k)
    coef, intercept = refit(rows, labels[problem.fold.samples])
    values = decision(with_samples(problem.whole_rows(features), test), coef, intercept)
    return float(np.mean(np.where(values > 0, 1.0, -1.0) == labels[test]))


def _chosen_samples(store: FeatureStore, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    labels = store.codes
    if len(store.classes) > 2:
        raise BadInput(f"{store.url}: two classes are needed, got {len(store.classes)}")
    numbers = np.arange(len(labels))
    if most is not None and most < len(labels):
        numbers = np.sort(np.random.default_rng(0).choice(len(labels), most, replace=False))
    return numbers, labels[numbers]
