"""Search for `tau`, `C` and the size of cuts by cross-validation on one store.

Every fold of every combination is a problem on some of the samples. All of them share each read of the store.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.fit import expected_supports, settings_from, stored_data
from gdm_dask.cutting_plane.problem import Problem, Settings
from gdm_dask.cutting_plane.selection import select
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.cutting_plane.weights import sample_weights
from gdm_dask.engine import Engine, active_client, open_engine
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput, MemoryLimitTooLow
from gdm_dask.features.block import Block
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
    from sklearn.model_selection import ParameterGrid, StratifiedKFold

    opened = as_store(store)
    values = {name: grid[name] if isinstance(grid[name], list) else [grid[name]] for name in TUNED if name in grid}
    if not values:
        raise BadInput(f"the grid must have values of {', '.join(TUNED[:-1])} or {TUNED[-1]}, got none")
    numbers, labels = _chosen_samples(opened, grid.get("samples"))
    splitter = StratifiedKFold(grid.get("folds", 3), shuffle=True, random_state=0)
    if np.bincount(labels > 0, minlength=2).min() < splitter.get_n_splits():
        raise BadInput(f"{opened.url}: each class must have a sample for each of the {splitter.get_n_splits()} folds")
    splits = [Split(numbers[train], numbers[test]) for train, test in splitter.split(numbers[:, None], labels)]
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


class Split(NamedTuple):
    """Numbers of the samples to fit on, and of those to judge by, increasing."""

    train: np.ndarray
    test: np.ndarray


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
    n_samples = len(splits[0].train) if weights[0] is None else round(weights[0].sum())
    settings = [settings_from({**parameters, **chosen}, store.shape[0], n_samples) for chosen in combinations]
    problems = [
        Problem(labels[split.train], one, split.train, own)
        for one in settings
        for split, own in zip(splits, weights, strict=True)
    ]
    limit = None if parameters["memory_limit"] is None else parse_bytes(parameters["memory_limit"])
    scheduler = parameters["scheduler"] or active_client() or "threads"
    largest = max(settings, key=expected_supports)
    found: list[tuple[np.ndarray, Block]] = []
    with open_engine(scheduler, parameters["n_workers"]) as engine:
        logger.info("engine: %s", engine.description)
        while len(found) < len(problems):
            with as_many_as_fit(store, engine, limit, largest, len(problems) - len(found)) as (data, n_problems):
                some = problems[len(found) : len(found) + n_problems]
                solve(some, data, lambda problem: None)
                found += [select(problem, k)[:2] for problem in some]
    union = np.unique(np.concatenate([features for features, _ in found]))
    rows = store.load_rows(union)
    accuracies = []
    for (features, own_rows), split in zip(found, itertools.cycle(splits)):
        coef, intercept = refit(own_rows, labels[split.train])
        columns = rows.rows(np.searchsorted(union, features)).matrix()[:, split.test].T
        predicted = np.where(decision(columns, coef, intercept) > 0, 1.0, -1.0)
        accuracies.append(float(np.mean(predicted == labels[split.test])))
    return np.reshape(accuracies, (len(combinations), len(splits)))


@contextmanager
def as_many_as_fit(
    store: FeatureStore, engine: Engine, limit: int | None, settings: Settings, n_problems: int
) -> Iterator[tuple[Data, int]]:
    """The store's data for as many problems as the memory limit lets share a read."""
    with ExitStack() as stack:
        while True:
            try:
                data = stack.enter_context(stored_data(store, engine, limit, settings, n_problems))
                break
            except MemoryLimitTooLow:
                if n_problems == 1:
                    raise
                n_problems = -(-n_problems // 2)
        yield data, n_problems


def _chosen_samples(store: FeatureStore, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    labels = store.codes
    if len(store.classes) > 2:
        raise BadInput(f"{store.url}: two classes are needed, got {len(store.classes)}")
    numbers = np.arange(len(labels))
    if most is not None and most < len(labels):
        numbers = np.sort(np.random.default_rng(0).choice(len(labels), most, replace=False))
    return numbers, labels[numbers]
