"""Values as whole numbers over a power of ten, where that is what they are: half the bytes of float64 to move about."""

# numba types the kernels:
# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from gdm_dask.words import kernel
from gdm_dask.work_space import work_space

#: Most decimal places that are tried; 10 to this power, and all whole numbers of 32 bits, are exact in float64.
MOST_PLACES = 9

_LARGEST = 2.0**31 - 1
_AT_ONCE = 512


def scaled(values: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Whole numbers and decimal places whose quotient ``whole / 10.0**places`` is every value, bit for bit.

    Text with a few decimal places is such: the parser makes its values by the same division.

    Returns
    -------
    (whole, places) or None
        `whole` is int32 and work space of this thread, good until its next call; `places` are the fewest possible. None
        where a value is not such a quotient, or is zero, which may have a sign.

    Examples
    --------
    >>> scaled(np.array([0.25, -1.5, 3.0]))
    (array([  25, -150,  300], dtype=int32), 2)
    >>> scaled(np.array([0.5, 1 / 3])), scaled(np.array([1e10]))
    (None, None)
    """
    whole = work_space("whole numbers", len(values), np.int32)
    for places in range(MOST_PLACES + 1):
        if _scale(values, 10.0**places, whole):
            return whole, places
    return None


@kernel
def _scale(values, scale, out):
    """Multiply and round; returns whether the quotients are the values again, soon where they are not."""
    for start in range(0, len(values), _AT_ONCE):
        exact = True
        for position in range(start, min(start + _AT_ONCE, len(values))):  # without a branch: several at once
            value = values[position]
            out[position] = np.int32(min(max(np.rint(value * scale), -_LARGEST), _LARGEST))
            exact &= (np.float64(out[position]) / scale == value) & (value != 0.0)
        if not exact:
            return False
    return True
