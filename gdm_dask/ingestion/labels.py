"""Labels: any two values become -1 and +1, and what became what is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask.errors import BadInput


def plain(value: Any) -> Any:
    """A label as a plain Python value that JSON can hold; whole floats become ints.

    >>> plain(np.float64(1.0)), plain(np.float32(0.5)), plain("spam")
    (1, 0.5, 'spam')
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def find_classes(labels: np.ndarray, where: str) -> list:
    """The two classes, in order; an error where there are not exactly two."""
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise BadInput(f"{where}: sample {int(np.flatnonzero(~np.isfinite(labels))[0])} has no label (NaN or infinity)")
    try:
        classes = [plain(value) for value in np.unique(labels)]
    except TypeError:
        raise BadInput(f"{where}: the labels mix types that cannot be ordered") from None
    if len(classes) == 1:
        raise BadInput(f"{where}: every sample has the label {classes[0]!r}: samples of a second class are needed")
    if len(classes) != 2:
        shown = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise BadInput(
            f"{where}: labels of {len(classes)} classes ({shown}), but two are needed: keep two of them, or set one "
            "against the rest"
        )
    return classes


def encode(labels: np.ndarray, classes: list, where: str, first_sample: int = 0) -> np.ndarray:
    """Labels as int8: -1 for the first class, +1 for the second.

    Examples
    --------
    >>> encode(np.array(["ham", "spam"]), ["ham", "spam"], "mails").tolist()
    [-1, 1]
    """
    negative, positive = (labels == value for value in classes)
    unknown = ~(negative | positive)
    if unknown.any():
        sample = int(np.flatnonzero(unknown)[0])
        raise BadInput(
            f"{where}: sample {first_sample + sample} has label {plain(labels[sample])!r}, but the classes are "
            f"{classes[0]!r} and {classes[1]!r}"
        )
    return np.where(positive, 1, -1).astype(np.int8)
