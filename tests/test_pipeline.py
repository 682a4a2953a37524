"""Pipelines: checked files, stages that run only when something changed, and runs that go on where they failed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from soak import TINY

import gdm_dask
from gdm_dask import open_store
from gdm_dask.errors import BadInput, GdmError, Locked
from gdm_dask.locks import FileLock
from gdm_dask.pipeline import load_pipeline, plan_pipeline, run_pipeline, stages
from gdm_dask.pipeline.code_version import code_behind
from gdm_dask.pipeline.history import History
from gdm_dask.twin_files import synthesise

ROOT = Path(__file__).parent.parent
STEPS = ["acquire", "ingest train", "ingest test", "fit", "evaluate", "report"]


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for seed in (0, 1):
        synthesise("url", folder / f"{seed}.svm", 0.0003, seed)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, rows):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GDM_DATA", raising=False)
    monkeypatch.delenv("GDM_RUNS", raising=False)
    (tmp_path / "tiny.toml").write_text(TINY)
    bring(rows / "0.svm", 1)
    return tmp_path


def bring(file, day):
    """Put a file in the place of the source, as of some day."""
    shutil.copy(file, "new.svm")
    os.utime("new.svm", (1e9 + 86400 * day,) * 2)
    os.replace("new.svm", "rows.svm")


def run(*overrides, **options):
    return run_pipeline(load_pipeline("tiny.toml", overrides), **options)


def done(record):
    return [name for name, entry in record.stages.items() if entry["state"] == "done"]


def planned(*overrides, **options):
    return dict(plan_pipeline(load_pipeline("tiny.toml", overrides), **options))


def test_a_second_run_has_nothing_to_do(place):
    first = run()
    assert done(first) == STEPS
    assert (first.status, first.exit_code) == ("done", 0)
    second = run()
    assert done(second) == []
    assert second.facts == first.facts
    assert second.change == {"gained": 0, "lost": 0, "drift": 0.0}
    assert (place / "runs/tiny/latest/report.md").read_text().startswith("# tiny")
    assert set(planned().values()) == {"up to date"}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("ingest.codec=zstd", STEPS[1:]),
        ("ingest.split.seed=7", STEPS[1:]),
        ("fit.tau=0.3", ["fit", "evaluate", "report"]),
        ("fit.memory_limit=2GB", []),
        ("report.form=json", ["report"]),
        ("description=other", ["report"]),
        ("evaluate.distributed=true", ["evaluate"]),
        ("history.keep=3", []),
    ],
)
def test_a_changed_parameter_runs_only_what_depends_on_it(place, override, expected):
    before = run()
    plan = planned(override)
    record = run(override)
    assert done(record) == expected
    assert next((step for step in STEPS if plan[step] != "up to date"), None) == next(iter(expected), None)
    if override.startswith("evaluate"):
        assert record.facts == before.facts


def test_changed_data_run_everything_and_what_changed_is_told(place, rows):
    run()
    bring(rows / "1.svm", 2)
    record = run()
    assert done(record) == STEPS
    assert record.change["gained"] == record.change["lost"] > 0
    assert len(record.inputs["rows"]) == 64


def test_a_file_that_is_only_touched_changes_nothing(place, rows):
    run()
    bring(rows / "0.svm", 3)
    assert done(run()) == []


def test_from_runs_a_stage_and_all_later_ones(place):
    run()
    assert done(run(start="fit")) == STEPS[3:]
    assert planned(start="evaluate")["fit"] == "up to date"
    with pytest.raises(BadInput, match="the stages are acquire, ingest"):
        run(start="train")


def test_changed_code_runs_again(place, monkeypatch):
    run()
    versions = {"fit": "other"}
    original = stages.step_key
    monkeypatch.setattr(stages, "step_key", lambda stage, **parts: original(stage, **parts, v=versions.get(stage)))
    assert "fit" in done(run())


def test_outputs_that_were_removed_are_made_again(place):
    run()
    (place / "runs/tiny/latest/report.md").unlink()
    assert done(run()) == ["report"]
    shutil.rmtree(place / "runs/tiny/data/test.zarr")
    assert done(run()) == ["ingest test"]


def test_a_damaged_manifest_costs_work_and_nothing_else(place, caplog):
    first = run()
    (place / "runs/tiny/manifest.json").write_text("{")
    second = run()
    assert "all stages run again" in caplog.text
    assert (second.status, second.facts) == ("done", first.facts)


@pytest.mark.parametrize("where", ["_ingest", "_fit", "_evaluate", "_report"])
def test_a_failed_run_goes_on_at_its_stage(place, monkeypatch, where):
    def fail(*arguments, **options):
        raise GdmError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(stages, where, fail)
        with pytest.raises(GdmError):
            run()
    record = History(place / "runs/tiny").records()[-1]
    assert (record.status, record.exit_code, record.error) == ("failed", 1, "the disk is full")
    again = run()
    assert again.status == "done"
    first = next(step for step in STEPS if step.startswith(where[1:]))
    assert done(again) == STEPS[STEPS.index(first) :]


def test_a_fit_that_was_interrupted_goes_on_from_its_checkpoint(place, monkeypatch):
    class Stop(BaseException):
        signal = 15

    from gdm_dask.run_directory import RunDirectory

    original = RunDirectory.fit

    def interrupted(self, machine, store, **options):
        def stop(iteration):
            if iteration.number == 3:
                raise Stop

        return original(self, machine, store, **options | {"callback": stop})

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "fit", interrupted)
        with pytest.raises(Stop):
            run()
    last = History(place / "runs/tiny").records()[-1]
    assert (last.status, last.exit_code) == ("interrupted", 143)
    assert len(list(place.glob("runs/tiny/runs/*/checkpoint.npz"))) == 1
    seen = []
    monkeypatch.setattr(stages.logger, "info", lambda text, *arguments: seen.append(str(arguments[0])))
    run()
    assert seen[0].startswith("cut 4")


def test_a_source_that_changes_while_it_is_read_is_not_used(place, rows, monkeypatch):
    original = stages.run_ingest

    def replaced(*arguments, **options):
        bring(rows / "1.svm", 4)
        return original(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(stages, "run_ingest", replaced)
        with pytest.raises(BadInput, match="changed while it was read"):
            run()
    assert run().status == "done"


def test_another_run_holds_the_lock(place):
    run()
    lock = FileLock(place / "runs/tiny/.lock")
    lock.acquire("test")
    with lock, pytest.raises(Locked, match="the pipeline tiny"):
        run()
    records = History(place / "runs/tiny").records()
    assert [(record.status, record.exit_code) for record in records] == [("done", 0), ("locked", 4)]


def test_old_runs_are_removed(place):
    for tau in (0.1, 0.2, 0.3, 0.4):
        record = run(f"fit.tau={tau}", "history.keep=2")
    kept = {path.name for path in (place / "runs/tiny/runs").iterdir()}
    assert len(kept) == 2
    assert Path(record.run).name in kept
    assert len(History(place / "runs/tiny").records()) == 4


def test_a_model_that_is_too_bad_is_not_the_latest(place):
    good = run()
    with pytest.raises(BadInput, match=r"below evaluate\.min_accuracy"):
        run("fit.n_features_to_select=1", "evaluate.min_accuracy=1.0")
    assert os.readlink(place / "runs/tiny/latest") == good.run


def test_a_dry_run_writes_nothing(place):
    assert planned()["ingest train"] == "would run"
    assert not (place / "runs").exists()


def test_the_two_parts_of_a_split_share_no_sample_and_lose_none(place):
    run()
    parts = [open_store(place / f"runs/tiny/data/{part}.zarr") for part in ("train", "test")]
    lines = Path("rows.svm").read_text().splitlines()
    assert sum(store.shape[1] for store in parts) == len(lines)
    assert parts[0].shape[0] == parts[1].shape[0]
    assert parts[1].shape[1] == pytest.approx(len(lines) / 4, rel=0.3)


BAD = [
    ("tau = 0.25", "tau = 3", "line 15: fit.tau: a number from 0 to 0.999999 is needed, not 3"),
    ('form = "md"', 'form = "pdf"', "line 19: report.form: one of html, md, json is needed, not 'pdf'"),
    ("scheduler =", "shedule =", "line 16: fit.shedule: there is no such key here; there are n_features_to_select"),
    ('files = "rows"', 'files = "cols"', r"line 8: ingest.train.files: there is no \[acquire.cols\]; there are rows"),
    ('path = "rows.svm"', 'page = "x"', "line 3: acquire.rows: a path or a url is needed"),
    ('path = "rows.svm"', 'url = "https://a/b"', "line 4: acquire.rows.url: a URL needs its sha256"),
    ('reader = "svmlight"', "", r"line 6: ingest.train.reader: this key is missing"),
    ('name = "tiny"', "", "tiny.toml: name: this key is missing"),
    ('name = "tiny"', 'name = "../up"', "line 1: name: '../up' does not have the form"),
    ("[ingest.split]", "[ingest.test]", "line 11: ingest.test.test_fraction: there is no such key here"),
    ("[report]", "[report", r"Expected ']'.*line 18"),
    ("n_features_to_select = 5", "n_features_to_select = true", "line 14: fit.n_features_to_select: a whole number"),
    ("[ingest.train]", "[ingest.trains]", r"line 6: ingest.trains: there is no such key here"),
    ("test_fraction = 0.25", "test_fraction = 0.25\nseed = -1", "line 12: ingest.split.seed: a whole number from 0"),
    ('files = "rows"', "files = []", "line 8: ingest.train.files: the list is empty"),
    ('form = "md"', "image = 28", "line 19: report.image: a list of two values is needed, not 28"),
    ('form = "md"', "image = [28]", r"line 19: report.image: a list of two values is needed, not \[28\]"),
    ('form = "md"', "image = [28, 0]", "line 19: report.image: a whole number from 1 on is needed, not 0"),
    ("[fit]\n", "fit = 3\n[x]\n", "line 13: ingest.split.fit: there is no such key"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_errors_name_the_key_and_the_line(place, old, new, message):
    text = TINY.replace("n_features_to_select = 5", "n_features_to_select = 5\ntau = 0.25")
    assert old in text
    Path("tiny.toml").write_text(text.replace(old, new))
    with pytest.raises(BadInput, match=message):
        load_pipeline("tiny.toml")


@pytest.mark.parametrize("text", ['name = "a"\n', 'name = "a"\n[ingest]\ncodec = "lz4"\n'])
def test_a_pipeline_without_a_training_set_is_refused(place, text):
    Path("tiny.toml").write_text(text)
    with pytest.raises(BadInput, match=r"ingest\.train: this table is missing"):
        load_pipeline("tiny.toml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fit.tau=2", "--set fit.tau=2: fit.tau: a number"),
        ("fit.tua=0.2", "--set fit.tua=0.2: fit.tua: there is no such key"),
        ("tau", "write it as key=value"),
        ("name.x=1", "name is not a table"),
    ],
)
def test_bad_overrides_are_named(place, override, message):
    with pytest.raises(BadInput, match=message):
        load_pipeline("tiny.toml", [override])


def test_values_of_several_lines_do_not_shift_the_lines(place):
    text = TINY.replace('name = "tiny"', 'name = "tiny"\ndescription = """\n[fit]\ntau = 9\n"""')
    Path("tiny.toml").write_text(text.replace("test_fraction = 0.25", "test_fraction = 7"))
    with pytest.raises(BadInput, match=r"line 15: ingest\.split\.test_fraction"):
        load_pipeline("tiny.toml")


@pytest.mark.parametrize("file", sorted(ROOT.glob("pipelines/*.toml")), ids=lambda path: path.stem)
def test_the_pipelines_that_come_with_the_project_are_right(file, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
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


def test_tuning_is_part_of_a_fit(place):
    record = run("fit.tune.C=[1, 50]", "fit.tune.folds=2", "fit.tune.tau=0.25")
    table = json.loads((place / "runs/tiny" / record.run / "tuning.json").read_bytes())
    assert len(table["table"]) == 2
    assert table["best"] in table["table"]
    model = json.loads((place / "runs/tiny" / record.run / "model.json").read_bytes())
    assert model["parameters"]["C"] == table["best"]["C"]


LOADED = """
import sys
from pathlib import Path
import numpy as np
STAGE, FOLDER = sys.argv[1:]
if STAGE == "ingest":
    from gdm_dask.ingestion import run_ingest
    Path(f"{FOLDER}/a.svm").write_text("1 1:2 3:1\\n-1 2:1\\n")
    run_ingest(f"{FOLDER}/a.svm", f"{FOLDER}/a.zarr", scheduler="synchronous")
else:
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.run_directory import RunDirectory
    from gdm_dask.store import open_store
    from gdm_dask.tuning import tune
    store = open_store(f"{FOLDER}/a.zarr")
    RunDirectory(Path(FOLDER) / "run").fit(GroupDiscoveryMachine(scheduler="synchronous"), store)
for module in list(sys.modules.values()):
    if module.__name__.startswith("gdm_dask."):
        print(module.__file__)
"""


def test_the_code_of_a_stage_is_all_that_it_loads(tmp_path):
    """What Python loads while a stage works, against what its key is made of."""
    package = Path(gdm_dask.__file__).parent
    for stage in ("ingest", "fit"):
        ran = subprocess.run(
            [sys.executable, "-c", LOADED, stage, str(tmp_path)], check=True, capture_output=True, text=True
        )
        loaded = {Path(line) for line in ran.stdout.split()} - {package / "kernel_cache.py"}
        assert package / "store/block.py" in loaded
        assert loaded <= set(code_behind(stage))


def test_stages_do_not_depend_on_later_ones():
    package = Path(gdm_dask.__file__).parent
    assert package / "master.py" not in code_behind("ingest")
    assert package / "report/html.py" not in code_behind("fit")
    assert package / "report/html.py" in code_behind("report")
