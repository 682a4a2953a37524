"""Value types of a store: the narrowest one that holds every value exactly."""

from __future__ import annotations

import numpy as np
from numba import njit

#: From narrow to wide; each holds all values of those before it. "one" needs no stored values at all.
VALUE_TYPES = ("one", "uint8", "float32", "float64")


def dtype_of(value_type: str) -> np.dtype:
    """NumPy type that holds values of a value type in memory."""
    return np.dtype("uint8" if value_type == "one" else value_type)


def widest(value_types: list[str]) -> str:
    """The value type that holds the values of all of these.

    >>> widest(["one", "float32", "uint8"])
    'float32'
    """
    return max(value_types, key=VALUE_TYPES.index, default="one")


def narrowest(values: np.ndarray) -> str:
    """Value type for these values, without loss.

    Examples
    --------
    >>> narrowest(np.ones(3)), narrowest(np.array([3.0, 255.0])), narrowest(np.array([0.5])), narrowest(np.array([0.1]))
    ('one', 'uint8', 'float32', 'float64')
    """
    if values.dtype == np.bool_:
        return "one" if values.all() else "uint8"
    if values.dtype.kind not in "fiu":
        raise TypeError(f"values of type {values.dtype} are not numbers")
    flat = values.reshape(-1)
    if flat.dtype not in (np.float64, np.float32):
        flat = flat.astype(np.float64)
    return VALUE_TYPES[_narrowest(flat)]


@njit(cache=True, nogil=True)
def _narrowest(values):  # type: ignore[no-untyped-def]
    level = 0
    for value in values:
        if level == 0 and value != 1.0:
            level = 1
        if level == 1 and not (value >= 0.0 and value <= 255.0 and value == np.floor(value)):
            level = 2
        if level == 2 and np.float64(np.float32(value)) != value:
            return 3
    return level
