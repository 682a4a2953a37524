"""Values as whole numbers over a power of ten, where that is what they are: half the bytes of float64 to move about."""

# numba types the kernels:
# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from gdm_dask.words import kernel

#: Most decimal places that are tried; 10 to this power, and all whole numbers of 32 bits, are exact in float64.
MOST_PLACES = 9

_LARGEST = 2.0**31 - 1
_AT_ONCE = 512


def decimal_places(values: np.ndarray, known: int | None = None) -> int | None:
    """Fewest decimal places with which every value is, bit for bit, ``whole / 10.0**places`` with int32 numbers.

    Text with a few decimal places is such: the parser makes its values by the same division.

    Parameters
    ----------
    values : ndarray of float64, contiguous
    known : int, optional
        So many are known to suffice; then it is found at once that fewer do not.

    Returns
    -------
    int or None
        None where a value is not such a quotient, for which there is no -0.0.

    Examples
    --------
    >>> decimal_places(np.array([0.25, -1.5, 3.0])), decimal_places(np.array([0.5, 1 / 3]))
    (2, None)
    """
    flat = values.reshape(-1)
    most = MOST_PLACES + 1 if known is None else known
    return next((places for places in range(most) if _are_whole(flat, 10.0**places)), known)


def to_whole(values: np.ndarray, places: int, out: np.ndarray) -> np.ndarray:
    """The whole numbers, of values that have so many decimal places.

    Examples
    --------
    >>> to_whole(np.array([0.25, -1.5, 3.0]), 2, np.empty(3, np.int32))
    array([  25, -150,  300], dtype=int32)
    """
    _to_whole(values.reshape(-1), 10.0**places, out)
    return out


def from_whole(whole: np.ndarray, places: int, out: np.ndarray) -> None:
    """Undo `to_whole`; `out` is contiguous."""
    _from_whole(whole, 10.0**places, out.reshape(-1))


@kernel
def _are_whole(values, scale):
    """Whether the values are whole numbers over `scale`; returns soon where they are not."""
    for start in range(0, len(values), _AT_ONCE):
        exact = True
        for position in range(start, min(start + _AT_ONCE, len(values))):  # without a branch: several at once
            value = values[position]
            whole = np.rint(value * scale)
            exact &= (whole / scale == value) & (abs(whole) <= _LARGEST) & ((value != 0.0) | (1.0 / value > 0.0))
        if not exact:
            return False
    return True


@kernel
def _to_whole(values, scale, out):
    for position in range(len(values)):
        out[position] = np.int32(np.rint(values[position] * scale))


@kernel
def _from_whole(whole, scale, out):
    for position in range(len(whole)):
        out[position] = whole[position] / scale
