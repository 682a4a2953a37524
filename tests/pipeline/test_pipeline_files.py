"""Files of pipelines: errors name the key and the line, and the files that come with the project work."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.soak import TINY

from gdm_dask import open_store
from gdm_dask.engine import LOCAL_SCHEDULERS
from gdm_dask.errors import BadInput
from gdm_dask.pipeline import load_pipeline, plan_pipeline, run_pipeline

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def tiny(tmp_path, monkeypatch):
    """Work in a folder with a small pipeline."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY)


BAD = [
    ("tau = 0.25", "tau = 3", r"line 15: fit.tau must be a number in \[0, 0.999999\], got 3"),
    ('form = "md"', 'form = "pdf"', "line 19: report.form must be one of html, md, json, got 'pdf'"),
    ("scheduler =", "shedule =", "line 16: fit.shedule is not a known key; known keys are n_features_to_select"),
    ('files = "rows"', 'files = "cols"', r"line 8: ingest.train.files names \[acquire.cols\], .*; there are rows"),
    ('path = "rows.svm"', 'page = "x"', "line 3: acquire.rows must have a path or a url"),
    ('path = "rows.svm"', 'url = "https://a/b"', "line 4: acquire.rows.url needs a sha256"),
    ('reader = "svmlight"', "", r"line 6: ingest.train.reader is missing"),
    ('name = "tiny"', "", "tiny.toml: name is missing"),
    ('name = "tiny"', 'name = "../up"', "line 1: name must match .*, got '../up'"),
    ("[ingest.split]", "[ingest.test]", "line 11: ingest.test.test_fraction is not a known key"),
    ("[report]", "[report", r"Expected ']'.*line 18"),
    ("n_features_to_select = 5", "n_features_to_select = true", "line 14: fit.n_features_to_select must be an integer"),
    ("[ingest.train]", "[ingest.trains]", r"line 6: ingest.trains is not a known key"),
    (
        "test_fraction = 0.25",
        "test_fraction = 0.25\nseed = -1",
        r"line 12: ingest.split.seed must be an integer in \[0,",
    ),
    ('files = "rows"', "files = []", "line 8: ingest.train.files is an empty list"),
    ('form = "md"', "image = 28", "line 19: report.image must be a list of two values, got 28"),
    ('form = "md"', "image = [28]", r"line 19: report.image must be a list of two values, got \[28\]"),
    ('form = "md"', "image = [28, 0]", "line 19: report.image must be an integer >= 1, got 0"),
    ('name = "tiny"', 'name = "tiny"\nfolder = "../.."', "line 2: folder must match .*, got '../..'"),
    ('name = "tiny"', 'name = "tiny"\nfolder = "/etc"', "line 2: folder must match .*, got '/etc'"),
    ("[acquire.rows]", '[acquire."../../x"]', r"acquire\.\.\./\.\./x must have a name that matches"),
    ('path = "rows.svm"', 'path = ""', "line 4: acquire.rows.path must match .+, got ''"),
    (
        "tau = 0.25",
        'memory_limit = "lots"',
        "line 15: fit.memory_limit must be a size, such as 2GB or 64MiB, got 'lots'",
    ),
    ("[ingest.split]", '[ingest]\nblock_size = "0"\n[ingest.split]', "line 11: ingest.block_size must be a size"),
    ('scheduler = "synchronous"', 'scheduler = "spark"', r"line 16: fit.scheduler must match threads\|.*, got 'spark'"),
    (
        'files = "rows"',
        'files = "rows"\ndrop = "age"',
        "line 9: ingest.train.drop is not a key of the svmlight reader; its keys are index_base, on_error",
    ),
    (
        'reader = "svmlight"\nfiles = "rows"',
        'reader = "arrays"\nfiles = ["rows", "rows"]',
        "line 8: ingest.train.files names 2 files, but the arrays reader reads at most 1",
    ),
    ("[fit]\n", "fit = 3\n[x]\n", "line 13: ingest.split.fit is not a known key"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_errors_name_the_key_and_the_line(old, new, message):
    text = TINY.replace("n_features_to_select = 5", "n_features_to_select = 5\ntau = 0.25")
    assert old in text
    Path("tiny.toml").write_text(text.replace(old, new))
    with pytest.raises(BadInput, match=message):
        load_pipeline("tiny.toml")


@pytest.mark.parametrize("scheduler", [*LOCAL_SCHEDULERS, "local", "tcp://head:8786", "run/scheduler.json"])
def test_a_pipeline_can_name_any_scheduler(scheduler):
    assert load_pipeline("tiny.toml", [f"fit.scheduler={scheduler}"]).table("fit")["scheduler"] == scheduler


def test_a_byte_order_mark_is_no_part_of_a_pipeline():
    Path("tiny.toml").write_text(TINY, "utf-8-sig")
    assert load_pipeline("tiny.toml").name == "tiny"


@pytest.mark.parametrize("text", ['name = "a"\n', 'name = "a"\n[ingest]\ncodec = "lz4"\n'])
def test_a_pipeline_without_a_training_set_is_refused(text):
    Path("tiny.toml").write_text(text)
    with pytest.raises(BadInput, match=r"ingest\.train is missing"):
        load_pipeline("tiny.toml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fit.tau=2", "--set fit.tau=2: fit.tau must be a number"),
        ("fit.tua=0.2", "--set fit.tua=0.2: fit.tua is not a known key.* Did you mean tau?"),
        ("tau", "write it as key=value"),
        ("name.x=1", "name is not a table"),
    ],
)
def test_bad_overrides_are_named(override, message):
    with pytest.raises(BadInput, match=message):
        load_pipeline("tiny.toml", [override])


def test_values_of_several_lines_do_not_shift_the_lines():
    text = TINY.replace('name = "tiny"', 'name = "tiny"\ndescription = """\n[fit]\ntau = 9\n"""')
    Path("tiny.toml").write_text(text.replace("test_fraction = 0.25", "test_fraction = 7"))
    with pytest.raises(BadInput, match=r"line 15: ingest\.split\.test_fraction"):
        load_pipeline("tiny.toml")


@pytest.mark.parametrize("file", sorted(ROOT.glob("pipelines/*.toml")), ids=lambda path: path.stem)
def test_the_pipelines_that_come_with_the_project_are_right(file, monkeypatch, tmp_path):
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    pipeline = load_pipeline(file)
    assert pipeline.name == file.stem
    states = dict(plan_pipeline(pipeline)) if file.stem == "synthetic" else {}
    assert states.get("ingest train", "would run") == "would run"


def test_every_project_pipeline_is_there():
    names = {"synthetic", "mnist", "usps", "faces", "kdd2010", "webspam", "spam-text"}
    assert {path.stem for path in ROOT.glob("pipelines/*.toml")} == names


def test_the_synthetic_pipeline_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("GDM_RUNS", str(tmp_path))
    overrides = [f"ingest.{part}.scale=0.05" for part in ("train", "test")] + ["fit.n_features_to_select=5"]
    record = run_pipeline(load_pipeline(ROOT / "pipelines/synthetic.toml", overrides))
    assert record.status == "done"
    assert (tmp_path / "synthetic" / record.run / "report.html").exists()


def test_images_are_shifted_in_their_frame_as_the_paper_has_them(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    digits = {"x_train_milli": rng.integers(-1000, 1001, (40, 256)), "y_train": np.arange(40) % 3}
    digits |= {"x_test_milli": digits["x_train_milli"][::-1], "y_test": digits["y_train"][::-1]}
    (tmp_path / "usps").mkdir()
    np.savez(tmp_path / "usps/usps.npz", **digits)
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    monkeypatch.setenv("GDM_RUNS", str(tmp_path))
    overrides = ["fit.n_features_to_select=3", "report.form=json", "ingest.train.shift=1", "ingest.test.shift=1"]
    record = run_pipeline(load_pipeline(ROOT / "pipelines/usps.toml", [*overrides, "report.image=[18, 18]"]))
    store = open_store(tmp_path / "usps/data/train.zarr")
    kept = digits["x_train_milli"][digits["y_train"] < 2] + 1000
    assert store.shape == (18 * 18, 9 * len(kept))
    dense = store.read_rows(np.arange(324)).toarray().T
    frame = np.zeros((18, 18))
    frame[2:, 1:17] = kept[4].reshape(16, 16)
    np.testing.assert_array_equal(dense[7 * len(kept) + 4], frame.ravel())
    facts = json.loads((tmp_path / "usps" / record.run / "evaluation.json").read_bytes())
    assert facts["n_samples"] == store.shape[1]
