"""What a machine is handed, checked: stores, Dask collections, matrices and DataFrames become columns and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from gdm_dask.checks import encode_labels, two_classes
from gdm_dask.data import as_dask_matrix, as_store, is_dask, is_store
from gdm_dask.errors import BadInput
from gdm_dask.store import FeatureStore

if TYPE_CHECKING:
    from gdm_dask.estimator import GroupDiscoveryMachine

#: Stores with more features than this keep their names to themselves; `names_` has those that matter.
MAX_NAMES = 1_000_000


def check_training_data(machine: GroupDiscoveryMachine, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """The data and its labels as -1 and +1; sets `classes_`, `n_features_in_` and `feature_names_in_`."""
    machine.__dict__.pop("feature_names_in_", None)  # of an earlier fit
    if is_store(X):
        X = as_store(X)
        machine.n_features_in_ = X.shape[0]
        if X.has_names and X.shape[0] <= MAX_NAMES:
            machine.feature_names_in_ = np.array(X.feature_names, dtype=object)
        if y is None:
            machine.classes_ = np.array(X.classes)
            return X, two_classes(X)
        n_samples = X.shape[1]
    elif is_dask(X):
        names = _column_names(X)
        if names is not None:
            machine.feature_names_in_ = np.array(names, dtype=object)
        X = as_dask_matrix(X)
        n_samples, machine.n_features_in_ = X.shape
        y = y.compute() if is_dask(y) else y
    else:
        X, y = validate_data(machine, X, y, accept_sparse=("csr", "csc"), dtype="numeric", ensure_min_samples=2)
        n_samples = X.shape[0]
    machine.classes_, labels = encode_labels(y, n_samples)
    return X, labels


def _column_names(X: Any) -> list[str] | None:
    """Names of the columns of a Dask DataFrame; numbers are no names, as in scikit-learn."""
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def find_names(machine: GroupDiscoveryMachine, X: Any) -> dict[int, str]:
    """Names of the supports and of all members of their groups, where the data has names."""
    shown = machine.support_features_
    if machine.affiliations_ is not None:
        shown = np.unique(np.concatenate([shown, machine.affiliations_["feature"].to_numpy()]))
    if isinstance(X, FeatureStore) and X.has_names:
        return dict(zip(shown.tolist(), X.names_of(shown), strict=True))
    if hasattr(machine, "feature_names_in_"):
        return dict(zip(shown.tolist(), map(str, machine.feature_names_in_[shown]), strict=True))
    return {}


def support_columns(machine: GroupDiscoveryMachine, X: Any) -> Any:
    """Columns of the supports, strongest first."""
    if is_store(X):
        store = as_store(X)
        _check_width(machine, store.shape[0], store.url, ": ingest it with --like the training store")
        return sp.csr_array(store.read_rows(machine.support_features_).T)
    if is_dask(X):
        return checked_dask(machine, X)[:, machine.support_features_].compute()
    X = validate_data(machine, X, accept_sparse="csr", reset=False)
    return X[:, machine.support_features_]


def checked_dask(machine: GroupDiscoveryMachine, X: Any) -> Any:
    """A Dask collection as an array with the columns that the machine was fitted on."""
    names = _column_names(X)
    X = as_dask_matrix(X)
    _check_width(machine, X.shape[1], "the Dask array")
    if names is not None and hasattr(machine, "feature_names_in_"):
        for name, expected in zip(names, machine.feature_names_in_, strict=True):
            if name != expected:
                raise BadInput(
                    f"the columns are not those that the machine was fitted on, in their order: {name!r} stands "
                    f"where {expected!r} stood"
                )
    return X


def _check_width(machine: GroupDiscoveryMachine, n_features: int, what: str, remedy: str = "") -> None:
    if n_features != machine.n_features_in_:
        raise BadInput(
            f"{what} has {n_features} features, but the machine was fitted on {machine.n_features_in_}{remedy}"
        )
