"""Means, norms and counts against a slow reference in long double."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.features.moments import dense_moments, sparse_moments


def reference(rows):
    """Mean and norm of each row, in long double."""
    rows = rows.astype(np.longdouble)
    means = rows.mean(axis=1)
    return means, np.sqrt(((rows - means[:, None]) ** 2).sum(axis=1))


def both(rows):
    """Moments of dense rows, and of the same rows compressed."""
    matrix = sp.csr_array(rows)
    return dense_moments(rows), sparse_moments(matrix.indptr.astype(np.uint32), matrix.data, rows.shape[1])


@settings(max_examples=200)
@given(hnp.arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(-1e6, 1e6, width=32)))
def test_moments(rows):
    means, norms = reference(rows)
    size = np.abs(rows).max(axis=1) + 1e-300
    for found_means, found_norms in both(rows):
        assert (np.abs(found_means - means) <= 1e-14 * size).all()
        assert (np.abs(found_norms - norms) <= 1e-12 * size * np.sqrt(rows.shape[1])).all()


def test_large_mean_and_small_deviation():
    rng = np.random.default_rng(0)
    rows = 1e6 + rng.standard_normal((5, 10_000))
    means, norms = reference(rows)
    for found_means, found_norms in both(rows):
        np.testing.assert_allclose(found_means, means.astype(float), rtol=1e-15)
        np.testing.assert_allclose(found_norms, norms.astype(float), rtol=1e-10)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1, 255, 1.0, 1e300, 1e-300, -7.3])
@pytest.mark.parametrize("n_samples", [1, 2, 3, 1000, 99_999])
def test_constant_features_have_norm_zero(value, n_samples):
    for means, norms in both(np.full((2, n_samples), value)):
        np.testing.assert_allclose(means, value, rtol=1e-14)
        assert norms.tolist() == [0, 0]


def test_features_of_ones():
    rows = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1.0]])
    pointers = np.concatenate([[0], np.cumsum(rows.sum(axis=1))]).astype(np.uint32)
    for means, norms in (sparse_moments(pointers, None, 4), *both(rows)):
        np.testing.assert_allclose(means, [0.5, 0, 1])
        np.testing.assert_allclose(norms, [1, 0, 0])


def test_squares_neither_vanish_nor_overflow():
    rows = np.array([[1e-200, 0, 0], [1e200, -1e200, 1e200], [5e-324, 0, 0]])
    means, norms = reference(rows)
    for found_means, found_norms in both(rows):
        np.testing.assert_allclose(found_norms[:2], norms[:2].astype(float))
        np.testing.assert_allclose(found_means[:2], means[:2].astype(float))
        assert found_norms[2] > 0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_store_keeps_them(tmp_path, form):
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((200, 30)) * (rng.random((200, 30)) < 0.3)
    dense[:, 4], dense[:, 5] = 0.3, 0
    store = gdm_dask.ingest(form(dense), tmp_path / "s", rng.choice([0, 1], 200), block_bytes=3000)
    means, norms = reference(dense.T)
    np.testing.assert_allclose(store.means, means.astype(float), rtol=1e-13, atol=1e-17)
    np.testing.assert_allclose(store.norms, norms.astype(float), rtol=1e-13, atol=1e-15)
    assert store.norms[[4, 5]].tolist() == [0, 0]
    assert store.counts.tolist() == np.count_nonzero(dense, axis=0).tolist()
    block = store.load_block(1)
    np.testing.assert_array_equal(block.means, store.means[block.start : block.stop])
    np.testing.assert_array_equal(block.counts(), store.counts[block.start : block.stop])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_norm_beyond_float64_is_refused(tmp_path, form):
    dense = np.zeros((4, 3))
    dense[:, 2] = [1.7e308, -1.7e308, 1.7e308, -1.7e308]
    with pytest.raises(BadInput, match=r"feature 2 .*scale"):
        gdm_dask.ingest(form(dense), tmp_path / "s", [0, 1, 0, 1])
    assert list(tmp_path.iterdir()) == []


def test_whole_numbers_over_a_power_of_ten_are_the_same_to_the_bit():
    rng = np.random.default_rng(0)
    whole = rng.integers(-(10**6), 10**6, 3000).astype(np.int32)
    pointers = np.array([0, 1, 1, 1000, 3000], np.uint32)
    found, expected = sparse_moments(pointers, whole, 5000, 1e6), sparse_moments(pointers, whole / 1e6, 5000)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]
