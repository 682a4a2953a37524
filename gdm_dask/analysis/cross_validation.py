"""Search for `tau`, `C` and the cut size by cross-validation on one store.

Every fold of every combination is a problem on a subset of the samples. All problems share each read of the store.
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

from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.selection import select
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.cutting_plane.trade_off import Split, splits_of
from gdm_dask.errors import BadInput
from gdm_dask.features.moments import with_samples
from gdm_dask.inputs import open_data, solve_in_turns
from gdm_dask.model import Estimator, decision, names_in
from gdm_dask.settings.settings import constraints_from, expected_supports, settings_from
from gdm_dask.settings.weights import sample_weights
from gdm_dask.store import FeatureStore, as_store
from gdm_dask.store.folder import write_whole

logger = logging.getLogger(__name__)

#: Parameters that can be tuned.
TUNED = ("tau", "C", "cut_size")


def tune(
    store: FeatureStore | str | os.PathLike[str],
    estimator: Estimator,
    grid: Mapping[str, Any],
    path: Path | None = None,
) -> dict[str, Any]:
    """Search a grid by cross-validation; return the best values, of equal ones the first in the grid.

    The estimator has the parameters that are not tuned. The grid has values, or lists of values, of tau, C and
    cut_size; ``folds`` (default 3) and ``samples``, the maximum number of samples (default all). The table of all
    combinations is written to `path`, as JSON.
    """
    from sklearn.model_selection import ParameterGrid

    opened = as_store(store)
    values = {name: grid[name] if isinstance(grid[name], list) else [grid[name]] for name in TUNED if name in grid}
    if not values:
        raise BadInput(f"the grid must have values of {', '.join(TUNED[:-1])} or {TUNED[-1]}, got none")
    target = opened.own_target()
    numbers = _chosen_samples(opened.shape[1], grid.get("samples"))
    strata = np.argmax(target.members(opened.outputs()), axis=0)[numbers]
    n_folds, measure = grid.get("folds", 3), "r2" if target.kind == "numbers" else "accuracy"
    if np.bincount(strata, minlength=max(1, len(opened.classes))).min() < n_folds:
        raise BadInput(f"{opened.url}: each class must have a sample for each of the {n_folds} folds")
    splits = [Split(numbers[train], numbers[test]) for train, test in splits_of(strata, n_folds)]
    combinations = [{name: row[name] for name in values} for row in ParameterGrid(values)]
    scores = _scores(opened, estimator.get_params(deep=False), combinations, splits)
    table = [
        {**chosen, measure: round(float(row.mean()), 6), "deviation": round(float(row.std()), 6)}
        for chosen, row in zip(combinations, scores, strict=True)
    ]
    best = table[int(np.argmax([row[measure] for row in table]))]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"table": table, "best": best}, indent=1).encode())
    for row in table:
        chosen = ", ".join(f"{name} {row[name]}" for name in values)
        logger.info("%s: %s %.4f, standard deviation %.4f", chosen, measure, row[measure], row["deviation"])
    return {name: best[name] for name in values}


def _scores(
    store: FeatureStore,
    parameters: Mapping[str, Any],
    combinations: Sequence[Mapping[str, Any]],
    splits: Sequence[Split],
) -> np.ndarray:
    """Return accuracy or R2 of each combination on each split; all combinations share every read of the store."""
    target, outputs = store.own_target(), store.outputs()
    k, train = parameters["n_features_to_select"], splits[0].train
    codes, classes = np.argmax(target.members(outputs), axis=0), np.array(store.classes)
    class_weight = parameters.get("class_weight")
    weights = [sample_weights(store.sample_weight, class_weight, classes, codes, split.train) for split in splits]
    own = None if store.sample_weight is None else store.sample_weight[train]
    constraints = constraints_from(parameters, store.shape[0], lambda: names_in(None, store), store.covariates)
    settings = [
        settings_from({**parameters, **chosen}, store.shape[0], target.kind, outputs[:, train], own, constraints)
        for chosen in combinations
    ]
    settings = [replace(one, rivals=(), n_folds=0) for one in settings]  # C follows the rule unless it is given
    problems = [
        Problem(outputs[:, split.train], one, split.train, own)
        for one in settings
        for split, own in zip(splits, weights, strict=True)
    ]
    tests = itertools.cycle(split.test for split in splits)
    scores: list[float] = []
    with open_data(store, parameters, max(settings, key=expected_supports), len(problems)) as data:
        for some in solve_in_turns(problems, data):
            for problem, test in zip(some, tests, strict=False):
                scores.append(target.score(outputs[:, test], _values(problem, outputs, test, k)))
    return np.reshape(scores, (len(combinations), len(splits)))


def _values(problem: Problem, outputs: np.ndarray, test: np.ndarray, k: int | None) -> np.ndarray:
    """Return decision values of samples that are not part of a problem."""
    features, rows, _ = select(problem, k)
    task, targets = problem.task, outputs[:, problem.fold.samples]
    most_C = task.refit_limit(problem.settings.n_effective, rows.n_rows)
    coef, intercept = refit(problem.unbalanced(rows), targets, task.refit, most_C)
    return decision(with_samples(problem.whole.rows(features), test), coef, intercept)


def _chosen_samples(n_samples: int, most: int | None) -> np.ndarray:
    if most is None or most >= n_samples:
        return np.arange(n_samples)
    return np.sort(np.random.default_rng(0).choice(n_samples, most, replace=False))
