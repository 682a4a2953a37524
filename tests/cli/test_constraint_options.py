"""Features that must or must not be supports, by the command line, in pipelines, and on the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.store_helpers import gdm

from gdm_dask import ingest, load_model
from gdm_dask.errors import BadInput
from gdm_dask.pipeline import load_pipeline, run_pipeline
from gdm_dask.report import gather, render
from gdm_dask.settings.constraint_files import read_constraints

PIPELINE = """
name = "tiny"
[acquire.rows]
path = "rows.svm"
[ingest.train]
reader = "svmlight"
files = ["rows"]
[fit]
n_features_to_select = 4
C = 1.0
scheduler = "synchronous"
include = "must.txt"
exclude = ["0", "5"]
groups_of = "variables.tsv"
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Change to a folder with a store whose features have names, and files that name some of them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12))
    y = np.where(X[:, :3].sum(axis=1) > 0, "yes", "no")
    frame = pd.DataFrame(X, columns=[*"abcdefghij", "k,l", "m"])
    ingest(frame, tmp_path / "train.zarr", y, scheduler="synchronous")
    (tmp_path / "must.txt").write_text("k,l\nj\n\n")
    (tmp_path / "variables.tsv").write_text("b\tletters\nc\tletters\n")
    return tmp_path


FIT = ["fit", "train.zarr", "--run", "run", "-k", "4", "--scheduler", "synchronous"]


def test_a_fit_by_the_command_line(place, capsys) -> None:
    code, out, err = gdm(
        capsys, *FIT, "--include", "must.txt", "--exclude", "a,m", "--groups-of", "variables.tsv", "--certify"
    )
    assert code == 0, err
    assert "5 of 12 features, 2 included, 1 variable\n" in out
    model = load_model("run")
    assert model.included_.tolist() == [9, 10]
    assert model.variables_ == {"letters": [1, 2]}
    assert not {0, 11} & set(model.support_features_.tolist())
    assert gdm(capsys, *FIT, "--resume", "--include", "j")[0] == 2
    report = gather(model)
    note = dict(zip(report["supports"]["name"], report["supports"]["note"], strict=True))
    assert (note["j"], note["k,l"], note["b"], note["c"]) == ("included", "included", "letters", "letters")
    assert report["parameters"]["include"] == "2 features"
    assert report["parameters"]["groups_of"] == "1 variable"
    assert "| j (included) |" in render(report, "md")
    json.dumps(report)


def test_a_grid_by_the_command_line(place, capsys) -> None:
    code, out, err = gdm(
        capsys, "tune", "train.zarr", "-k", "3", "--tau", "0.25", "--include", "j", "--scheduler", "synchronous"
    )
    assert (code, "0.25" in out) == (0, True), err


def test_a_page_without_constraints_has_no_notes(place, capsys) -> None:
    gdm(capsys, *FIT)
    report = gather(load_model("run"))
    assert report["supports"]["note"] is None
    assert "include" not in report["parameters"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--include", "z"], "`include`: no feature is named 'z'"),
        (["--include", "a,b,c,d,e"], "at most n_features_to_select=4 features, got 5"),
        (["--include", "a", "--exclude", "a"], "`include` and `exclude` both name feature 0"),
        (["--groups-of", "none.tsv"], "none.tsv: the file cannot be read: No such file"),
        (["--groups-of", "must.txt"], "must.txt, line 1: expected a feature, a tab and its variable, got 'k,l'"),
    ],
)
def test_bad_options_are_named_without_a_traceback(place, capsys, options, message) -> None:
    code, _, err = gdm(capsys, *FIT, *options)
    assert code == 2
    assert message in err.replace("\n", " ").replace("  ", " ")
    assert "Traceback" not in err


def test_a_file_must_be_text(tmp_path) -> None:
    (tmp_path / "names").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="must be UTF-8 text"):
        read_constraints({"exclude": str(tmp_path / "names")})


def test_a_pipeline_fits_again_when_a_file_changes(place) -> None:
    rng = np.random.default_rng(1)
    lines = []
    for label in (-1, 1) * 40:
        values = " ".join(f"{j + 1}:{value + 0.5 * label * (j < 4):.3f}" for j, value in enumerate(rng.normal(size=12)))
        lines.append(f"{label} {values}\n")
    Path("rows.svm").write_text("".join(lines))
    Path("must.txt").write_text("10\n")
    Path("variables.tsv").write_text("2\tpair\n3\tpair\n")
    Path("tiny.toml").write_text(PIPELINE)

    def fitted() -> tuple[list[int], str]:
        record = run_pipeline(load_pipeline("tiny.toml"))
        model = load_model(place / "runs/tiny" / record.run)
        assert model.variables_ in ({}, {"pair": [2, 3]})
        assert not {0, 5} & set(model.support_features_.tolist())
        return model.included_.tolist(), record.run

    first = fitted()
    assert first[0] == [10]
    assert fitted() == first
    Path("must.txt").write_text("11\n")
    second = fitted()
    assert second[0] == [11]
    assert second[1] != first[1]
