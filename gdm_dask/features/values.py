"""Values of a store: the narrowest type that holds every value exactly, or int32 over a power of ten.

Values with a few decimals, as in text, become integers over a power of ten: half the bytes of float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gdm_dask.errors import BadInput, BadValue
from gdm_dask.system.jit import inlined, intrinsic, kernel

#: From narrow to wide; each type holds all values of the types before it. "one" needs no stored values at all.
VALUE_TYPES = ("one", "uint8", "float32", "float64")

#: Integers up to this size are exact in float64.
LARGEST_EXACT = 2**53

#: Largest number of decimals tried; 10 to this power, and all 32-bit integers, are exact in float64.
MOST_DECIMALS = 9

_LARGEST = 2.0**31 - 1
_MINUS_ZERO = np.int64(-(2**63))  # the bits of -0.0
_AT_ONCE = 512
_NOWHERE = np.empty(0, np.int32)


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
        raise BadValue(
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
        raise BadValue(f"values of type {values.dtype} are not real numbers: convert them first")
    floats = values.astype(np.float64)
    if values.dtype.kind == "f":
        exact = values.dtype.itemsize <= 8 or bool((floats == values).all())
    else:
        exact = values.dtype.itemsize < 8 or values.size == 0
        exact = exact or max(int(values.max()), -int(values.min())) <= LARGEST_EXACT
    if not exact:
        raise BadValue(
            f"some {values.dtype} values are not exact in float64: convert them first, or leave them out if they are "
            "identifiers"
        )
    return floats


def as_array(values: Any, where: str) -> np.ndarray:
    """Return values as an array; refuse masked ones, because the array would hold what the mask hides.

    >>> as_array(np.ma.array([1, 2]), "y")
    array([1, 2])
    """
    if np.ma.is_masked(values):
        raise BadInput(f"{where} has masked values: fill them in first, with its `filled` method")
    return np.asarray(values)


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


@intrinsic
def _multiply_add(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    """Compute ``a * b + c``, rounded once."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@inlined
def number(raw, power, inverse):  # type: ignore[no-untyped-def]
    """Return the number a stored value stands for, in kernels: the value itself, divided by `power` if there is one.

    The quotient of a 32-bit integer and a power up to ``10.0**MOST_DECIMALS`` is computed from products with the
    `inverse`, which takes less time than reading float64 values. A correction step makes it right to the last bit; this
    was verified for all of these numbers.
    """
    if power is None:
        return np.float64(raw)
    whole = np.float64(raw)
    near = whole * inverse
    return _multiply_add(_multiply_add(-near, power, whole), inverse, near)


def fewest_decimals(values: np.ndarray) -> int | None:
    """Return the fewest decimals with which every value is, bit for bit, ``whole / 10.0**decimals`` with int32 numbers.

    Text with a few decimals gives such values: the parser computes them by the same division.

    Parameters
    ----------
    values : ndarray of float64, contiguous

    Returns
    -------
    int or None
        None if a value is not such a quotient; -0.0 is not.

    Examples
    --------
    >>> fewest_decimals(np.array([0.25, -1.5, 3.0])), fewest_decimals(np.array([0.5, 1 / 3]))
    (2, None)
    """
    return next((decimals for decimals in range(MOST_DECIMALS + 1) if to_whole(values, decimals, _NOWHERE)), None)


def try_whole(values: np.ndarray, out: np.ndarray) -> int | None:
    """Return `fewest_decimals` of values and write the integers to `out`, in one pass over most values.

    Examples
    --------
    >>> out = np.empty(3, np.int32)
    >>> try_whole(np.array([0.25, -1.5, 3.0]), out), out
    (2, array([  25, -150,  300], dtype=int32))
    """
    decimals = fewest_decimals(values[:_AT_ONCE])  # a lower bound for all values
    while decimals is not None and not to_whole(values, decimals, out):
        decimals = decimals + 1 if decimals < MOST_DECIMALS else None
    return decimals


def to_whole(values: np.ndarray, decimals: int, out: np.ndarray) -> bool:
    """Write the integers of values with `decimals` decimals; return whether all values have such integers."""
    flat = values.reshape(-1)
    return bool(_to_whole(flat, flat.view(np.int64), 10.0**decimals, out))


def shorten(whole: np.ndarray, decimals: int) -> int:
    """Return the fewest decimals of the values ``whole / 10.0**decimals``; replace `whole` by the integers for them.

    Examples
    --------
    >>> whole = np.array([2500, -100], np.int32)
    >>> shorten(whole, 4), whole
    (2, array([25, -1], dtype=int32))
    """
    while decimals > 0 and _end_with_zero(whole):
        whole //= 10
        decimals -= 1
    return decimals


@kernel
def _to_whole(values, bits, scale, out):  # type: ignore[no-untyped-def]
    """Write the integers to `out`, if given; return whether the integers over `scale` equal the values.

    Stop early if they do not.
    """
    is_wanted = len(out) > 0
    for start in range(0, len(values), _AT_ONCE):
        exact = True
        for position in range(start, min(start + _AT_ONCE, len(values))):  # no branch: vectorised by the compiler
            value = values[position]
            whole = min(max(np.rint(value * scale), -_LARGEST), _LARGEST)
            exact &= (whole / scale == value) & (bits[position] != _MINUS_ZERO)
            if is_wanted:
                out[position] = np.int32(whole)
        if not exact:
            return False
    return True


@kernel
def _end_with_zero(whole):  # type: ignore[no-untyped-def]
    position = 0
    while position < len(whole) and whole[position] % 10 == 0:
        position += 1
    return position == len(whole)


@kernel
def from_whole(whole, power, out):  # type: ignore[no-untyped-def]
    """Write the numbers that integers over a power of ten stand for; both arrays are vectors."""
    inverse = 1.0 / power
    for position in range(len(whole)):
        out[position] = number(whole[position], power, inverse)
