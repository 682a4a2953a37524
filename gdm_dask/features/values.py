"""Value types of a store: the narrowest type that holds every value exactly."""

from __future__ import annotations

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.system.jit import kernel

#: From narrow to wide; each type holds all values of the types before it. "one" needs no stored values at all.
VALUE_TYPES = ("one", "uint8", "float32", "float64")

#: Integers up to this size are exact in float64.
_EXACT = 2**53


def dtype_of(value_type: str) -> np.dtype:
    """Return the NumPy type that holds values of a value type in memory."""
    return np.dtype("uint8" if value_type == "one" else value_type)


def widest(value_types: list[str]) -> str:
    """Return the value type that holds the values of all of these types.

    >>> widest(["one", "float32", "uint8"])
    'float32'
    """
    return max(value_types, key=VALUE_TYPES.index, default="one")


def narrowest(values: np.ndarray) -> str:
    """Return the narrowest value type that holds these values exactly.

    Examples
    --------
    >>> narrowest(np.ones(3)), narrowest(np.array([3.0, 255.0])), narrowest(np.array([0.5])), narrowest(np.array([0.1]))
    ('one', 'uint8', 'float32', 'float64')
    """
    if values.dtype == np.bool_ or values.dtype == np.uint8:
        return "one" if (values == 1).all() else "uint8"
    return VALUE_TYPES[_narrowest(as_floats(values).reshape(-1))]


def narrowed(values: np.ndarray, limit: str | None) -> tuple[str, np.ndarray]:
    """Return the value type of these values and the values in it; they are rounded only if `limit` is narrower.

    Examples
    --------
    >>> narrowed(np.array([0.1]), None), narrowed(np.array([0.1]), "float32")
    (('float64', array([0.1])), ('float32', array([0.1], dtype=float32)))
    """
    kind = narrowest(values)
    if limit is None or VALUE_TYPES.index(kind) <= VALUE_TYPES.index(limit):
        return kind, values.astype(dtype_of(kind), copy=False)
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype_of(limit))
    if np.isinf(rounded).any():
        raise BadInput(
            f"{values[np.isinf(rounded)][0]:g} is too large for {limit}: store the values as float64 (or auto), "
            "or scale them first"
        )
    return limit, rounded


def as_floats(values: np.ndarray) -> np.ndarray:
    """Convert numbers to float32 or float64; refuse numbers that would change.

    >>> as_floats(np.array([1, 2]))
    array([1., 2.])
    """
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype.kind not in "biuf":
        raise BadInput(f"values of type {values.dtype} are not real numbers: convert them first")
    floats = values.astype(np.float64)
    if values.dtype.kind == "f":
        exact = values.dtype.itemsize <= 8 or bool((floats == values).all())
    else:
        exact = values.dtype.itemsize < 8 or values.size == 0 or max(int(values.max()), -int(values.min())) <= _EXACT
    if not exact:
        raise BadInput(
            f"some {values.dtype} values are not exact in float64: convert them first, or leave them out if they are "
            "identifiers"
        )
    return floats


@kernel
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
