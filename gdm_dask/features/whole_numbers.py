"""Values stored as int32 over a power of ten, if they allow it: half the bytes of float64."""

# numba types the kernels:
# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import types

from gdm_dask.system.jit import inlined, intrinsic, kernel

#: Largest number of decimals tried; 10 to this power, and all 32-bit integers, are exact in float64.
MOST_DECIMALS = 9

_LARGEST = 2.0**31 - 1
_MINUS_ZERO = np.int64(-(2**63))  # the bits of -0.0
_AT_ONCE = 512
_NOWHERE = np.empty(0, np.int32)


@intrinsic
def _multiply_add(typing_context, a, b, c):
    """Compute ``a * b + c``, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@inlined
def number(raw, power, inverse):
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


def from_whole(whole: np.ndarray, decimals: int, out: np.ndarray) -> None:
    """Undo `to_whole`; `out` must be contiguous."""
    _from_whole(whole, 10.0**decimals, out.reshape(-1))


@kernel
def _to_whole(values, bits, scale, out):
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
def _end_with_zero(whole):
    position = 0
    while position < len(whole) and whole[position] % 10 == 0:
        position += 1
    return position == len(whole)


@kernel
def _from_whole(whole, power, out):
    inverse = 1.0 / power
    for position in range(len(whole)):
        out[position] = number(whole[position], power, inverse)
