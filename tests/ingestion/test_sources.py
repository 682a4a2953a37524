"""Every kind of source gives the same store as the matrix it holds."""

import bz2
import gzip
import lzma

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from helpers.store_helpers import assert_store_equals, chunks_below, some_labels, some_matrix, write_svmlight
from sklearn.datasets import load_svmlight_file

import gdm_dask
from gdm_dask.errors import BadInput

MATRIX = some_matrix()
LABELS = some_labels(60)
SMALL = {"block_bytes": 500, "run_bytes": 400}
OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@pytest.mark.parametrize("kind", ["float", "ones", "counts", "float32"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_scipy(tmp_path, form, kind):
    matrix = some_matrix(kind=kind)
    store = gdm_dask.ingest(matrix.asformat(form), tmp_path / "s", LABELS, **SMALL)
    assert_store_equals(store, matrix, LABELS)


def test_scipy_with_duplicates_unsorted_indices_and_zeros(tmp_path):
    rows, columns, values = [0, 0, 1, 1, 1], [1, 1, 2, 0, 1], [1.0, 2.0, 0.0, 4.0, 5.0]
    matrix = sp.coo_array((values, (rows, columns)), shape=(2, 3))
    unsorted = sp.csr_array(([3.0, 5.0, 4.0, 0.0], [1, 1, 0, 2], [0, 1, 4]), shape=(2, 3))
    for number, given in enumerate((matrix, unsorted, sp.csr_matrix(unsorted))):
        store = gdm_dask.ingest(given, tmp_path / str(number), [0, 1])
        assert_store_equals(store, matrix.toarray())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32", "uint8", "bool", ">f8"])
def test_numpy_and_npy(tmp_path, dtype, order):
    dense = np.asarray(some_matrix(kind="counts").toarray(), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", dense)
    for name, source in (("array", dense), ("file", tmp_path / "x.npy")):
        assert_store_equals(gdm_dask.ingest(source, tmp_path / name, LABELS, **SMALL), dense.astype(float), LABELS)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_dense_zarr(tmp_path, zarr_format):
    dense = MATRIX.toarray()
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=dense.shape, chunks=(7, 9), dtype="float64", zarr_format=zarr_format
    )
    array[:] = dense
    assert_store_equals(gdm_dask.ingest(tmp_path / "x.zarr", tmp_path / "s", LABELS, **SMALL), dense, LABELS)


def test_dask_arrays(tmp_path):
    dense = MATRIX.toarray()
    chunked = da.from_array(dense, chunks=(17, 11))
    store = gdm_dask.ingest(chunked, tmp_path / "dense", da.from_array(LABELS, chunks=7), **SMALL)
    assert_store_equals(store, dense, LABELS)
    blocks = chunked.rechunk({1: -1}).map_blocks(sp.csr_matrix, dtype=float, meta=sp.csr_matrix((0, 0)))
    store = gdm_dask.ingest(blocks, tmp_path / "sparse", LABELS, **SMALL)
    assert store.is_sparse
    assert_store_equals(store, dense, LABELS)
    for shape, missing in {(0, 5): "samples", (3, 0): "features"}.items():
        with pytest.raises(BadInput, match=f"there are no {missing}"):
            gdm_dask.ingest(da.zeros(shape), tmp_path / "empty.zarr")
    unknown = dd.from_pandas(pd.DataFrame(dense), npartitions=3).to_dask_array()
    with pytest.raises(BadInput, match="compute_chunk_sizes"):
        gdm_dask.ingest(unknown, tmp_path / "unknown", LABELS)


def test_data_frames(tmp_path):
    dense = MATRIX.toarray()
    names = [f"column {number}" for number in range(40)]
    frame = pd.DataFrame(dense, columns=names)
    frame["column 0"] = frame["column 0"] > 0
    frame["column 1"] = (frame["column 1"] * 10).round().astype(int)
    expected = frame.to_numpy(dtype=float)
    frame["column 2"] = pd.array(frame["column 2"], dtype="Float64")
    sources = {
        "pandas": frame,
        "sparse": frame.astype(float).astype(pd.SparseDtype(float, 0.0)),
        "dask": dd.from_pandas(frame, npartitions=4),
    }
    for kind, source in sources.items():
        store = gdm_dask.ingest(source, tmp_path / kind, pd.Series(LABELS), **SMALL)
        assert_store_equals(store, expected, LABELS)
        assert store.feature_names == names
        assert store.sample_ids is None
        assert store.is_sparse == (kind == "sparse")
    indexed = frame.set_axis([f"mail {number}" for number in range(60)])
    store = gdm_dask.ingest(indexed, tmp_path / "indexed", LABELS, **SMALL)
    assert store.sample_ids == list(indexed.index)
    for wrong, message in ((frame.assign(text="x"), "'text'.*numbers"), (frame.assign(when=pd.Timestamp(0)), "'when'")):
        with pytest.raises(BadInput, match=message):
            gdm_dask.ingest(wrong, tmp_path / "wrong", LABELS)
    frame.loc[7, "column 2"] = pd.NA
    with pytest.raises(BadInput, match=r"sample 7, feature 2 .*NaN"):
        gdm_dask.ingest(frame, tmp_path / "wrong", LABELS)


@pytest.mark.parametrize("suffix", OPENERS)
@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_text(tmp_path, suffix, zero_based):
    plain = write_svmlight(tmp_path / "plain.svm", MATRIX, LABELS, zero_based)
    path = tmp_path / f"x.svm{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(plain.read_bytes())
    expected, labels = load_svmlight_file(str(plain), zero_based=zero_based, n_features=40)
    store = gdm_dask.ingest(path, tmp_path / "s", index_base=0 if zero_based else 1, **SMALL)
    assert_store_equals(store, expected, labels)
    assert store.manifest.provenance["source"] == {"format": "svmlight", "files": [str(path)]}


def test_several_files_are_one_set(tmp_path):
    paths = []
    for number, (start, stop) in enumerate([(0, 20), (20, 21), (21, 60)]):
        path = write_svmlight(tmp_path / f"{number}.svm", MATRIX[start:stop], LABELS[start:stop])
        if number == 1:
            path.with_suffix(".svm.gz").write_bytes(gzip.compress(path.read_bytes()))
            path = path.with_suffix(".svm.gz")
        paths.append(path)
    assert_store_equals(gdm_dask.ingest(paths, tmp_path / "s", **SMALL), MATRIX, LABELS)


def test_text_with_comments_qid_blank_lines_crlf_and_no_last_newline(tmp_path):
    path = tmp_path / "x.svm"
    path.write_bytes(
        b"# a comment\r\n+1 qid:3 1:0.5 3:2 # more\r\n\r\n-1 2:1e-3\r\n\n   \n-1 qid:4 1:.25 4:0\n# end\n+1 4:17\n-1"
    )
    matrix, labels = load_svmlight_file(str(path), n_features=4)
    for run_bytes in range(1, 60, 7):
        store = gdm_dask.ingest(path, tmp_path / f"{run_bytes}", run_bytes=run_bytes * 10)
        assert_store_equals(store, matrix, labels)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
def test_npz(tmp_path, form, compressed):
    matrix = MATRIX.asformat(form)
    sp.save_npz(tmp_path / "x.npz", matrix, compressed=compressed)
    assert_store_equals(gdm_dask.ingest(tmp_path / "x.npz", tmp_path / "s", LABELS, **SMALL), MATRIX, LABELS)


def test_npz_with_its_labels(tmp_path):
    parts = {name: getattr(MATRIX, name) for name in ("indices", "indptr", "data")}
    np.savez(tmp_path / "x.npz", format=b"csr", shape=MATRIX.shape, y=LABELS, **parts)
    assert_store_equals(gdm_dask.ingest(tmp_path / "x.npz", tmp_path / "s"), MATRIX, LABELS)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market(tmp_path, field, suffix):
    matrix = some_matrix(kind={"real": "float", "integer": "counts", "pattern": "ones"}[field])
    scipy.io.mmwrite(tmp_path / "x.mtx", matrix, field=field, precision=17, comment="made by a test")
    path = tmp_path / f"x.mtx{suffix}"
    if suffix:
        with OPENERS[suffix](path, "wb") as file:
            file.write((tmp_path / "x.mtx").read_bytes())
    expected = scipy.io.mmread(tmp_path / "x.mtx")
    store = gdm_dask.ingest(path, tmp_path / "s", LABELS, **SMALL)
    assert_store_equals(store, expected.toarray(), LABELS)
    assert store.manifest.value_type == {"real": "float64", "integer": "uint8", "pattern": "one"}[field]


@pytest.mark.parametrize("form", ["npy", "text", "list"])
@pytest.mark.parametrize("labels", [LABELS, np.where(LABELS > 0, "spam", "ham")])
def test_labels_of_matrix_files(tmp_path, form, labels):
    sp.save_npz(tmp_path / "x.npz", MATRIX)
    given = labels.tolist() if form == "list" else tmp_path / f"y.{form}"
    if form == "npy":
        np.save(given, labels)
    elif form == "text":
        given.write_text("\n".join(map(str, labels)) + "\n")
    store = gdm_dask.ingest(tmp_path / "x.npz", tmp_path / "s", given)
    assert_store_equals(store, MATRIX, labels)


def test_runs_do_not_show_in_the_store(tmp_path):
    path = write_svmlight(tmp_path / "x.svm", MATRIX, LABELS)
    expected = None
    for run_bytes in (1 << 20, 3000, 500):
        gdm_dask.ingest(path, tmp_path / "s", run_bytes=run_bytes, block_bytes=500, overwrite=True)
        found = chunks_below(tmp_path / "s")
        expected = expected or found
        assert found == expected
