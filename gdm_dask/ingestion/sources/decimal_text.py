"""Parse decimal numbers to the nearest float64, in a compiled kernel without the GIL.

Every value is bit-equal to ``float(text)``:

1. up to 15 digits and 22 decimal places: one exact division or product of two exact floats;
2. otherwise a 128-bit product with bounds on its error, used if the whole interval rounds to one float;
3. otherwise (ties, denormals, overflow: a handful per file) the kernel returns a NaN that carries the token's place,
   and Python's own ``float`` converts the token. Text can never yield a NaN by itself.
"""

# numba types the kernels:
# mypy: allow-untyped-defs, no-check-untyped-defs

from __future__ import annotations

import numpy as np

from gdm_dask.ingestion.sources.words import WORD, U, leading_digits, word_at
from gdm_dask.system.jit import inlined, inner

_0, _1, _2, _6, _8, _10, _16, _32, _48, _BYTE = (U(n) for n in (0, 1, 2, 6, 8, 10, 16, 32, 48, 255))
_DOT, _PLUS, _MINUS, _E, _BLANK = (np.uint8(ord(c)) for c in ".+-e ")

_MAX_DIGITS = U(19)  # any 19 digits fit into 64 bits
UNSETTLED = U(0x7FF8 << 48)  # a quiet NaN; its low 51 bits hold the token's place in the text
PLACE = U(2**51 - 1)
GIVEN_UP = U(2**64 - 1)
INDEX_LIMIT = U(2**32 - 1)


def _power_of_ten(q: int) -> tuple[int, int]:
    """Round 5**q down to a 128-bit fraction with its top bit set; return it and floor(log2(10**q))."""
    power = 5 ** abs(q)
    length = power.bit_length()
    if q < 0:
        return (1 << (length + 127)) // power, q - length
    return power << 128 >> length, q + length - 1


_LOWEST, _HIGHEST = -342, 308  # beyond these, 19 digits make zero or infinity
_POWERS = [_power_of_ten(q) for q in range(_LOWEST, _HIGHEST + 1)]
_POWER_HIGH = np.array([power >> 64 for power, _ in _POWERS], dtype=np.uint64)
_POWER_LOW = np.array([power & (2**64 - 1) for power, _ in _POWERS], dtype=np.uint64)
_POWER_LOG2 = np.array([log2 for _, log2 in _POWERS], dtype=np.int64)
_EXACT_POWERS = np.array([float(10**q) for q in range(23)])  # 10**22 is the last exact one
_WHOLE_POWERS = np.array([10**q for q in range(15)], dtype=np.uint64)
LONGEST_SHORT = WORD + WORD + _1  #: Bytes that a short number may look at.


@inner
def _multiply(a, b):
    """Return the high and low 64 bits of the product of two uint64."""
    mask = U(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> _32, a & mask, b >> _32, b & mask
    middle = a_high * b_low + (a_low * b_low >> _32)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> _32) + (other >> _32), a * b


@inner
def _nearest(mantissa, q, cut):
    """Return the bits of the float64 nearest to mantissa * 10**q, or 0 if 128 bits do not decide or it is not normal.

    With `cut`, the mantissa consists of the first 19 of more digits: the number is below (mantissa + 1) * 10**q.
    """
    if q < _LOWEST or q > _HIGHEST:
        return _0
    shift = 0
    while mantissa < U(1 << 48):
        mantissa <<= U(16)
        shift += 16
    while mantissa < U(1 << 63):
        mantissa <<= _1
        shift += 1
    high, low = _multiply(mantissa, _POWER_HIGH[q - _LOWEST])
    top = high >> U(63)
    exponent = 63 + np.int64(top) - shift + _POWER_LOG2[q - _LOWEST] + 1023
    if exponent < 1 or exponent > 2045:
        return _0
    drop = _10 + top
    half = _1 << (drop - _1)
    rest = high & ((_1 << drop) - _1)
    # The scaled number lies in [high:low, high:low + 1:0), because the low half of the power is still missing; a
    # cut mantissa (19 digits, so shift <= 4) adds less than 16:0. That matters only just below `half`.
    if half - (U(18) if cut else U(2)) <= rest <= half:
        if cut:
            return _0
        carry, _ = _multiply(mantissa, _POWER_LOW[q - _LOWEST])
        low += carry
        rest += _1 if low < carry else _0
        # Now it lies in [high:low, high:low + 2): the bits below `low` are less than 1, and so is the power's error.
        if (rest == half and low == _0) or (rest == half - _1 and low >= U(2**64 - 2)):
            return _0
    # The mantissa's own top bit adds the missing 1 to the exponent, and a carry out of it one more.
    return (U(exponent - 1) << U(52)) + (high >> drop) + (_1 if rest >= half else _0)


@inner
def first_digits(text, p):
    """Return the first 19 significant digits of the decimal at p, and the number of digits after them."""
    mantissa, taken, left = _0, _0, 0
    while True:
        digit = U(text[p]) - _48
        if digit < _10:
            if taken < _MAX_DIGITS:
                mantissa = mantissa * _10 + digit
                taken += _1 if mantissa > _0 else _0
            else:
                left += 1
        elif text[p] != _DOT:
            return mantissa, left
        p += _1


@inner
def index_at(text, start):
    """Return the integer at `start`, INDEX_LIMIT if it is larger, and the place after it."""
    if start + WORD <= U(text.size):
        n_digits, index = leading_digits(word_at(text, start))
        if n_digits < WORD:
            return index, start + n_digits
    p, index = start, _0
    while U(text[p]) - _48 < _10:
        index = index * _10 + U(text[p]) - _48
        p += _1
    if p - start > _10:  # possible overflow, or leading zeros
        index, left = first_digits(text, start)
        index = INDEX_LIMIT if left > 0 else index
    return index, p


@inner
def _general_number(text, start, first, p, mantissa, q, digits, origin):
    """Finish a number whose digits end at p: exponent, many digits, rounding."""
    if text[p] | np.uint8(32) == _E:
        p += _1
        down = text[p] == _MINUS
        if down or text[p] == _PLUS:
            p += _1
        if U(text[p]) - _48 >= _10:
            return 0.0, start
        power = 0
        while U(text[p]) - _48 < _10:
            power = min(power * 10 + np.int64(text[p]) - 48, 1 << 52)  # no text has enough digits to offset more
            p += _1
        q += -power if down else power
    left = 0
    if digits > _MAX_DIGITS:
        mantissa, left = first_digits(text, first)
        q += left
    if mantissa == _0:
        value = 0.0
    elif mantissa <= U(1 << 53) and -22 <= q <= 22:
        value = np.float64(np.int64(mantissa))
        value = value / _EXACT_POWERS[U(-q)] if q < 0 else value * _EXACT_POWERS[U(q)]
    else:
        bits = _nearest(mantissa, q, left > 0)
        if bits == _0:
            return U(UNSETTLED | (origin + start)).view(np.float64), p
        value = U(bits).view(np.float64)
    return -value if text[start] == _MINUS else value, p


@inlined
def short_number(text, p):
    """Parse a number of one digit, optionally with a dot and at most 14 more, and return the place after it, else p.

    Most numbers in large files have this form, and reading words is faster than reading digits.
    """
    word = word_at(text, p)
    whole, second = (word & _BYTE) - _48, word >> _8 & _BYTE
    if whole >= _10:
        return 0.0, p
    if second <= U(_BLANK):
        return np.float64(np.int64(whole)), p + _1
    if second != U(_DOT):
        return 0.0, p
    n_digits, fraction = leading_digits(word >> _16)
    if n_digits == _6 and text[p + _8] > _BLANK:
        n_more, more = leading_digits(word_at(text, p + _8))
        n_digits += n_more
        fraction = fraction * _WHOLE_POWERS[n_more] + more
    end = p + _2 + n_digits
    if text[end] > _BLANK:
        return 0.0, p
    return np.float64(np.int64(whole * _WHOLE_POWERS[n_digits] + fraction)) / _EXACT_POWERS[n_digits], end


@inner
def number(text, p, origin, general):
    """Return the decimal number at p and the place after it; p itself if there is no number.

    If `general` is None, code for numbers with an exponent or many digits is not compiled: the place after such a
    number is `GIVEN_UP`.
    """
    start = p
    if p + LONGEST_SHORT <= U(text.size):
        value, p = short_number(text, p)
        if p > start:
            return value, p
    if text[p] == _MINUS or text[p] == _PLUS:
        p += _1
    first = p
    mantissa, behind_dot = _0, _0
    while True:
        digit = U(text[p]) - _48
        if digit < _10:
            mantissa = mantissa * _10 + digit
        elif text[p] == _DOT and behind_dot == _0:
            behind_dot = p + _1
        else:
            break
        p += _1
    fraction = p - behind_dot if behind_dot > _0 else _0
    digits = p - first - (_1 if behind_dot > _0 else _0)
    if digits == _0:
        return 0.0, start
    if digits > U(15) or text[p] | np.uint8(32) == _E:
        if general is None:
            return 0.0, GIVEN_UP
        return _general_number(text, start, first, p, mantissa, -np.int64(fraction), digits, origin)
    value = np.float64(np.int64(mantissa)) / _EXACT_POWERS[fraction]
    return -value if text[start] == _MINUS else value, p
