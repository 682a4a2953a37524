"""Bad input: exit code 2, a message that names file and line, and nothing left behind."""

import bz2
import gzip
import lzma
import os

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from helpers.store_helpers import gdm, some_labels, some_matrix, write_svmlight

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.ingestion import run_ingest

GOOD = b"+1 1:0.5 3:2\n-1 2:1\n"
#: Some of the lines in `test_svmlight.py`.
BAD_LINES = {
    b"+1 1:0.5 2\n": "'2' has no colon",
    b"+1 1:0.5 3:2 2:1\n": "index 2 after index 3",
    b"+1 0:0.5\n": "index 0 in a file that should count from 1.*--index-base 0",
    b"spam 1:1\n": "label 'spam' is not a number",
    b"\x00\x01\xff\xfe rubbish\n": "binary data",
    b"+1 " + b"1:0.5 " * 50_000 + b"\n": "index 1 twice",
}


def refused(capsys, folder, *arguments):
    """Check that an ingest is refused and leaves nothing behind; returns its message."""
    before = sorted(folder.iterdir())
    code, out, err = gdm(capsys, "ingest", *arguments, folder / "store.zarr")
    assert (code, out) == (2, ""), err
    assert sorted(folder.iterdir()) == before
    assert len(err) < 2000
    return " ".join(err.split())


@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
def test_bad_lines_are_named(tmp_path, capsys, line):
    path = tmp_path / "x.svm"
    path.write_bytes(b"# comment\n" + GOOD * 20 + line + GOOD)
    err = refused(capsys, tmp_path, path)
    assert f"{path}, line 42: " in err
    with pytest.raises(BadInput, match=BAD_LINES[line]):
        run_ingest(path, tmp_path / "s", run_bytes=max(50, len(line)))
    done = run_ingest(path, tmp_path / "s", on_error="skip")
    assert done.skipped_lines == done.store.manifest.provenance["skipped_lines"] == 1
    assert done.store.shape == (3, 42)


def test_a_file_of_another_format_is_told_how_formats_are_known(tmp_path, capsys):
    (tmp_path / "genes.bim").write_text("1\t100\trs1\tA\tC\n")
    for options in ([], ["--target", "case"]):
        err = refused(capsys, tmp_path, tmp_path / "genes.bim", *options)
        assert "other formats are known by the end of their names" in err


@pytest.mark.parametrize("run_bytes", [30, 100, 1 << 20])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_line_numbers_in_later_files_and_byte_ranges(tmp_path, run_bytes, suffix):
    paths = [tmp_path / f"{number}.svm{suffix}" for number in (1, 2)]
    for path, text in zip(paths, (GOOD * 5, GOOD * 30 + b"\n# comment\n+1 x\n"), strict=True):
        path.write_bytes(gzip.compress(text) if suffix else text)
    with pytest.raises(BadInput, match=rf"2\.svm{suffix}, line 63: .*'\+1 x'"):
        gdm_dask.ingest(paths, tmp_path / "s", run_bytes=run_bytes)


def test_skipped_lines_are_counted_and_reported(tmp_path, capsys):
    path = tmp_path / "x.svm"
    path.write_bytes(GOOD + b"rubbish\n" + GOOD + b"+1 3:1 2:1\n")
    code, out, err = gdm(capsys, "ingest", path, tmp_path / "s", "--on-error", "skip")
    assert code == 0
    assert "3 features x 4 samples" in out
    assert "2 malformed lines were skipped" in err


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only\n# comments\n"])
def test_empty_text(tmp_path, capsys, content):
    path = tmp_path / "x.svm"
    path.write_bytes(content)
    assert f"{path}: there are no samples" in refused(capsys, tmp_path, path)


def test_text_without_features(tmp_path, capsys):
    (tmp_path / "x.svm").write_bytes(b"+1\n-1\n")
    assert "no features" in refused(capsys, tmp_path, tmp_path / "x.svm")


def test_binary_rubbish_without_a_newline(tmp_path):
    path = tmp_path / "x.svm"
    path.write_bytes(np.random.default_rng(0).integers(11, 256, 300_000, np.uint8).tobytes())
    with pytest.raises(BadInput, match=r"line 1: the line is longer than 65.5 kB.*svmlight"):
        gdm_dask.ingest(path, tmp_path / "s", run_bytes=10_000)
    path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(BadInput, match=r"line 1: the line is longer than"):
        gdm_dask.ingest(path.with_suffix(".gz"), tmp_path / "s", run_bytes=10_000)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_damaged_compressed_files(tmp_path, capsys, suffix, pack):
    text = "".join(f"{(-1) ** k} 1:{k}.5 2:{k * k}\n" for k in range(20_000)).encode()
    path = tmp_path / f"x.svm{suffix}"
    packed = pack(text)
    for content in (packed[: len(packed) // 2], packed[:3], text):
        path.write_bytes(content)
        err = refused(capsys, tmp_path, path)
        assert f"{path}: the compressed data is damaged or cut off after" in err
        assert "in line" in err


def test_files_that_cannot_be_read(tmp_path, capsys):
    assert "no such file" in refused(capsys, tmp_path, tmp_path / "missing.svm")
    assert "is a folder" in refused(capsys, tmp_path, tmp_path)
    secret = tmp_path / "secret.svm"
    secret.write_bytes(GOOD)
    secret.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read any file
        os.seteuid(65534)
    try:
        with pytest.raises(BadInput, match=r"secret\.svm: cannot be read: Permission denied"):
            gdm_dask.ingest(secret, tmp_path / "s")
    finally:
        os.seteuid(user)


def test_classes(tmp_path, capsys):
    path = tmp_path / "x.svm"
    path.write_bytes(b"1 1:1\n1 2:1\n")
    assert "every sample has the label 1: there must be two classes" in refused(capsys, tmp_path, path)
    path.write_bytes(b"1 1:1\n2 2:1\n3 1:1\n")
    err = refused(capsys, tmp_path, path, "--task", "classification")
    assert "there are 3 classes for 3 samples: 1, 2, 3. Give samples of the same class the same label" in err
    assert "`task` must be 'classification' or 'regression', got 'x'" in refused(capsys, tmp_path, path, "--task", "x")
    for labels, message in (
        ([1, 1, 1], "every sample has the label 1"),
        (["a", "b", "c"], "3 classes for 3 samples"),
        ([1.0, np.nan, 2.0], "there is no label for sample 1"),
        (["a", None, "b"], "there is no label for sample 1"),
        ([1, 2], "2 labels for 3 samples"),
        (np.eye(3), "shape"),
        ([1j, 2j, 1j], "got complex128"),
        ("y.txt", "y.txt: cannot be read: no such file"),
    ):
        with pytest.raises(BadInput, match=message):
            gdm_dask.ingest(np.eye(3), tmp_path / "s", labels)


def test_labels_of_matrix_files(tmp_path, capsys):
    sp.save_npz(tmp_path / "x.npz", some_matrix())
    matrix, labels = tmp_path / "x.npz", tmp_path / "y.txt"
    labels.write_text("1\n2\n")
    assert "2 labels for 60 samples" in refused(capsys, tmp_path, matrix, "--labels", labels)
    assert "none.txt: cannot be read" in refused(capsys, tmp_path, matrix, "--labels", tmp_path / "none.txt")
    np.save(tmp_path / "y.npy", np.where(np.arange(60) == 3, np.nan, np.arange(60)))
    assert "y.npy: there is no value for sample 3" in refused(capsys, tmp_path, matrix, "--labels", tmp_path / "y.npy")
    np.save(tmp_path / "y.npy", np.arange(60) % 2)
    np.save(tmp_path / "w.npy", np.zeros(60))
    given = ("--target", tmp_path / "y.npy", "--sample-weight", tmp_path / "w.npy")
    assert "w.npy must be positive for at least one sample, got zeros only" in refused(capsys, tmp_path, matrix, *given)
    (tmp_path / "y.npy").write_bytes(b"rubbish")
    assert "labels cannot be read" in refused(capsys, tmp_path, matrix, "--labels", tmp_path / "y.npy")
    write_svmlight(tmp_path / "x.svm", some_matrix(), some_labels(60))
    assert "svmlight text has its own labels" in refused(capsys, tmp_path, tmp_path / "x.svm", "--labels", labels)
    assert "several files" in refused(capsys, tmp_path, matrix, matrix, "--labels", labels)


MARKETS = {
    b"": "line 1: not a Matrix Market file",
    b"garbage\n1 2 3\n": "line 1: not a Matrix Market file",
    b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n": "line 1: must be 'coordinate.*\\.npy",
    b"%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n": "line 1: must be 'coordinate",
    b"%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 1 1\n": "line 1: must be 'coordinate.*mmwrite",
    b"%%MatrixMarket matrix coordinate real general\n% c\nrubbish\n": "line 3: the sizes",
    b"%%MatrixMarket matrix coordinate real general\n% c\n2 2 2\n1 1 1\n2 x 1\n": r"line 5: .*'2 x 1'",
    b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 3 1\n": r"line 4: Column index.*'2 3 1'",
    b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n0 1 1\n": r"line 4: Row index.*'0 1 1'",
    b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 1 nan\n": "sample 1, feature 0 .*NaN",
    b"%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 1\n2 1 1\n": "the file declares 3 entries, but has 2",
    b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n1 1 3\n": "feature 0 has two values for one sample",
}


@pytest.mark.parametrize("content", MARKETS, ids=range(len(MARKETS)))
def test_matrix_market_garbage(tmp_path, capsys, content):
    (tmp_path / "x.mtx").write_bytes(content)
    (tmp_path / "y.txt").write_text("0\n1\n")
    err = refused(capsys, tmp_path, tmp_path / "x.mtx", "--labels", tmp_path / "y.txt")
    with pytest.raises(BadInput, match=MARKETS[content]):
        gdm_dask.ingest(tmp_path / "x.mtx", tmp_path / "s", [0, 1])
    assert "error:" in err


def test_npz_garbage(tmp_path, capsys):
    path, labels = tmp_path / "x.npz", tmp_path / "y.txt"
    labels.write_text("\n".join(map(str, some_labels(60))))
    sp.save_npz(path, some_matrix())
    whole = path.read_bytes()
    parts = {name: getattr(some_matrix(), name) for name in ("indices", "indptr", "data")}
    shaped = {"format": b"csr", "shape": (60, 40)}

    def message():
        return refused(capsys, tmp_path, path, "--labels", labels)

    for content in (b"", b"rubbish", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert f"{path}: not a complete .npz file" in message()
    np.savez(path, a=np.eye(2))
    assert f"error: {path}: not a sparse matrix as scipy.sparse.save_npz writes it (it holds ['a'])" in message()
    np.savez(path, **(shaped | {"shape": (60, 40, 2)}), **parts)
    assert "expected a matrix of samples x features, got the shape" in message()
    np.savez(path, **shaped, **(parts | {"data": parts["data"] * 1j}))
    assert "'data' holds complex128, not real numbers" in message()
    np.savez(path, **shaped, **(parts | {"indices": parts["indices"] + 40}))
    assert "a column number is not between 0 and 39" in message()
    np.savez(path, **shaped, **(parts | {"data": parts["data"][:-1]}))
    assert "not a complete .npz file: an array ends too early. Write or fetch it again." in message()
    np.savez(path, **(shaped | {"format": b"dia"}), **parts)
    assert "save it as csr" in message()
    flipped = bytearray(whole)
    flipped[200] ^= 255
    path.write_bytes(flipped)
    assert "x.npz" in message()


def test_npy_and_zarr_garbage(tmp_path, capsys):
    path, labels = tmp_path / "x.npy", tmp_path / "y.txt"
    labels.write_text("0\n1\n")

    def message(source=path):
        return refused(capsys, tmp_path, source, "--labels", labels)

    for content in (b"", b"rubbish"):
        path.write_bytes(content)
        assert f"{path}: not a complete .npy matrix of numbers" in message()
    np.save(path, np.array([[{}, 1], [2, 3]], dtype=object))
    assert "expected a 2-D matrix of real numbers (samples x features), got object" in message()
    np.save(path, np.eye(2) * 1j)
    assert "expected a 2-D matrix of real numbers (samples x features), got complex128" in message()
    np.save(path, np.ones(3))
    assert "of shape (3,)" in message()
    np.save(path, np.array([[1, 2], [3, np.inf]]))
    assert "x.npy: sample 1, feature 1 (counted from 0) is NaN or infinity" in message()
    np.save(path, np.eye(2))
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path}: not a complete .npy" in message()
    (tmp_path / "x.zarr").mkdir()
    assert "not a Zarr array" in message(tmp_path / "x.zarr")
    zarr.create_group(tmp_path / "g.zarr")
    assert "not a Zarr array" in message(tmp_path / "g.zarr")
    zarr.create_array(tmp_path / "c.zarr", data=np.eye(2))
    (tmp_path / "c.zarr" / "c" / "0" / "0").write_bytes(b"rubbish")
    assert f"{tmp_path / 'c.zarr'}: not a complete Zarr array" in message(tmp_path / "c.zarr")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(3) * 1j, "complex128"),
        (np.array([["a"] * 3] * 3), "<U1"),
        (np.array([[None] * 3] * 3), "object"),
        (np.ones((3, 3, 3)), "shape"),
        (np.zeros((3, 0)), "no features"),
        (np.zeros((0, 3)), "there are no labels"),
        (sp.csr_array(np.eye(3) * 1j), "complex128"),
        (sp.csr_array(np.array([[0, np.nan, 0]] * 3)), "sample 0, feature 1"),
        (np.array([[1, 2, 3], [1, 2, 3], [1, np.inf, 3]]), "sample 2, feature 1"),
        (5, "shape"),
    ],
)
def test_objects_that_are_no_matrix(tmp_path, matrix, message):
    labels = [0, 1, 0][: len(matrix)] if np.ndim(matrix) and not sp.issparse(matrix) else [0, 1, 0]
    with pytest.raises(BadInput, match=message):
        gdm_dask.ingest(matrix, tmp_path / "s", labels)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"--index-base": "2"}, "`index_base` must be 0 or 1, got 2"),
        ({"--on-error": "ignore"}, "`on_error` must be 'raise' or 'skip', got 'ignore'"),
        ({"--dtype": "int8"}, "`dtype` must be 'auto', 'float32' or 'float64', got 'int8'"),
        ({"--codec": "gzip"}, "unknown codec 'gzip': choose one of none, lz4, zstd"),
        ({"--block-size": "huge"}, "'huge' is not a size"),
        ({"--block-size": "3GB"}, "the block size must be at most"),
        ({"--n-features": "0"}, "`n_features` must be an integer in [1, 4294967295], got 0"),
        ({"--memory-limit": "10MB"}, "too low|needs"),
        ({"--scheduler": "magic"}, "unknown scheduler"),
    ],
)
def test_wrong_options(tmp_path, capsys, options, message):
    (tmp_path / "x.svm").write_bytes(GOOD)
    err = refused(capsys, tmp_path, tmp_path / "x.svm", *(word for pair in options.items() for word in pair))
    assert any(part in err for part in message.split("|"))


@pytest.mark.parametrize("name", ["x.csv.zst", "x.svm.zip"])
def test_packed_files_are_to_be_unpacked(tmp_path, capsys, name):
    (tmp_path / name).write_bytes(b"\x28\xb5\x2f\xfd")
    assert f"{name}: unpack it first; files may be compressed as .gz, .bz2, .xz" in refused(
        capsys, tmp_path, tmp_path / name, "--target", "case"
    )


def test_names_that_tell_the_format_need_no_hint(tmp_path, capsys):
    (tmp_path / "x.svm").write_text("spam 1:1\n")
    assert "other formats" not in refused(capsys, tmp_path, tmp_path / "x.svm")


@pytest.mark.parametrize("place", ["x.svm/store", f"{'n' * 300}", "/proc/store"])
def test_places_where_nothing_can_be_made(tmp_path, capsys, place):
    (tmp_path / "x.svm").write_bytes(GOOD)
    code, _, err = gdm(capsys, "ingest", tmp_path / "x.svm", tmp_path / place)
    assert code == 2
    assert "cannot be written: " in " ".join(err.split())
    assert "Choose another place for the store" in " ".join(err.split())
    assert "--scratch" in refused(capsys, tmp_path, tmp_path / "x.svm", "--scratch", tmp_path / "x.svm")


def test_a_dangling_link_is_no_place_for_a_store(tmp_path, capsys):
    (tmp_path / "x.svm").write_bytes(GOOD)
    (tmp_path / "store.zarr").symlink_to("nowhere")
    assert "store.zarr is a file" in refused(capsys, tmp_path, tmp_path / "x.svm")


def test_a_device_is_no_file(tmp_path, capsys):
    assert "/dev/null: this is a device or a pipe" in refused(capsys, tmp_path, "/dev/null")


def test_labels_of_one_class_name_file_and_column(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("a,y\n1,no\n2,no\n")
    err = refused(capsys, tmp_path, tmp_path / "x.csv", "--target", "y")
    assert f"{tmp_path / 'x.csv'}, target y: every sample has the label 'no'" in err
