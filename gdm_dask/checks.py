"""Checks of what the estimator is handed: parameters and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from gdm_dask.errors import BadInput
from gdm_dask.matching import METHODS

if TYPE_CHECKING:
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.store import FeatureStore


def check_parameters(estimator: GroupDiscoveryMachine) -> None:
    """Refuse parameters that make no sense, by name."""

    def number(value: Any, kinds: tuple = (int, np.integer)) -> bool:
        return isinstance(value, kinds) and not isinstance(value, bool)

    real = (int, float, np.integer, np.floating)
    k = estimator.n_features_to_select
    if k is not None and not (number(k) and k >= 1):
        raise BadInput(f"n_features_to_select is None or a whole number from 1 on, not {k!r}")
    if not (number(estimator.tau, real) and 0 <= estimator.tau < 1):
        raise BadInput(f"tau lies in [0, 1), not {estimator.tau!r}")
    if not (number(estimator.C, real) and 0 < estimator.C < np.inf):
        raise BadInput(f"C is a positive number, not {estimator.C!r}")
    if not (estimator.cut_size == "auto" or (number(estimator.cut_size) and estimator.cut_size >= 1)):  # type: ignore[operator]
        raise BadInput(f"cut_size is 'auto' or a whole number from 1 on, not {estimator.cut_size!r}")
    if estimator.max_cuts is not None and not (number(estimator.max_cuts) and estimator.max_cuts >= 1):
        raise BadInput(f"max_cuts is None or a whole number from 1 on, not {estimator.max_cuts!r}")
    if not (number(estimator.tol, real) and estimator.tol >= 0):
        raise BadInput(f"tol is a number from 0 on, not {estimator.tol!r}")
    if estimator.n_workers is not None and not (number(estimator.n_workers) and estimator.n_workers >= 1):
        raise BadInput(f"n_workers is None or a whole number from 1 on, not {estimator.n_workers!r}")
    if estimator.matching not in METHODS:
        raise BadInput(f"matching is one of {', '.join(METHODS)}, not {estimator.matching!r}")


def encode_labels(y: Any, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """The two classes, and the labels as -1 and +1."""
    if y is None:
        raise BadInput("requires y to be passed, but the target y is None: labels of two classes are needed")
    y = column_or_1d(y)
    assert_all_finite(y, input_name="y")
    if len(y) != n_samples:
        raise BadInput(f"{len(y)} labels for {n_samples} samples")
    check_classification_targets(y)
    classes = np.unique(y)
    if type_of_target(y, input_name="y") != "binary" or len(classes) > 2:
        raise BadInput(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(y)}: labels of two classes are needed."
        )
    if len(classes) < 2:
        raise BadInput(f"y holds one class ({classes[0]!r}): two classes are needed")
    return classes, np.where(y == classes[1], 1.0, -1.0)


def two_classes(store: FeatureStore) -> np.ndarray:
    """The labels of a store as -1 and +1, where there are samples of both."""
    labels = store.labels.astype(np.float64)
    if len(np.unique(labels)) < 2:
        raise BadInput(f"{store.url} holds samples of one class only: two classes are needed")
    return labels
