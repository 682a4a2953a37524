"""Words of text: the beginning of eight bytes."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from gdm_dask.ingestion.sources.words import leading_digits, word_at


@njit
def at(text, place):
    return leading_digits(word_at(text, np.uint64(place)))


@given(
    st.text("0123456789", max_size=8).map(str.encode),
    st.binary(min_size=8, max_size=8),
    st.binary(max_size=9),
)
def test_leading_digits_of_any_bytes(digits, after, before):
    text = before + digits + after
    expected = re.match(rb"[0-9]{0,8}", text[len(before) :]).group()
    n_digits, number = at(np.frombuffer(text, np.uint8), len(before))
    assert (n_digits, number) == (len(expected), int(expected or b"0"))
