"""Read eight bytes of text at a time in compiled kernels: count the leading digits of a word, and parse them."""

# numba types the kernels:
# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from gdm_dask.system.jit import inlined, intrinsic

# In numba, mixing signed and unsigned integers makes floats, and a signed index costs a wrap-around check per byte.
# So the kernels count in uint64, with constants of that type.
U = np.uint64

#: Bytes of a word.
WORD = U(8)
_ZEROS, _ABOVE_NINE, _HIGH_BITS = U(0x3030303030303030), U(0x7676767676767676), U(0x8080808080808080)
_PAIRS = U(0x000000FF000000FF)
_ABOVE_BLANKS = U(0x2121212121212121)


@intrinsic
def word_at(typing_context, text, place):
    """Load the word at any place of the text, first byte lowest; all of it must lie within the text."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(text, types.uint64), generate


@intrinsic
def _trailing_zeros(typing_context, word):
    """Return the number of trailing zero bits, 64 if all bits are zero."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@inlined
def leading_digits(word):
    """Return the number of leading digits of the word, 0 to 8, and their value."""
    digits = word ^ _ZEROS
    n_digits = _trailing_zeros((digits + _ABOVE_NINE | digits) & _HIGH_BITS) >> U(3)
    if n_digits == U(0):
        return n_digits, U(0)
    digits <<= U(64) - (n_digits << U(3))  # pad with leading zeros to eight digits
    pairs = digits * U(10) + (digits >> U(8))  # in every second byte
    pairs = (pairs & _PAIRS) * U(0x000F424000000064) + (pairs >> U(16) & _PAIRS) * U(0x0000271000000001)
    return n_digits, pairs >> U(32)


@inlined
def leading_token(word):
    """Return the number of leading bytes above a blank, 0 to 8."""
    return _trailing_zeros((word - _ABOVE_BLANKS) & ~word & _HIGH_BITS) >> U(3)
