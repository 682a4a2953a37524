"""A store returns exactly what was ingested, whatever the matrix, the blocks and the runs."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.store_helpers import assert_store_equals, some_labels
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gdm_dask
from gdm_dask.errors import BadInput

FINITE = {"allow_nan": False, "allow_infinity": False}
ELEMENTS = {
    "float64": st.floats(-1e100, 1e100, **FINITE),
    "float32": st.floats(-(2.0**100), 2.0**100, width=32, **FINITE),
    "int64": st.integers(-(2**53), 2**53),
    "int8": st.integers(-128, 127),
    "uint8": st.integers(0, 255),
    "bool": st.booleans(),
}


@st.composite
def matrices(draw):
    """A matrix of any kind and shape, with many zeros, empty and equal columns."""
    dtype = draw(st.sampled_from(sorted(ELEMENTS)))
    shape = (draw(st.integers(2, 9)), draw(st.integers(1, 9)))
    dense = draw(hnp.arrays(dtype, shape, elements=st.one_of(st.just(0), ELEMENTS[dtype])))
    for column in draw(st.lists(st.integers(0, shape[1] - 1), max_size=2)):
        dense[:, column] = 0 if draw(st.booleans()) else dense[:, 0]
    if draw(st.booleans()):
        dense[draw(st.integers(0, shape[0] - 1))] = 0
    return dense


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(
    dense=matrices(),
    form=st.sampled_from(["numpy", "csr", "csc", "coo"]),
    block_bytes=st.sampled_from([1, 30, 100, 1000, 64 << 20]),
    run_bytes=st.sampled_from([1, 20, 200, 1 << 20]),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
)
@example(np.ones((3, 4)), "csr", 1, 1, "lz4")
@example(np.array([[5e-324, 0.0], [0.0, 1e100]]), "csr", 1, 1, "none")
def test_any_matrix(dense, form, block_bytes, run_bytes, codec):
    matrix = dense if form == "numpy" else sp.coo_array(dense).asformat(form)
    labels = some_labels(len(dense))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store = gdm_dask.ingest(
            matrix, path, labels, block_bytes=block_bytes, run_bytes=run_bytes, codec=codec, scheduler="synchronous"
        )
        assert_store_equals(store, dense, labels)
        store.verify()
        assert list(Path(folder).iterdir()) == [path]


@pytest.mark.parametrize(
    ("values", "value_type"),
    [([1, 1], "one"), ([2, 255], "uint8"), ([0.5, -3], "float32"), ([0.1, 256], "float64"), ([-1, 1], "float32")],
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_narrowest_exact_type_is_stored(tmp_path, values, value_type, form):
    dense = np.array([[values[0], 0.0], [0.0, values[1]]])
    store = gdm_dask.ingest(form(dense), tmp_path / "s", [0, 1])
    expected = "uint8" if value_type == "one" and form is np.asarray else value_type
    assert store.manifest.value_type == expected
    assert store.manifest.kind == ("dense" if form is np.asarray else "sparse")
    assert_store_equals(store, dense)


def test_values_may_be_rounded_to_float32_on_request(tmp_path):
    matrix = sp.csr_array(np.array([[0.1, 1e-300], [3.0, 0.2]]))
    store = gdm_dask.ingest(matrix, tmp_path / "s", [0, 1], dtype="float32")
    assert store.manifest.value_type == "float32"
    assert_store_equals(store, matrix.astype(np.float32).toarray())  # 1e-300 becomes zero, so it is no longer a nonzero
    with pytest.raises(BadInput, match=r"1e\+300 is too large for float32.*float64"):
        gdm_dask.ingest(matrix * 1e301 * np.array([[1, 0]]), tmp_path / "t", [0, 1], dtype="float32")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_numbers_that_float64_cannot_hold_are_refused(tmp_path, form):
    with pytest.raises(BadInput, match="not exact in float64"):
        gdm_dask.ingest(form(np.array([[2**53 + 1, 0], [0, 1]])), tmp_path / "s", [0, 1])
    with pytest.raises(BadInput, match="not exact in float64"):
        gdm_dask.ingest(np.array([[np.longdouble(1) / 3, 0], [0, 1]]), tmp_path / "s", [0, 1])


def test_one_dense_feature_does_not_break_the_plan(tmp_path):
    rng = np.random.default_rng(0)
    matrix = sp.random_array((500, 300), density=0.01, rng=rng, format="lil")
    matrix[:, 123] = rng.random((500, 1)) + 1
    store = gdm_dask.ingest(sp.csr_array(matrix), tmp_path / "s", some_labels(500), block_bytes=1000)
    assert_store_equals(store, matrix)
    sizes = [entry.nbytes for entry in store.manifest.blocks]
    alone = [entry for entry in store.manifest.blocks if entry.nbytes > 1100]
    assert len(sizes) > 10
    assert [(entry.start, entry.stop) for entry in alone] == [(123, 124)]


def test_rows_are_read_in_any_order_and_twice(tmp_path):
    dense = np.arange(40.0).reshape(4, 10)
    for form in (np.asarray, sp.csr_array):
        store = gdm_dask.ingest(form(dense), tmp_path / form.__name__, some_labels(4), block_bytes=100)
        np.testing.assert_array_equal(store.read_rows([9, 0, 9, 3]).toarray(), dense.T[[9, 0, 9, 3]])
        assert store.read_rows([]).shape == (0, 4)
        for wrong in ([10], [-1], [0.5]):
            with pytest.raises(BadInput, match="feature"):
                store.read_rows(wrong)


def test_a_large_store_is_not_put_together(tmp_path):
    store = gdm_dask.ingest(sp.eye_array(50, format="csr"), tmp_path / "s", some_labels(50))
    with pytest.raises(BadInput, match=r"needs .*kB.*more than the limit of 1 kB.*read_block"):
        store.to_scipy(memory_limit=1000)
