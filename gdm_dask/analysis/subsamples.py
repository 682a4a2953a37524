"""Fits on subsamples: each is a problem on a subset of the samples, and all share every read of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.utils import check_array

from gdm_dask.cutting_plane.fit import groups_of
from gdm_dask.cutting_plane.linkage import Linker
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.selection import select
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.features.groups import GroupPass, Pairs
from gdm_dask.features.measures import MEASURES
from gdm_dask.features.passes import Together
from gdm_dask.ingestion.objects import as_dask_matrix, computed, is_dask
from gdm_dask.inputs import open_data, solve_in_turns
from gdm_dask.model import FittedModel, names_in
from gdm_dask.settings.settings import Settings, constraints_from, expected_supports, settings_from
from gdm_dask.settings.weights import sample_weights
from gdm_dask.store import FeatureStore
from gdm_dask.store.target_files import check_targets
from gdm_dask.store.targets import Target, infer_target

if TYPE_CHECKING:
    from gdm_dask.settings.constraints import Constraints

#: Map from each support to the members of its group.
Groups: TypeAlias = dict[int, np.ndarray]


def draw_samples(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Draw a share of the samples of each class without replacement; return their numbers in increasing order.

    Examples
    --------
    >>> labels = np.array([-1, -1, -1, -1, 1, 1])
    >>> labels[draw_samples(labels, 0.5, seed=0)].tolist()
    [-1, -1, 1]
    """
    if not 0 < fraction < 1:
        raise BadInput(f"fraction must be in (0, 1), got {fraction!r}")
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen.append(rng.choice(members, max(1, round(fraction * len(members))), replace=False))
    return np.sort(np.concatenate(chosen))


def _outputs(model: FittedModel, X: Any, y: Any, n_samples: int) -> tuple[Target, np.ndarray]:
    """Return the target for the model's task and its outputs (K, n); a store has its own target."""
    if y is not None:
        y = check_targets(computed(y), n_samples, "y")
    elif isinstance(X, FeatureStore):
        y = X.y
    else:
        raise BadInput("y must be passed: a matrix has no labels")
    known = model.target_
    target = infer_target(y, "regression" if known.kind == "numbers" else "classification")
    if (target.kind, target.n_outputs) != (known.kind, known.n_outputs):
        n_known = "two classes" if known.kind == "two classes" else f"{known.n_outputs} {known.kind}"
        what = n_known if known.kind == "numbers" else f"labels of {n_known}"
        raise BadInput(f"y must hold {what}, as in the fit")
    return target, target.encode(y)


def checked_matrix(X: Any) -> Any:
    """Check a matrix (samples x features) and return it."""
    return as_dask_matrix(X) if is_dask(X) else check_array(X, accept_sparse=("csr", "csc"), dtype="numeric")


def fit_subsamples(
    model: FittedModel,
    X: Any,
    y: Any,
    n_repeats: int,
    fraction: float,
    seed: int,
    callback: Callable[[int, int], None] | None = None,
) -> list[Groups]:
    """Find groups on each of several subsamples, with the parameters of a model.

    Matrices are samples x features, already checked; a `y` of None takes the labels of a store. A subsample holds this
    `fraction` of the samples of each class. `callback` is called with the number of each finished fit, and `n_repeats`.
    """
    n_features, n_samples = X.shape if isinstance(X, FeatureStore) else X.shape[::-1]
    if n_features != model.n_features_in_:
        raise BadInput(f"X has {n_features} features, but the machine was fitted on {model.n_features_in_}")
    target, Y = _outputs(model, X, y, n_samples)
    codes, classes = target.members(Y).argmax(axis=0), np.array(getattr(target, "classes", ()))
    parameters = model.get_params(deep=False)
    constraints = constraints_from(parameters, n_features, lambda: names_in(model, X), getattr(X, "covariates", None))
    own = X.sample_weight if isinstance(X, FeatureStore) else None
    problems = []
    for repeat in range(n_repeats):
        samples = draw_samples(codes, fraction, seed + repeat)
        weights = sample_weights(own, parameters.get("class_weight"), classes, codes, samples)
        own_weights = None if own is None else own[samples]
        settings = _settings(model, {**parameters, "certify": False}, Y[:, samples], own_weights, constraints)
        problems.append(Problem(Y[:, samples], settings, samples, weights))
    found: list[Groups] = []
    largest = max((problem.settings for problem in problems), key=expected_supports)
    with open_data(X, parameters, largest, len(problems)) as data:
        for some in solve_in_turns(problems, data):
            chosen = []
            for problem in some:
                chosen.append(select(problem, parameters["n_features_to_select"])[:2])
                if callback is not None:
                    callback(len(found) + len(chosen), n_repeats)
            found += find_all_groups(data, some, chosen)
    return found


def _settings(
    model: FittedModel,
    parameters: dict[str, Any],
    targets: np.ndarray,
    weights: np.ndarray | None,
    constraints: Constraints | None,
) -> Settings:
    """Return the settings for a subsample; if folds chose C for the model, use the same candidate."""
    settings = settings_from(parameters, model.n_features_in_, model.target_.kind, targets, weights, constraints)
    chosen = (getattr(model, "C_path_", None) or {}).get("chosen", 0)
    candidates = [settings, *settings.rivals][: chosen + 1]
    return replace(candidates[-1], rivals=(), n_folds=0)


def find_all_groups(
    data: Data, problems: Sequence[Problem], chosen: Sequence[tuple[np.ndarray, Block]]
) -> list[Groups]:
    """Find the groups of the supports of several problems, given with their rows, in one read."""
    limit = problems[0].supports.limit
    if not np.isfinite(limit):
        return [{support: np.array([support]) for support in supports.tolist()} for supports, _ in chosen]
    measure = MEASURES[problems[0].settings.measure]
    plain = [problem.unbalanced(rows) for problem, (_, rows) in zip(problems, chosen, strict=True)]
    folds = [problem.sample_fold for problem in problems]
    passes = [GroupPass(measure.search(rows, limit), fold) for rows, fold in zip(plain, folds, strict=True)]
    found: list[Pairs] = data.run(Together(passes, "groups"))
    groups = []
    for pairs, problem, fold, (supports, _), rows in zip(found, problems, folds, chosen, plain, strict=True):
        linker = Linker(data, fold, measure, limit, supports, rows)
        groups.append(groups_of(linker.link(pairs, problem.settings.linkage), supports))
    return groups
