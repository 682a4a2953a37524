"""Sorting nonzeros by feature, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.instances import many, seeds
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.ingestion.sorting import sort_by_feature

#: Sizes that cover all code paths: one digit and several, keys of 32 and of 64 bits.
features_and_samples = st.tuples(
    st.sampled_from([1, 3, 2**11, 10**5, 2**22 + 1, 10**8, 2**32 - 1]),
    st.sampled_from([1, 100, 2**16, 2**16 + 1, 2**32]),
)
value_types = st.sampled_from([None, np.int32, np.float32, np.float64])
lengths = st.sampled_from([0, 1, 60, 1_000, 30_000])


@many(200)
@given(features_and_samples, lengths, value_types, seeds)
def test_as_a_stable_sort_does(counts: tuple[int, int], length: int, value_type: type | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = (counts[0] * rng.random(length) ** 3).astype(np.uint32)  # some have many nonzeros, most have few
    samples = rng.integers(0, counts[1], length, np.uint32)
    values = None if value_type is None else (1e8 * rng.normal(size=length)).astype(value_type)
    found, pointers, moved_samples, moved_values = sort_by_feature(features, samples, values)
    order = np.argsort(features, kind="stable")
    expected, n_nonzeros = np.unique(features, return_counts=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.diff(pointers.astype(np.int64)), n_nonzeros)
    np.testing.assert_array_equal(moved_samples, samples[order])
    if values is not None and moved_values is not None:
        np.testing.assert_array_equal(moved_values, values[order])
        assert moved_values.dtype == values.dtype
    else:
        assert values is moved_values is None


@pytest.mark.parametrize(("last_sample", "narrowest"), [(2**16 - 1, np.uint16), (2**16, np.uint32)])
def test_samples_take_no_more_bytes_than_they_need(last_sample: int, narrowest: type) -> None:
    samples = np.array([last_sample, 0], np.uint32)
    assert sort_by_feature(np.array([1, 0], np.uint32), samples, None)[2].dtype == narrowest
