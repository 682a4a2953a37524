"""Readers of a pipeline: labels in a separate file, and files with wrong content."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.instances import informative

from gdm_dask import open_store
from gdm_dask.errors import BadInput
from gdm_dask.pipeline import load_pipeline, run_pipeline
from gdm_dask.pipeline.readers import Part, read_part, split_numbers

ROWS, Y = informative(12, 60, 0)
MATRIX = """
name = "matrix"
[acquire.x]
path = "x.npz"
[acquire.y]
path = "y.npy"
[ingest.train]
reader = "matrix"
{files}
[fit]
n_features_to_select = 3
scheduler = "synchronous"
"""


@pytest.mark.parametrize("files", ['files = ["x", "y"]', 'files = "x"\nlabels = "y"'])
def test_labels_of_a_matrix_lie_in_a_file_of_their_own(tmp_path: Path, monkeypatch, files: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GDM_RUNS", raising=False)
    sp.save_npz("x.npz", sp.csr_array(ROWS.T))
    np.save("y.npy", Y)
    Path("matrix.toml").write_text(MATRIX.format(files=files))
    assert run_pipeline(load_pipeline("matrix.toml")).status == "done"
    np.testing.assert_array_equal(open_store("runs/matrix/data/train.zarr").y, Y)
    np.save("y.npy", -Y)
    run_pipeline(load_pipeline("matrix.toml"))
    np.testing.assert_array_equal(open_store("runs/matrix/data/train.zarr").y, -Y)


def test_labels_have_to_be_acquired(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(MATRIX.format(files='files = "x"\nlabels = "z"'))
    with pytest.raises(BadInput, match=r"line 10: ingest\.train\.labels names \[acquire\.z\], .*; there are x, y"):
        load_pipeline(tmp_path / "matrix.toml")


COVARIATES = """
name = "people"
[acquire.x]
path = "x.npz"
[acquire.people]
path = "people.cov"
[acquire.others]
path = "others.cov"
[ingest.train]
reader = "matrix"
files = "x"
labels = "people:height"
covariates = "people:age,sex"
on_missing = "drop"
[ingest.test]
reader = "matrix"
files = "x"
labels = "others:height"
covariates = "others:age,sex"
[fit]
n_features_to_select = 4
scheduler = "synchronous"
[report]
form = "md"
"""


def test_covariates_of_a_matrix_lie_in_a_table(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GDM_RUNS", raising=False)
    sp.save_npz("x.npz", sp.csr_array(ROWS.T))
    n_samples = ROWS.shape[1]
    people = pd.DataFrame({"height": ROWS[3] + np.arange(n_samples) / 7, "age": np.arange(n_samples) % 9, "sex": "F"})
    people.loc[::2, "sex"] = "M"
    people.loc[[0, 5], "height"] = np.nan
    people.to_csv("people.cov", sep=" ", index=False, na_rep="NA")
    people.fillna(3.5).to_csv("others.cov", sep=" ", index=False)
    Path("people.toml").write_text(COVARIATES)
    assert run_pipeline(load_pipeline("people.toml")).status == "done"
    train, test = (open_store(f"runs/people/data/{part}.zarr") for part in ("train", "test"))
    assert train.shape == (len(ROWS) + 2, n_samples - 2)
    assert list(train.covariates) == list(test.covariates) == ["age", "sex"]
    np.testing.assert_array_equal(train.y, people["height"].dropna())
    before = train.means[len(ROWS)]
    people.assign(age=people["age"] + 1).to_csv("people.cov", sep=" ", index=False, na_rep="NA")
    run_pipeline(load_pipeline("people.toml"))
    means = open_store("runs/people/data/train.zarr").means
    assert means[len(ROWS)] == pytest.approx(before + 1)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (lambda path: path.write_bytes(b"PK\3\4 cut off"), {}, "must be a complete .npz file"),
        (lambda path: path.write_bytes(npy(np.zeros(3))), {}, "must be a complete .npz file"),
        (lambda path: saved(path, x=np.array([{}, None]), y=np.zeros(2)), {}, "must be a complete .npz file"),
        (lambda path: saved(path, x=np.zeros((2, 4)), z=np.zeros(2)), {}, "there is no array 'y'; there are x, z"),
        (lambda path: saved(path, x=np.zeros((2, 4)), y=np.zeros(3)), {}, r"x \(2, 4\), y \(3,\)"),
        (lambda path: saved(path, x=np.zeros((2, 4)), y=np.array(1)), {}, r"x \(2, 4\), y \(\)"),
        (lambda path: saved(path, x=np.array([["a"]]), y=np.zeros(1)), {"add": 1}, "'x' must hold numbers, got <U1"),
        (lambda path: saved(path, x=np.zeros((2, 4)), y=np.zeros(2)), {"classes": [3, 8]}, r"no samples of \[3, 8\]"),
        (lambda path: saved(path, x=np.zeros((0, 4)), y=np.zeros(0)), {}, "there are no samples$"),
        (lambda path: saved(path, x=np.zeros((2, 4)), y=np.zeros(2)), {"shift": 1}, "cannot be shifted"),
        (
            lambda path: saved(path, x=np.zeros((2, 4)), y=np.zeros(2)),
            {"shift": 1, "image": [3, 3]},
            "cannot be shifted",
        ),
    ],
)
def test_arrays_that_are_not_right_are_named(tmp_path: Path, make, settings: dict, message: str) -> None:
    make(tmp_path / "a.npz")
    part = Part({"reader": "arrays", **settings}, [tmp_path / "a.npz"], "train", None, tmp_path / "train.zarr")
    with pytest.raises(BadInput, match=message) as error:
        read_part(part)
    assert "a.npz" in str(error.value)


def test_too_few_samples_to_split_are_refused() -> None:
    with pytest.raises(BadInput, match=r"1 samples cannot be split with test_fraction = 0\.25"):
        split_numbers(1, 0.25, 0)


def test_an_array_holds_the_weights_of_the_samples(tmp_path: Path) -> None:
    x, y, w = np.arange(60.0).reshape(15, 2, 2), np.arange(15) % 3, 1.0 + np.arange(15)
    path = saved(tmp_path / "a.npz", x=x, y=y, w=w)
    settings = {"reader": "arrays", "sample_weight": "w", "classes": [0, 2]}
    found = read_part(Part(settings, [path], "train", None, tmp_path))
    assert found.options["sample_weight"].tolist() == w[y != 1].tolist()
    shifted = read_part(Part(settings | {"shift": 1}, [path], "train", None, tmp_path))
    assert shifted.options["sample_weight"].tolist() == w[y != 1].tolist() * 9
    split = {"test_fraction": 0.3, "seed": 0}
    parts = [read_part(Part(settings, [path], name, split, tmp_path)) for name in ("train", "test")]
    for part in parts:
        np.testing.assert_array_equal(part.options["sample_weight"], w[part.source[:, 0].astype(int) // 4])
    assert sum(len(part.labels) for part in parts) == 10


def test_weights_need_a_reader_that_knows_them(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ingest\.train\.sample_weight: only the readers matrix, arrays, documents"):
        read_part(Part({"reader": "svmlight", "sample_weight": "w"}, [tmp_path / "a.svm"], "train", None, tmp_path))
