"""Check the parameters and data of an estimator: stores, Dask collections, matrices and DataFrames."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from crc32c import crc32c
from sklearn.utils.validation import validate_data

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.fit import stored_data
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.engine import active_client, open_engine
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput
from gdm_dask.features.values import LARGEST_EXACT, as_array
from gdm_dask.ingestion import as_blocks
from gdm_dask.ingestion.objects import as_dask_matrix, as_pandas, common_type, computed, is_dask, refuse_rounded
from gdm_dask.model import Estimator, FittedModel, names_at, names_in
from gdm_dask.settings.settings import CONSTRAINTS, Settings, constraints_from, settings_from
from gdm_dask.settings.weights import sample_weights
from gdm_dask.store import FeatureStore, as_store, is_store
from gdm_dask.store.target_files import check_targets
from gdm_dask.store.targets import TASKS, Target, as_values, infer_target
from gdm_dask.system.resources import parse_bytes

logger = logging.getLogger(__name__)

#: Stores with more features than this do not load all names; `names_` holds the relevant ones.
MAX_NAMES = 1_000_000
#: Remedy for a store that does not match a fit.
LIKE = ": ingest it with --like the training store"


def settings_of(
    estimator: Estimator, X: Any, target: Target, Y: np.ndarray, weights: np.ndarray | None = None
) -> Settings:
    """Return the settings of the cutting plane for an estimator's parameters, checked data and its outputs."""
    parameters = estimator.get_params(deep=False)
    n_features = X.shape[0] if isinstance(X, FeatureStore) else X.shape[1]
    constraints = constraints_from(
        parameters, n_features, lambda: names_in(estimator, X), getattr(X, "covariates", None)
    )
    return settings_from(parameters, n_features, target.kind, Y, weights, constraints)


def check_training_data(machine: Any, X: Any, y: Any, task: str) -> tuple[Any, Target, np.ndarray]:
    """Return the data, its target and its outputs (K, n); set `n_features_in_` and `feature_names_in_`."""
    machine.__dict__.pop("feature_names_in_", None)  # from an earlier fit
    if is_store(X):
        X = as_store(X)
        machine.n_features_in_ = X.shape[0]
        if X.has_names and X.shape[0] <= MAX_NAMES:
            machine.feature_names_in_ = np.array(X.feature_names, dtype=object)
        if y is None:
            return X, *_own_target(X, task)
        n_samples = X.shape[1]
    elif is_dask(X):
        names = _column_names(X)
        if names is not None:
            machine.feature_names_in_ = np.array(names, dtype=object)
        X = as_dask_matrix(X)
        n_samples, machine.n_features_in_ = X.shape
        y = computed(y)
    else:
        given = in_memory(X)
        try:
            X, y = validate_data(
                machine, given, as_targets(y), accept_sparse=("csr", "csc"), dtype="numeric", ensure_min_samples=2,
                multi_output=task == "regression",
            )  # fmt: skip
        except (TypeError, ValueError):
            _name_bad_column(given)
            raise
        if X.dtype.kind not in "biuf":  # scikit-learn lets categories of text and dates pass
            _name_bad_column(given)
        if hasattr(given, "columns") and _may_be_rounded(X):
            refuse_rounded(given)
        n_samples = X.shape[0]
    if y is None:
        raise BadInput("requires y to be passed, but the target y is None: pass labels or numbers")
    y = check_targets(y, n_samples, "y")
    target = _target_of(y, task, "y")
    return X, target, _differing(target.encode(y), "y")


def in_memory(X: Any) -> Any:
    """Return a matrix, or a table as a pandas DataFrame; refuse masked values."""
    return as_array(X, "X") if isinstance(X, np.ma.MaskedArray) else as_pandas(X)


def as_targets(y: Any) -> Any:
    """Return targets in memory, in a type that scikit-learn knows; refuse masked ones."""
    y = computed(y)
    y = as_array(y, "y") if isinstance(y, np.ma.MaskedArray) else y
    return y.astype(object) if getattr(getattr(y, "dtype", None), "kind", "") == "T" else y


def _may_be_rounded(X: Any) -> bool:
    """Return whether a matrix has values from which on floating-point numbers do not hold all integers."""
    values = X.data if sp.issparse(X) else X
    return values.size > 0 and max(float(values.max()), -float(values.min())) >= LARGEST_EXACT


def target_of_task(store: FeatureStore, y: np.ndarray | None, task: str | None, where: str = "y") -> Target:
    """Return the target of a store, or of targets from elsewhere, for a task; infer it if the task is None."""
    if task not in TASKS:
        raise BadInput(f"`task` must be 'classification' or 'regression', got {task!r}")
    if y is None:
        return store.own_target() if task is None else _own_target(store, task)[0]
    return infer_target(y, where=where) if task is None else _target_of(y, task, where)


def _own_target(store: FeatureStore, task: str) -> tuple[Target, np.ndarray]:
    """Return the target of a store and its outputs; numbers stored as classes are numbers in a regression."""
    target = store.own_target()
    if (target.kind == "numbers") == (task == "regression"):
        return target, _differing(store.outputs(), store.url)
    target = _target_of(store.y, task, store.url)
    return target, target.encode(store.y)


def _target_of(y: np.ndarray, task: str, where: str) -> Target:
    """Return the target of labels or numbers for a task."""
    y = as_values(y, where)
    if task == "classification" and y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise BadInput(
            f"{where}: Unknown label type: continuous. Pass labels of classes, or fit numbers with "
            "GroupDiscoveryRegressor (--task regression)."
        )
    return infer_target(y, task, where)


def _differing(Y: np.ndarray, where: str) -> np.ndarray:
    """Return the outputs if they differ between samples, else refuse them."""
    if (Y[:, :1] == Y).all():
        raise BadInput(f"{where} holds samples of one class only: two classes are needed")
    return Y


def weights_of(
    X: Any, sample_weight: Any, class_weight: Mapping[Any, float] | str | None, target: Target, Y: np.ndarray
) -> np.ndarray | None:
    """Return the sample weights, by default those of a store, times the class weights; None if all are 1."""
    given = computed(sample_weight)
    if given is None and isinstance(X, FeatureStore):
        given = X.sample_weight
    classes = np.array(getattr(target, "classes", ()))
    return sample_weights(given, class_weight, classes, np.argmax(target.members(Y), axis=0))


def _name_bad_column(X: Any) -> None:
    """Raise an error with the first column of a DataFrame that has values other than numbers, if there is one."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return
    common_type(X)
    for what, wrong in (("NaN", X.isna()), ("infinity", X.isin([np.inf, -np.inf]))):
        positions = np.flatnonzero(wrong.any())
        if len(positions):
            row = wrong.iloc[:, positions[0]].to_numpy().argmax()
            raise BadInput(
                f"column {str(X.columns[positions[0]])!r} of the DataFrame contains {what}, first in row {row} "
                "(counted from 0): replace or remove such values first"
            )


def _column_names(X: Any) -> list[str] | None:
    """Return the column names of a DataFrame; numbers are not names, as in scikit-learn."""
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def find_names(machine: FittedModel, X: Any) -> dict[int, str]:
    """Return the names of the supports and all members of their groups, if the data has names."""
    shown = machine.support_features_
    if machine.affiliations_ is not None:
        shown = np.unique(np.concatenate([shown, machine.affiliations_["feature"].to_numpy()]))
    names = names_at(machine, X, shown)
    return {} if names is None else dict(zip(shown.tolist(), names, strict=True))


def support_columns(machine: FittedModel, X: Any) -> Any:
    """Return the columns of the supports, strongest first."""
    if is_store(X):
        store = as_store(X)
        _check_width(machine, store.shape[0], store.url, LIKE)
        check_names(machine, store)
        return sp.csr_array(store.read_rows(machine.support_features_).T)
    if is_dask(X):
        return in_memory(checked_dask(machine, X)[:, machine.support_features_].compute())
    X = validate_data(machine, in_memory(X), accept_sparse="csr", reset=False)
    return X[:, machine.support_features_]


def checked_dask(machine: FittedModel, X: Any) -> Any:
    """Return a Dask collection as an array, after checking that it has the columns the machine was fitted on."""
    columns = as_dask_matrix(X)
    _check_width(machine, columns.shape[1], "the Dask array")
    check_names(machine, X)
    return columns


def check_names(machine: FittedModel, X: Any) -> None:
    """Refuse a table whose columns, or a store whose supports, have other names than in the fit, or another order."""
    if isinstance(X, FeatureStore):
        supports = machine.support_features_
        there = X.names_of(supports) if X.has_names and machine.names_ else []
        for feature, name in zip(supports.tolist(), there, strict=False):
            expected = machine.names_.get(feature, name)
            if name != expected:
                raise BadInput(f"{X.url}: feature {feature} is {name!r}, but was {expected!r} in the fit{LIKE}")
        return
    names = _column_names(X)
    for name, expected in zip(names or (), getattr(machine, "feature_names_in_", ()), strict=False):
        if name != expected:
            raise BadInput(
                f"the columns must be those of the fit, in the same order: got {name!r} in place of {expected!r}"
            )


def _check_width(machine: FittedModel, n_features: int, what: str, remedy: str = "") -> None:
    if n_features != machine.n_features_in_:
        raise BadInput(
            f"{what} has {n_features} features, but the machine was fitted on {machine.n_features_in_}{remedy}"
        )


def default_scheduler() -> Any:
    """Return the active Client if there is one, else threads.

    Kernels, codecs and file reads release the GIL, so threads are as fast as processes; they need no start-up, share
    the blocks held in memory, and return rows without copying them through a pipe.
    """
    return active_client() or "threads"


@contextmanager
def open_data(
    X: Any, parameters: Mapping[str, Any], settings: Settings, n_problems: int | None = None
) -> Iterator[Data]:
    """Open an engine for the parameters of an estimator, and the blocks of a store or of a checked matrix.

    See `stored_data` for `settings` and `n_problems`.
    """
    limit = None if parameters["memory_limit"] is None else parse_bytes(parameters["memory_limit"])
    with open_engine(parameters["scheduler"] or default_scheduler(), parameters["n_workers"]) as engine:
        logger.info("engine: %s", engine.description)
        with nullcontext(X) if isinstance(X, FeatureStore) else as_blocks(X, engine, limit) as blocks:
            if isinstance(blocks, FeatureStore):
                with stored_data(blocks, engine, limit, settings, n_problems) as data:
                    yield data
            else:
                yield Data.in_memory(blocks, engine)


def solve_in_turns(problems: Sequence[Problem], data: Data) -> Iterator[Sequence[Problem]]:
    """Solve problems, and yield as many at a time as share the reads."""
    for first in range(0, len(problems), data.n_problems):
        some = problems[first : first + data.n_problems]
        solve(some, data)
        yield some


def checkpoint_job(X: Any, Y: np.ndarray, settings: Settings, weights: np.ndarray | None = None) -> dict[str, Any]:
    """Describe data and settings for a checkpoint: only a fit with the same ones can continue from it."""
    if not isinstance(X, FeatureStore):
        raise BadInput("a checkpoint needs a store: ingest the data first")
    checksums = {"labels": crc32c(Y.tobytes()), "weights": None if weights is None else crc32c(weights.tobytes())}
    free, *rivals = (replace(one, constraints=None, n_effective=0.0) for one in (settings, *settings.rivals))
    free = replace(free, rivals=tuple(rivals))
    constraints = dict.fromkeys(CONSTRAINTS) if settings.constraints is None else settings.constraints.described()
    return {"store": X.fingerprint, **checksums, **asdict(free), **constraints}
