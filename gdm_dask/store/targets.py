"""Targets: encode labels and numbers as outputs of the machine, and decode decision values as predictions.

An output is a row of float64, one value per sample. No other module knows what a label means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.values import as_array

#: Integers with more distinct values than this are numbers, unless the task is classification.
MAX_INFERRED_CLASSES = 100
TASKS = (None, "classification", "regression")


class Target(Protocol):
    """Target of a machine: `TwoClasses`, `Classes`, or `Numbers` in `gdm_dask.store.numbers`.

    ``encode(y)`` is ``outputs(pack(y))``; stores keep ``pack(y)``.
    """

    @property
    def kind(self) -> str:
        """Kind of the outputs: "two classes", "classes" or "numbers"."""

    @property
    def n_outputs(self) -> int:
        """K, the number of outputs of the machine."""

    def encode(self, y: Any, where: str = "y") -> np.ndarray:
        """Return targets as outputs, (K, n) float64."""
        return self.outputs(self.pack(y, where))

    def decode(self, F: np.ndarray) -> np.ndarray:
        """Return predictions from decision values of shape (K, n)."""

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Return quality measures of decision values of shape (K, n); None if a measure is undefined."""

    def weighed(self, Y: np.ndarray, weights: np.ndarray) -> tuple[Target, np.ndarray]:
        """Return the target and its outputs (K, n) for weighted samples; classes do not depend on weights."""
        return self, Y

    def in_units(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[Target, np.ndarray, np.ndarray]:
        """Convert a linear model of the outputs to the units of the targets; also return the target in these units.

        Classes have no units.
        """
        return self, coef, intercept

    def score(self, Y: np.ndarray, F: np.ndarray) -> float:
        """Return the accuracy, or R2, of decision values against outputs, both of shape (K, n)."""

    def sides(self, weights: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return the names of all sides, and the side favoured by each feature with weights (K, k), as positions."""

    def members(self, Y: np.ndarray) -> np.ndarray:
        """Return the samples of each class, (classes, n) bool, from outputs; one row for numbers."""

    def pack(self, y: Any, where: str = "y", first_sample: int = 0) -> np.ndarray:
        """Return targets in stored form: class codes (n,), or numbers (n, K)."""

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Return targets in the form given by the user; undo `pack`."""

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """Return packed targets as outputs, (K, n) float64."""

    def problem_of(self, packed: np.ndarray, n_samples: int) -> str | None:
        """Return why an array cannot be the packed targets of `n_samples` samples, or None if it can."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for manifests and models; `target_from_json` undoes it."""


@dataclass(frozen=True)
class _Labels(Target):
    """Targets that are class labels; the classes are sorted."""

    classes: tuple[Any, ...]

    def pack(self, y: Any, where: str = "y", first_sample: int = 0) -> np.ndarray:
        """Return the code of each sample's class, its position in `classes`, in the narrowest unsigned type."""
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
        """Return the label of each sample."""
        labels: np.ndarray = np.array(self.classes)[packed]
        return labels

    def problem_of(self, packed: np.ndarray, n_samples: int) -> str | None:
        """Require class codes: small integers, one per sample."""
        if packed.shape != (n_samples,) or packed.dtype.kind != "u":
            return "there is not one class code per sample"
        if len(packed) and packed.max() >= len(self.classes):
            return "a class code is out of range"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return kind and classes."""
        return {"kind": "classes", "classes": list(self.classes)}

    def codes_of(self, F: np.ndarray) -> np.ndarray:
        """Return the code of the class that each column of outputs, decision values or weights speaks for."""
        raise NotImplementedError

    def decode(self, F: np.ndarray) -> np.ndarray:
        """Return the label of the class that the decision values speak for."""
        return self.unpack(self.codes_of(F))

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Return the accuracy, and the balanced accuracy over the classes that occur."""
        codes, predicted = self.pack(y), self.codes_of(F)
        counts = np.bincount(codes, minlength=len(self.classes))
        right = np.bincount(codes[codes == predicted], minlength=len(self.classes))
        balanced = float(np.mean(right[counts > 0] / counts[counts > 0]))
        return {"accuracy": float(np.mean(codes == predicted)), "balanced_accuracy": balanced}

    def score(self, Y: np.ndarray, F: np.ndarray) -> float:
        """Return the share of samples whose class is right."""
        return float(np.mean(self.codes_of(F) == self.codes_of(Y)))

    def sides(self, weights: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return the classes, and the one that the weights of each feature speak for."""
        return [str(name) for name in self.classes], self.codes_of(weights)

    def members(self, Y: np.ndarray) -> np.ndarray:
        """Return the samples of each class."""
        inside: np.ndarray = self.codes_of(Y) == np.arange(len(self.classes))[:, None]
        return inside


@dataclass(frozen=True)
class TwoClasses(_Labels):
    """Labels of two classes: one output, -1 for the first class and +1 for the second.

    Examples
    --------
    >>> target = TwoClasses(("ham", "spam"))
    >>> target.encode(["spam", "ham"]).tolist(), target.decode(np.array([[0.3, -2.0]])).tolist()
    ([[1.0, -1.0]], ['spam', 'ham'])
    """

    kind: ClassVar[str] = "two classes"

    @property
    def n_outputs(self) -> int:
        """One."""
        return 1

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """Return -1 and +1, from class codes."""
        return np.where(packed > 0, 1.0, -1.0)[None]

    def codes_of(self, F: np.ndarray) -> np.ndarray:
        """Return the second class where the value is positive, otherwise the first."""
        codes: np.ndarray = (F[0] > 0).astype(np.int64)
        return codes

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Return the accuracy; if both classes occur, also balanced accuracy, AUC, average precision (2nd class)."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        codes, found = self.pack(y), super().measures(y, F)
        if len(np.unique(codes)) < 2:
            return found | dict.fromkeys(("balanced_accuracy", "auc", "average_precision"))
        auc, precision = roc_auc_score(codes, F[0]), average_precision_score(codes, F[0])
        return found | {"auc": float(auc), "average_precision": float(precision)}


@dataclass(frozen=True)
class Classes(_Labels):
    """Labels of several classes: one output per class, +1 for its samples and -1 for the rest.

    Examples
    --------
    >>> target = Classes((1, 2, 5))
    >>> target.encode([5, 1]).tolist(), target.decode(np.array([[0.3, 0.1], [0.2, 0.5], [-1.0, 0.5]])).tolist()
    ([[-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]], [1, 2])
    """

    kind: ClassVar[str] = "classes"

    @property
    def n_outputs(self) -> int:
        """One per class."""
        return len(self.classes)

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """Return -1 and +1, one row per class, from class codes."""
        return np.where(packed == np.arange(len(self.classes))[:, None], 1.0, -1.0)

    def codes_of(self, F: np.ndarray) -> np.ndarray:
        """Return the class with the largest value; the first of equal ones."""
        codes: np.ndarray = np.argmax(F, axis=0)
        return codes


def infer_target(y: Any, task: str | None = None, where: str = "y") -> Target:
    """Infer the target from labels or numbers.

    Text, booleans and integers with few distinct values are classes; so are any two values. Other numbers, and several
    numbers per sample, are regression targets.

    `task` ("classification" or "regression") overrides the inference; `where` names the data in messages.

    Examples
    --------
    >>> infer_target([3, 1, 3]), infer_target(["a", "b", "c"] * 2), infer_target([0.5, 2.5, 0.5, 1.0]).n_outputs
    (TwoClasses(classes=(1, 3)), Classes(classes=('a', 'b', 'c')), 1)
    """
    from gdm_dask.store.numbers import Numbers  # imported here because that module imports this one

    y = as_values(y, where)
    distinct = np.unique(y)
    if are_numbers(distinct, y.shape, task, where):
        return Numbers.of(y, where)
    return target_of_classes(distinct, len(y), where)


def are_numbers(distinct: np.ndarray, shape: tuple[int, ...], task: str | None, where: str) -> bool:
    """Return whether targets with this shape and these distinct values are numbers; see `infer_target`."""
    if task not in TASKS:
        raise BadInput(f"`task` must be None, 'classification' or 'regression', got {task!r}")
    if task == "regression":
        refuse_text(distinct, where)
        return True
    if task == "classification" or distinct.dtype.kind in "Ub" or len(distinct) <= 2:
        if len(shape) > 1:
            raise BadInput(
                f"{where}: labels must have shape (n_samples,), got {shape}: choose one column, of a table as in "
                "--target cells.csv:cell_type"
            )
        return False
    few = len(distinct) <= min(MAX_INFERRED_CLASSES, shape[0] // 2)
    return len(shape) > 1 or not few or bool((distinct != np.floor(distinct)).any())


def target_of_classes(distinct: np.ndarray, n_samples: int, where: str) -> TwoClasses | Classes:
    """Return the target of sorted labels; refuse fewer than two labels, and as many labels as samples."""
    classes = tuple(_plain(value) for value in distinct)
    if len(classes) == 0:
        raise BadInput(f"{where}: there are no labels")
    if len(classes) == 1:
        raise BadInput(f"{where}: every sample has the label {classes[0]!r}: there must be two classes")
    if distinct.dtype.kind == "u" and np.array(classes).dtype.kind == "f":
        raise BadInput(f"{where}: labels such as {classes[-1]} are too large beside {classes[0]}: write them as text")
    if len(classes) == 2:
        return TwoClasses(classes)
    if len(classes) >= n_samples:
        raise BadInput(
            f"{where}: there are {len(classes)} classes for {n_samples} samples: {_listed(classes)}. Give samples of "
            "the same class the same label; for numbers pass task='regression' (--task regression), "
            "or use GroupDiscoveryRegressor."
        )
    return Classes(classes)


def target_from_json(document: Any) -> Target:
    """Undo `Target.to_json`; raise `BadInput` for anything else."""
    from gdm_dask.store.numbers import Numbers

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
    """Return targets as booleans, integers, float64 or text, (n,) or (n, K); refuse missing values."""
    values = as_array(y, where)
    if values.dtype.kind in "OT":
        values = _of_one_type(values.astype(object), where)
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
        finite = np.isfinite(values) if values.ndim < 2 else np.isfinite(values).all(axis=1)
        if not finite.all():
            sample = first_sample + int(np.flatnonzero(~finite)[0])
            raise BadInput(
                f"{where}: sample {sample} has no label (NaN or infinity): fill it in, or leave the sample out"
            )
    if values.dtype.kind not in "biufU":
        raise BadInput(f"{where}: labels must be numbers, text or booleans, got {values.dtype}")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise BadInput(f"{where}: labels must have shape (n_samples,) or (n_samples, n_outputs), got {values.shape}")
    return values


def _of_one_type(values: np.ndarray, where: str) -> np.ndarray:
    """Convert objects to text, booleans or numbers if all of them have that type."""
    found = {type(value) for value in values.flat}
    for types, dtype in (((str,), np.str_), ((bool, np.bool_), np.bool_), ((int, np.integer), np.int64),
                         ((int, float, np.integer, np.floating), np.float64)):  # fmt: skip
        if found and all(issubclass(one, types) and (one is not bool or bool in types) for one in found):
            try:
                return values.astype(dtype)
            except OverflowError as error:
                remedy = "write labels as text, and numbers as float"
                raise BadInput(f"{where}: an integer is too large: {remedy}") from error
    names = ", ".join(sorted(one.__name__ for one in found)[:3])
    raise BadInput(f"{where}: labels must be all text, all numbers or all booleans, got {names or 'none'}")


def refuse_text(values: np.ndarray, where: str) -> None:
    """Refuse text where numbers are needed."""
    if values.dtype.kind == "U":
        raise BadInput(f"{where}: regression needs numbers, got text such as {str(values.flat[0])!r}")


def _plain(value: Any) -> Any:
    """Return a label as a Python value for JSON; integral floats become ints."""
    value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _listed(classes: tuple[Any, ...]) -> str:
    """Format classes for a message: two as a pair, only the first few of many."""
    if len(classes) == 2:
        return f"{classes[0]!r} and {classes[1]!r}"
    return ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
