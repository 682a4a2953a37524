"""Sample weights: check the given weights and multiply them by class weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.values import as_array

#: Least and greatest sum of sample weights: beyond them, sums of squares in the master problem leave float64.
LEAST_TOTAL, MOST_TOTAL = 1e-60, 1e30


def sample_weights(
    sample_weight: Any,
    class_weight: Mapping[Any, float] | str | None,
    classes: np.ndarray,
    codes: np.ndarray,
    samples: np.ndarray | None = None,
) -> np.ndarray | None:
    """Combine sample weights and class weights; None if all are 1.

    Classes missing from a dict have weight 1; "balanced" gives all classes the same total weight and keeps the sum over
    all samples. `codes` are the positions of the samples' classes in `classes`, which is empty if numbers are
    predicted. `samples` are the samples whose weights are wanted, by default all.

    Examples
    --------
    >>> sample_weights(None, "balanced", np.array(["no", "yes"]), np.array([0, 0, 0, 1])).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    >>> sample_weights([1, 1, 2, 0.5], {"yes": 3}, np.array(["no", "yes"]), np.array([0, 0, 0, 1])).tolist()
    [1.0, 1.0, 2.0, 1.5]
    """
    if sample_weight is None and class_weight is None:
        return None
    weights = np.ones(len(codes)) if sample_weight is None else check_weights(sample_weight, len(codes))
    if samples is not None:
        weights, codes = weights[samples], codes[samples]
    if not len(classes):
        return weights
    if class_weight is not None:
        weights = weights * _of_classes(class_weight, classes, np.bincount(codes, weights, len(classes)))[codes]
    given = "`sample_weight`" if class_weight is None else "`sample_weight` times `class_weight`"
    empty = classes[np.bincount(codes, weights, len(classes)) == 0].tolist()
    if empty:
        raise BadInput(f"{given} must be positive for a sample of each class, but all are zero in class {empty[0]!r}")
    _check_total(weights, given)
    return weights


def check_weights(sample_weight: Any, n_samples: int, where: str = "`sample_weight`") -> np.ndarray:
    """Return weights as float64; refuse negative and infinite ones, and zeros only."""
    try:
        weights = np.array(as_array(sample_weight, where), np.float64)
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where} must hold numbers: {error}") from error
    if weights.shape != (n_samples,):
        raise BadInput(f"{where} must have shape ({n_samples},), one for each sample, got {weights.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise BadInput(f"{where} must be finite and >= 0, got {weights[wrong[0]]} for sample {wrong[0]}")
    if not weights.any():
        raise BadInput(f"{where} must be positive for at least one sample, got zeros only")
    _check_total(weights, where)
    return weights


def _check_total(weights: np.ndarray, where: str) -> None:
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not LEAST_TOTAL <= total <= MOST_TOTAL:
        raise BadInput(
            f"{where} must have a sum from {LEAST_TOTAL:g} to {MOST_TOTAL:g}, got {total:g}: divide by the mean weight"
        )


def _of_classes(class_weight: Mapping[Any, float] | str, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the weight of each class; `totals` holds the total sample weight of each class."""
    if isinstance(class_weight, str):
        share = totals.sum() / len(classes)
        return np.array([share / total if total > 0 else 0.0 for total in totals])
    known = classes.tolist()
    strange = [label for label in class_weight if label not in known]
    if strange:
        raise BadInput(f"`class_weight` must name classes among {known}, got {strange[0]!r}")
    return np.array([float(class_weight.get(label, 1.0)) for label in known])


def is_class_weight(value: Any) -> bool:
    """Return whether the value is a valid `class_weight` of an estimator."""
    if isinstance(value, Mapping):
        numbers = [weight for weight in value.values() if isinstance(weight, int | float | np.integer | np.floating)]
        return len(numbers) == len(value) and all(0 <= weight < np.inf for weight in numbers)
    return value is None or (isinstance(value, str) and value == "balanced")
