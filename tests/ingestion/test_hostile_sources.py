"""Untrusted files become a store, or an error that names them: no crash, no excessive memory."""

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.fuzz import FUZZ, changed_bytes
from helpers.store_helpers import some_matrix
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import mmwrite

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.pipeline.readers import _load_arrays

SMALL = some_matrix(8, 10)


def npz(form):
    buffer = io.BytesIO()
    sp.save_npz(buffer, SMALL.asformat(form), compressed=form != "csc")
    return buffer.getvalue()


def market():
    buffer = io.BytesIO()
    mmwrite(buffer, SMALL)
    return buffer.getvalue()


def npy():
    buffer = io.BytesIO()
    np.save(buffer, SMALL.toarray())
    return buffer.getvalue()


def parquet():
    buffer = io.BytesIO()
    pd.DataFrame(SMALL.toarray(), columns=[f"c{number}" for number in range(SMALL.shape[1])]).to_parquet(buffer)
    return buffer.getvalue()


SEEDS = {
    "x.svm": [b"1 1:0.5 3:2\n-1 2:1e3 # words\n1 qid:3 4:-.25\n-1 1:7 10:1\n", b"2.5 1:1\n3 2:1\n4 1:2\n"],
    "x.mtx": [market(), b"%%MatrixMarket matrix coordinate pattern general\n% words\n3 4 2\n1 2\n3 4\n"],
    "x.npz": [npz("csr"), npz("csc"), npz("coo")],
    "x.npy": [npy()],
    "x.csv": [b"a,b,c\n1,2,3\n4.5,-1e3,0\n0,0,7\n", b'\xef\xbb\xbf"a b";;c\r\n1;"i;d";3\r\n\r\n4;j;0\r\n'],
    "x.tsv.gz": [gzip.compress(b"a\tb\n1\t2\n3\t4\n")],
    "x.parquet": [parquet()],
    "x.h5ad": [(Path(__file__).parents[1] / "data/anndata/csr.h5ad").read_bytes()],
    "y.csv": [b"height,weight\n1,2\n3.5,4\n5,6\n7,8\n", b"a\nb\na\nb\n"],
}


@FUZZ
@given(data=st.data(), name=st.sampled_from(sorted(SEEDS)))
def test_any_bytes_are_ingested_or_refused(tmp_path, data, name):
    content = changed_bytes(data, data.draw(st.sampled_from(SEEDS[name])))
    path, target = tmp_path / name, tmp_path / "s.zarr"
    path.write_bytes(content)
    shutil.rmtree(target, ignore_errors=True)
    options = {"scheduler": "synchronous", "memory_limit": "1GB", "block_bytes": "1MB"}
    try:
        store = gdm_dask.ingest(*((np.eye(4), target, path) if name == "y.csv" else (path, target)), **options)
    except BadInput as error:
        message = str(error)
    else:
        message = name
        store.verify()
    assert any(words in message for words in (name, "(counted from 0)", "label", "number", "feature ")), message


def test_an_archive_in_the_place_of_an_array(tmp_path):
    (tmp_path / "x.npy").write_bytes(npz("csr"))
    with pytest.raises(BadInput, match=r"x\.npy: not a complete \.npy matrix"):
        gdm_dask.ingest(tmp_path / "x.npy", tmp_path / "s")
    with pytest.raises(BadInput, match=r"x\.npy"):
        gdm_dask.ingest(np.eye(4), tmp_path / "s", tmp_path / "x.npy")


def archive(**members):
    """Make an archive of arrays whose headers may lie."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, (shape, dtype, content) in members.items():
            header = io.BytesIO()
            described = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(header, described)
            packed.writestr(f"{name}.npy", header.getvalue() + content)
    return buffer.getvalue()


def sparse(n_samples, n_features, indptr, length=None, **more):
    pointers = np.asarray(indptr, np.int64)
    shape = np.array([n_samples, n_features], np.int64)
    return archive(
        format=((), "<S3", b"csr"), shape=((2,), "<i8", shape.tobytes()),
        indptr=((len(pointers) if length is None else length,), "<i8", pointers.tobytes()),
        indices=((1,), "<i4", bytes(4)), data=((1,), "<f8", np.ones(1).tobytes()), **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (sparse(10**18, 3, [0, 1]), r"can hold at most 4294967295 samples, got 1000000000000000000"),
        (sparse(3, 10**18, [0, 1, 1, 1]), r"can hold at most 4294967295 features, got 1000000000000000000"),
        (sparse(-3, 3, [0, 1]), r"at most 4294967295 samples, got -3"),
        (sparse(4 * 10**9, 3, [0, 1], 4 * 10**9 + 1), r"the pointers of 4000000000 rows or columns do not fit"),
        (sparse(3, 3, [0, 1], 10**18), r"indptr does not fit the shape"),
        (sparse(1, 3, [0, 10**15]), r"ends too early"),
        (sparse(1, 3, [0, 1], y=((10**18,), "<f8", b"")), r"not a complete .npz file"),
    ],
)  # fmt: skip
def test_archives_that_lie(tmp_path, content, message):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(BadInput, match=rf"x\.npz: .*{message}"):
        gdm_dask.ingest(tmp_path / "x.npz", tmp_path / "s")


def test_sizes_of_a_matrix_market_file(tmp_path):
    path = tmp_path / "x.mtx"
    for sizes in (f"{10**18} 2 1", f"2 {10**18} 1", "-2 2 1"):
        path.write_text(f"%%MatrixMarket matrix coordinate real general\n{sizes}\n1 1 1\n")
        with pytest.raises(BadInput, match=r"x\.mtx: a store can hold at most"):
            gdm_dask.ingest(path, tmp_path / "s")


def test_a_zero_byte_in_a_matrix_market_file(tmp_path):
    """It crashed the parser of scipy."""
    (tmp_path / "x.mtx").write_bytes(b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n1 2.\x9d\0--\n")
    with pytest.raises(BadInput, match=r"x\.mtx, line 4: there is a zero byte"):
        gdm_dask.ingest(tmp_path / "x.mtx", tmp_path / "s")


def test_a_small_file_of_large_labels(tmp_path):
    """Its directory declares 4 GB, its header 8 GB, and there are a thousand bytes."""
    (tmp_path / "x.npz").write_bytes(sparse(1, 3, [0, 1], shape_=((0,), "<f8", b"")))
    with zipfile.ZipFile(tmp_path / "x.npz", "a", zipfile.ZIP_DEFLATED) as packed, packed.open("y.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**9,)})
        member.write(bytes(1000))
    info = zipfile.ZipFile(tmp_path / "x.npz").getinfo("y.npy")
    raw = (tmp_path / "x.npz").read_bytes()
    told = info.file_size.to_bytes(4, "little")
    position = raw.rindex(told)  # the size that the directory at the end declares
    (tmp_path / "x.npz").write_bytes(raw[:position] + (4_000_000_000).to_bytes(4, "little") + raw[position + 4 :])
    with pytest.raises(BadInput, match=r"x\.npz: not a complete \.npz file"):
        gdm_dask.ingest(tmp_path / "x.npz", tmp_path / "s")


def test_arrays_of_a_pipeline_that_lie(tmp_path):
    (tmp_path / "x.npz").write_bytes(archive(x=((10**15,), "<f8", b""), y=((1,), "<f8", bytes(8))))
    with pytest.raises(BadInput, match=r"x\.npz must be a complete \.npz file of plain arrays"):
        _load_arrays(tmp_path / "x.npz", "x", "y")
