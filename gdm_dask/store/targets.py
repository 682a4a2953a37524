"""Targets: how labels and numbers to predict become outputs of the machine, and decision values become predictions.

An output is a row of float64, one value per sample. No other module knows what a label means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gdm_dask.errors import BadInput

#: Whole numbers with more distinct values than this are numbers, unless the task says that they are classes.
MAX_INFERRED_CLASSES = 100
TASKS = (None, "classification", "regression")


class Target(Protocol):
    """What a machine predicts: `TwoClasses`, `Classes` or `Numbers`.

    ``encode(y)`` is ``outputs(pack(y))``; stores keep ``pack(y)``.
    """

    @property
    def n_outputs(self) -> int:
        """K, the outputs of the machine."""

    def encode(self, y: Any, where: str = "y") -> np.ndarray:
        """Targets as outputs, (K, n) float64."""
        return self.outputs(self.pack(y, where))

    def decode(self, F: np.ndarray) -> np.ndarray:
        """Predictions from decision values of shape (K, n)."""

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Quality of decision values of shape (K, n); None where a measure is not defined."""

    def members(self, Y: np.ndarray) -> np.ndarray:
        """Which samples belong to which class, (classes, n) bool, from outputs; one row for numbers."""

    def pack(self, y: Any, where: str = "y", first_sample: int = 0) -> np.ndarray:
        """Targets as a store keeps them: class codes (n,), or numbers (n, K)."""

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Targets as they were given; undoes `pack`."""

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """Packed targets as outputs, (K, n) float64."""

    def problem_of(self, packed: np.ndarray, n_samples: int) -> str | None:
        """Why an array cannot be packed targets of so many samples; None where it can."""

    def to_json(self) -> dict[str, Any]:
        """As plain values, for manifests and models; `target_from_json` undoes it."""


@dataclass(frozen=True)
class _Labels(Target):
    """Targets that are one of some classes, in sorted order."""

    classes: tuple[Any, ...]

    def pack(self, y: Any, where: str = "y", first_sample: int = 0) -> np.ndarray:
        """The code of each sample's class: its position in `classes`, in the narrowest unsigned type."""
        y = as_values(y, where, first_sample)
        if y.ndim != 1:
            raise BadInput(f"{where}: labels must have shape (n_samples,), got {y.shape}")
        known = np.array(self.classes)
        codes = np.zeros(len(y), np.int64)
        unknown = np.ones(len(y), bool)
        if (known.dtype.kind == "U") == (y.dtype.kind == "U"):
            codes = np.minimum(np.searchsorted(known, y), len(known) - 1)
            unknown = known[codes] != y
        if unknown.any():
            sample = int(np.flatnonzero(unknown)[0])
            raise BadInput(
                f"{where}: sample {first_sample + sample} has label {_plain(y[sample])!r}, but the classes are "
                f"{_listed(self.classes)}"
            )
        return codes.astype(np.min_scalar_type(len(known) - 1))

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The label of each sample."""
        labels: np.ndarray = np.array(self.classes)[packed]
        return labels

    def problem_of(self, packed: np.ndarray, n_samples: int) -> str | None:
        """Class codes are small whole numbers, one per sample."""
        if packed.shape != (n_samples,) or packed.dtype.kind != "u":
            return "there is not one class code per sample"
        if len(packed) and packed.max() >= len(self.classes):
            return "a class code is out of range"
        return None

    def to_json(self) -> dict[str, Any]:
        """Kind and classes."""
        return {"kind": "classes", "classes": list(self.classes)}

    def _accuracies(self, codes: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
        """Accuracy, and its mean over the classes that occur."""
        counts = np.bincount(codes, minlength=len(self.classes))
        right = np.bincount(codes[codes == predicted], minlength=len(self.classes))
        return float(np.mean(codes == predicted)), float(np.mean(right[counts > 0] / counts[counts > 0]))


@dataclass(frozen=True)
class TwoClasses(_Labels):
    """Labels of two classes: one output, -1 for the first class and +1 for the second.

    Examples
    --------
    >>> target = TwoClasses(("ham", "spam"))
    >>> target.encode(["spam", "ham"]).tolist(), target.decode(np.array([[0.3, -2.0]])).tolist()
    ([[1.0, -1.0]], ['spam', 'ham'])
    """

    @property
    def n_outputs(self) -> int:
        """One."""
        return 1

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """-1 and +1, from class codes."""
        return np.where(packed > 0, 1.0, -1.0)[None]

    def decode(self, F: np.ndarray) -> np.ndarray:
        """The second class where the decision value is positive."""
        return self.unpack((F[0] > 0).astype(np.int64))

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Accuracy; where both classes occur also balanced accuracy, AUC, and average precision of the second class."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        codes = self.pack(y)
        accuracy, balanced = self._accuracies(codes, F[0] > 0)
        both = len(np.unique(codes)) == 2
        return {
            "accuracy": accuracy,
            "balanced_accuracy": balanced if both else None,
            "auc": float(roc_auc_score(codes, F[0])) if both else None,
            "average_precision": float(average_precision_score(codes, F[0])) if both else None,
        }

    def members(self, Y: np.ndarray) -> np.ndarray:
        """Samples of the first and of the second class."""
        return np.stack([Y[0] < 0, Y[0] > 0])


@dataclass(frozen=True)
class Classes(_Labels):
    """Labels of several classes: one output per class, +1 for its samples and -1 for the rest.

    Examples
    --------
    >>> target = Classes((1, 2, 5))
    >>> target.encode([5, 1]).tolist(), target.decode(np.array([[0.3, 0.1], [0.2, 0.5], [-1.0, 0.5]])).tolist()
    ([[-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]], [1, 2])
    """

    @property
    def n_outputs(self) -> int:
        """One per class."""
        return len(self.classes)

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """-1 and +1, one row per class, from class codes."""
        return np.where(packed == np.arange(len(self.classes))[:, None], 1.0, -1.0)

    def decode(self, F: np.ndarray) -> np.ndarray:
        """The class with the largest decision value; of equal ones the first."""
        return self.unpack(np.argmax(F, axis=0))

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Accuracy, and its mean over the classes that occur."""
        accuracy, balanced = self._accuracies(self.pack(y), np.argmax(F, axis=0))
        return {"accuracy": accuracy, "balanced_accuracy": balanced}

    def members(self, Y: np.ndarray) -> np.ndarray:
        """Samples of each class."""
        inside: np.ndarray = Y > 0
        return inside


@dataclass(frozen=True)
class Numbers(Target):
    """Numbers to predict, one or several per sample: each output has mean 0 and standard deviation 1.

    Examples
    --------
    >>> target = Numbers.of([1.0, 3.0])
    >>> target.encode([1.0, 3.0, 4.0]).tolist(), target.decode(np.array([[-1.0, 0.5]])).tolist()
    ([[-1.0, 1.0, 2.0]], [1.0, 2.5])
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def of(cls, y: Any, where: str = "y") -> Numbers:
        """Means and standard deviations of targets; refuses a constant output."""
        values = _columns(y, where, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            means, scales = values.mean(axis=0), values.std(axis=0)
        for output, scale in enumerate(scales):
            column = f" in column {output}" if len(scales) > 1 else ""
            if not np.isfinite(scale):
                raise BadInput(f"{where}: the numbers{column} are too large")
            if scale < np.finfo(float).tiny or (values[:, output] == values[0, output]).all():
                raise BadInput(f"{where}: every sample has the number {float(values[0, output])!r}{column}")
        return cls(tuple(means.tolist()), tuple(scales.tolist()))

    @property
    def n_outputs(self) -> int:
        """One per number of a sample."""
        return len(self.means)

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """Standardised numbers, one row per output."""
        return np.ascontiguousarray(((packed - np.array(self.means)) / np.array(self.scales)).T)

    def decode(self, F: np.ndarray) -> np.ndarray:
        """Numbers in their own units: (n,) for one output, (n, K) for several."""
        return self.unpack((F * np.array(self.scales)[:, None] + np.array(self.means)[:, None]).T)

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """R2 and root mean squared error, means over the outputs; R2 only where every output varies."""
        truth = self.pack(y)
        errors = np.mean((truth - self.decode(F).reshape(truth.shape)) ** 2, axis=0)
        variances = truth.var(axis=0)
        r2 = float(np.mean(1 - errors / variances)) if (variances > 0).all() else None
        return {"r2": r2, "rmse": float(np.mean(np.sqrt(errors)))}

    def members(self, Y: np.ndarray) -> np.ndarray:
        """All samples, as one class."""
        return np.ones((1, Y.shape[1]), bool)

    def pack(self, y: Any, where: str = "y", first_sample: int = 0) -> np.ndarray:
        """Numbers as float64 of shape (n, K)."""
        values = _columns(y, where, first_sample)
        if values.shape[1] != len(self.means):
            raise BadInput(f"{where}: expected {len(self.means)} numbers per sample, got {values.shape[1]}")
        return values

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Shape (n,) for one output, (n, K) for several."""
        return packed[:, 0] if len(self.means) == 1 else packed

    def problem_of(self, packed: np.ndarray, n_samples: int) -> str | None:
        """Finite numbers, as many per sample as there are outputs."""
        if packed.shape != (n_samples, len(self.means)) or packed.dtype != np.float64:
            return "there are not as many numbers per sample as outputs"
        return None if np.isfinite(packed).all() else "a number is not finite"

    def to_json(self) -> dict[str, Any]:
        """Kind, means and scales."""
        return {"kind": "numbers", "means": list(self.means), "scales": list(self.scales)}


def infer_target(y: Any, task: str | None = None, where: str = "y") -> Target:
    """The target of given labels or numbers.

    Text, booleans and whole numbers with few distinct values are classes; so are any two values. Other numbers, and
    several numbers per sample, are numbers.

    `task` ("classification" or "regression") decides where it is given; `where` names the data in messages.

    Examples
    --------
    >>> infer_target([3, 1, 3]), infer_target(["a", "b", "c"] * 2), infer_target([0.5, 2.5, 0.5, 1.0]).n_outputs
    (TwoClasses(classes=(1, 3)), Classes(classes=('a', 'b', 'c')), 1)
    """
    y = as_values(y, where)
    distinct = np.unique(y)
    if are_numbers(distinct, y.shape, task, where):
        return Numbers.of(y, where)
    return target_of_classes(distinct, len(y), where)


def are_numbers(distinct: np.ndarray, shape: tuple[int, ...], task: str | None, where: str) -> bool:
    """Whether targets of a shape with these distinct values are numbers, and not classes; see `infer_target`."""
    if task not in TASKS:
        raise BadInput(f"`task` must be None, 'classification' or 'regression', got {task!r}")
    if task == "regression":
        _refuse_text(distinct, where)
        return True
    if task == "classification" or distinct.dtype.kind in "Ub" or len(distinct) <= 2:
        if len(shape) > 1:
            raise BadInput(f"{where}: labels must have shape (n_samples,), got {shape}")
        return False
    few = len(distinct) <= min(MAX_INFERRED_CLASSES, shape[0] // 2)
    return len(shape) > 1 or not few or bool((distinct != np.floor(distinct)).any())


def target_of_classes(distinct: np.ndarray, n_samples: int, where: str) -> TwoClasses | Classes:
    """The target of sorted labels; refuses fewer than two of them, and one for each sample."""
    classes = tuple(_plain(value) for value in distinct)
    if len(classes) == 0:
        raise BadInput(f"{where}: there are no labels")
    if len(classes) == 1:
        raise BadInput(f"{where}: every sample has the label {classes[0]!r}: there must be two classes")
    if len(classes) == 2:
        return TwoClasses(classes)
    if len(classes) >= n_samples:
        raise BadInput(
            f"{where}: there are {len(classes)} classes for {n_samples} samples: {_listed(classes)}. Give samples of "
            "the same class the same label; for numbers pass task='regression' (--task regression)."
        )
    return Classes(classes)


def target_from_json(document: Any) -> Target:
    """Undo `Target.to_json`; raises `BadInput` for anything else."""
    try:
        kind = document["kind"]
        if kind == "numbers":
            numbers = Numbers(tuple(map(float, document["means"])), tuple(map(float, document["scales"])))
            alike = len(numbers.means) == len(numbers.scales) > 0
            if alike and min(numbers.scales) > 0 and np.isfinite([*numbers.means, *numbers.scales]).all():
                return numbers
        elif kind == "classes":
            classes = tuple(document["classes"])
            values = np.array(classes)
            n_text = sum(isinstance(value, str) for value in classes)
            plain = values.dtype.kind in "biufU" and values.ndim == 1 and n_text in (0, len(classes))
            if plain and np.array_equal(np.unique(values), values) and len(classes) >= 2:
                return TwoClasses(classes) if len(classes) == 2 else Classes(classes)
    except (TypeError, KeyError, ValueError, OverflowError):
        pass
    raise BadInput(f"not a target: {str(document)[:100]}")


def as_values(y: Any, where: str, first_sample: int = 0) -> np.ndarray:
    """Targets as an array of booleans, whole numbers, float64 or text, (n,) or (n, K); refuses missing values."""
    values = np.asarray(y)
    if values.dtype.kind in "OT":
        values = _of_one_type(values, where)
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
        finite = np.isfinite(values) if values.ndim < 2 else np.isfinite(values).all(axis=1)
        if not finite.all():
            sample = first_sample + int(np.flatnonzero(~finite)[0])
            raise BadInput(f"{where}: sample {sample} has no label (NaN or infinity)")
    if values.dtype.kind not in "biufU":
        raise BadInput(f"{where}: labels must be numbers, text or booleans, got {values.dtype}")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise BadInput(f"{where}: labels must have shape (n_samples,) or (n_samples, n_outputs), got {values.shape}")
    return values


def _of_one_type(values: np.ndarray, where: str) -> np.ndarray:
    """Objects as text, booleans or numbers, where all of them are."""
    found = {type(value) for value in values.flat}
    for types, dtype in (((str,), np.str_), ((bool, np.bool_), np.bool_), ((int, np.integer), np.int64),
                         ((int, float, np.integer, np.floating), np.float64)):  # fmt: skip
        if found and all(issubclass(one, types) and (one is not bool or bool in types) for one in found):
            return values.astype(dtype)
    names = ", ".join(sorted(one.__name__ for one in found)[:3])
    raise BadInput(f"{where}: labels must be all text, all numbers or all booleans, got {names or 'none'}")


def _refuse_text(values: np.ndarray, where: str) -> None:
    if values.dtype.kind == "U":
        raise BadInput(f"{where}: regression needs numbers, got text such as {str(values.flat[0])!r}")


def _columns(y: Any, where: str, first_sample: int) -> np.ndarray:
    """Numbers as float64 of shape (n, K)."""
    values = as_values(y, where, first_sample)
    _refuse_text(values, where)
    return np.ascontiguousarray(values.astype(np.float64).reshape(len(values), -1))


def _plain(value: Any) -> Any:
    """A label as a Python value that JSON can hold; whole floats become ints."""
    value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _listed(classes: tuple[Any, ...]) -> str:
    """Classes in a message: two as a pair, of many the first few."""
    if len(classes) == 2:
        return f"{classes[0]!r} and {classes[1]!r}"
    return ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
