"""Pipelines: checked files, stages that run only after a change, and runs that resume where they failed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.soak import TINY

import gdm_dask
from gdm_dask import ingestion, load_model, open_store
from gdm_dask.errors import BadInput, GdmError, Locked
from gdm_dask.features.measures import MEASURES
from gdm_dask.ingestion.sources.lookalikes.files import KINDS, synthesise
from gdm_dask.pipeline import load_pipeline, plan_pipeline, run_pipeline, step, steps
from gdm_dask.pipeline.history import History
from gdm_dask.pipeline.readers import _READERS
from gdm_dask.pipeline.schema import Key, Table
from gdm_dask.pipeline.step import Step, code_behind
from gdm_dask.settings.settings import LINKAGES
from gdm_dask.system.locks import FileLock

ROOT = Path(__file__).parents[2]
STEPS = ["acquire", "ingest train", "ingest test", "fit", "evaluate", "report"]


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for seed in (0, 1):
        synthesise("url", folder / f"{seed}.svm", 0.0003, seed)
    return folder


def enter(folder, patch, rows):
    """Go to a folder with the pipeline and its source."""
    patch.chdir(folder)
    patch.delenv("GDM_DATA", raising=False)
    patch.delenv("GDM_RUNS", raising=False)
    (folder / "tiny.toml").write_text(TINY)
    bring(rows / "0.svm", 1)


@pytest.fixture
def place(tmp_path, monkeypatch, rows):
    enter(tmp_path, monkeypatch, rows)
    return tmp_path


@pytest.fixture(scope="module")
def finished(rows, tmp_path_factory):
    """A folder in which the pipeline has run once, and the record of that run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch, rows)
        return folder, run()


@pytest.fixture
def before(place, finished):
    """Return the record of a first run, whose results `place` then holds."""
    folder, record = finished
    shutil.copytree(folder / "runs", place / "runs", symlinks=True)
    return record


def bring(file, day):
    """Replace the source by a file with a given date."""
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
def test_a_changed_parameter_runs_only_what_depends_on_it(before, override, expected):
    plan = planned(override)
    record = run(override)
    assert done(record) == expected
    assert next((step for step in STEPS if plan[step] != "up to date"), None) == next(iter(expected), None)
    if override.startswith("evaluate"):
        assert record.facts == before.facts


def test_changed_data_run_everything_and_what_changed_is_told(rows, before):
    bring(rows / "1.svm", 2)
    record = run()
    assert done(record) == STEPS
    assert record.change["gained"] == record.change["lost"] > 0
    assert len(record.inputs["rows"]) == 64


def test_a_file_that_is_only_touched_changes_nothing(rows, before):
    bring(rows / "0.svm", 3)
    assert done(run()) == []


def test_from_runs_a_stage_and_all_later_ones(before):
    assert done(run(start="fit")) == STEPS[3:]
    plan = planned(start="evaluate")
    assert [plan[name] for name in STEPS[3:]] == ["up to date", "would run", "would run"]
    assert set(planned(start="acquire").values()) == {"would run"}
    with pytest.raises(BadInput, match="--from must be one of acquire, ingest, fit, evaluate, report, got 'train'"):
        run(start="train")


def test_changed_code_runs_again(monkeypatch, before):
    original = step.code_version
    monkeypatch.setattr(step, "code_version", lambda kind: "other" if kind is steps.Fit else original(kind))
    assert done(run()) == ["fit", "evaluate", "report"]


def test_outputs_that_were_removed_are_made_again(place, before):
    (place / "runs/tiny/latest/report.md").unlink()
    assert done(run()) == ["report"]
    shutil.rmtree(place / "runs/tiny/data/test.zarr")
    assert done(run()) == ["ingest test"]


def test_a_damaged_manifest_costs_work_and_nothing_else(place, before, caplog):
    (place / "runs/tiny/manifest.json").write_text("{")
    second = run()
    assert "all stages run again" in caplog.text
    assert (second.status, second.facts) == ("done", before.facts)


@pytest.mark.parametrize("kind", [steps.Ingest, steps.Fit, steps.Evaluate, steps.Report])
def test_a_failed_run_goes_on_at_its_stage(place, monkeypatch, kind):
    def fail(*arguments, **options):
        raise GdmError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(kind, "run", fail)
        with pytest.raises(GdmError):
            run()
    record = History(place / "runs/tiny").records()[-1]
    assert (record.status, record.exit_code, record.error) == ("failed", 1, "the disk is full")
    again = run()
    assert again.status == "done"
    first = next(name for name in STEPS if name.startswith(kind.stage))
    assert done(again) == STEPS[STEPS.index(first) :]


def test_a_fit_that_was_interrupted_goes_on_from_its_checkpoint(place, monkeypatch):
    class Stop(BaseException):
        signal = 15

    from gdm_dask.pipeline.run_directory import RunDirectory

    original = RunDirectory.fit

    def interrupted(self, machine, store, *options):
        def stop(iteration):
            if iteration.number == 3:
                raise Stop

        return original(self, machine, store, *options[:2], stop)

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "fit", interrupted)
        with pytest.raises(Stop):
            run("fit.C=50.0")
    last = History(place / "runs/tiny").records()[-1]
    assert (last.status, last.exit_code) == ("interrupted", 143)
    assert len(list(place.glob("runs/tiny/runs/*/checkpoint.npz"))) == 1
    seen = []
    monkeypatch.setattr(steps.logger, "info", lambda text, *arguments: seen.append(str(arguments[0])))
    run("fit.C=50.0")
    assert seen[0].startswith("cut 4")


@pytest.mark.parametrize("damage", ["short", "folder", "of another fit"])
def test_a_damaged_checkpoint_costs_work_and_nothing_else(place, before, caplog, damage):
    """An unattended run cannot pass --overwrite."""
    (folder,) = (place / "runs/tiny/runs").iterdir()
    for file in folder.iterdir():
        file.unlink()
    if damage == "folder":
        (folder / "checkpoint.npz").mkdir()
    else:
        old = ROOT / "tests/data/version_0_1/checkpoint.npz"
        (folder / "checkpoint.npz").write_bytes(old.read_bytes()[: 99 if damage == "short" else None])
    again = run()
    assert (again.status, again.facts) == ("done", before.facts)
    assert "checkpoint.npz: the checkpoint " in caplog.text
    assert "The fit starts over." in caplog.text
    assert not (folder / "checkpoint.npz").exists()


def test_a_source_that_changes_while_it_is_read_is_not_used(place, rows, monkeypatch):
    original = ingestion.run_ingest

    def replaced(*arguments, **options):
        bring(rows / "1.svm", 4)
        return original(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ingestion, "run_ingest", replaced)
        with pytest.raises(BadInput, match="changed while it was read"):
            run()
    assert run().status == "done"


def test_another_run_holds_the_lock(place, before):
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


def test_a_model_that_is_too_bad_is_not_the_latest(place, before):
    with pytest.raises(BadInput, match=r"below evaluate\.min_accuracy"):
        run("fit.n_features_to_select=1", "evaluate.min_accuracy=1.0")
    with pytest.raises(BadInput, match=r"evaluate\.min_r2 does not fit the target: set evaluate\.min_accuracy instead"):
        run("evaluate.min_r2=0.1")
    assert os.readlink(place / "runs/tiny/latest") == before.run


def test_a_dry_run_writes_nothing(place):
    assert planned()["ingest train"] == "would run"
    assert not (place / "runs").exists()


def test_a_dry_run_names_a_missing_file(place):
    Path("rows.svm").unlink()
    with pytest.raises(BadInput, match=r"acquire\.rows: rows\.svm does not exist"):
        list(plan_pipeline(load_pipeline("tiny.toml")))


def test_checksums_of_removed_files_are_forgotten(place):
    run()
    Path("rows.svm").rename("moved.svm")
    run("acquire.rows.path=moved.svm")
    assert list(json.loads(Path("runs/tiny/manifest.json").read_bytes())["files"]) == [str(place / "moved.svm")]


def test_the_two_parts_of_a_split_share_no_sample_and_lose_none(place, before):
    parts = [open_store(place / f"runs/tiny/data/{part}.zarr") for part in ("train", "test")]
    lines = Path("rows.svm").read_text().splitlines()
    assert sum(store.shape[1] for store in parts) == len(lines)
    assert parts[0].shape[0] == parts[1].shape[0]
    assert parts[1].shape[1] == pytest.approx(len(lines) / 4, rel=0.3)


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
    from gdm_dask.pipeline.run_directory import RunDirectory
    from gdm_dask.store import open_store
    from gdm_dask.analysis.cross_validation import tune
    store = open_store(f"{FOLDER}/a.zarr")
    RunDirectory(Path(FOLDER) / "run").fit(GroupDiscoveryMachine(scheduler="synchronous"), store)
for module in list(sys.modules.values()):
    if module.__name__.startswith("gdm_dask."):
        print(module.__file__)
"""


def test_the_code_of_a_stage_is_all_that_it_loads(tmp_path):
    """Compare the modules that Python loads while a stage runs with those in its key."""
    package = Path(gdm_dask.__file__).parent
    for kind in (steps.Ingest, steps.Fit):
        ran = subprocess.run(
            [sys.executable, "-c", LOADED, kind.stage, str(tmp_path)], check=True, capture_output=True, text=True
        )
        always = {package / "system/__init__.py"}
        loaded = {Path(line) for line in ran.stdout.split()} - always
        assert package / "features/block.py" in loaded
        assert loaded <= set(code_behind(kind))


def test_steps_do_not_depend_on_later_ones():
    package = Path(gdm_dask.__file__).parent
    assert package / "master/problem.py" not in code_behind(steps.Ingest)
    assert package / "report/write.py" not in code_behind(steps.Fit)
    assert package / "report/write.py" in code_behind(steps.Report)
    assert package / "analysis/metrics.py" in code_behind(steps.Evaluate)


def test_every_reader_and_every_kind_of_data_can_be_chosen():
    keys = steps.Ingest.table.keys["train"].keys
    assert keys["reader"].choices == tuple(_READERS)
    assert keys["like"].choices == KINDS


class Rank(Step):
    """A step unknown to the package: it writes the supports to a file."""

    name, stage = "rank", "rank"
    table = Table({"top": Key(int, between=(1, 100))})
    runs: ClassVar[list[str]] = []

    def inputs(self, context):
        return {"model": context.of("fit")["model"], "top": context.pipeline.table("rank").get("top", 3)}

    def run(self, context, key):
        from gdm_dask import GroupDiscoveryMachine

        self.runs.append(key)
        top = context.pipeline.table("rank").get("top", 3)
        features = GroupDiscoveryMachine.load(context.run()).support_features_[:top].tolist()
        (context.folder / "rank.json").write_text(json.dumps(features))
        return {"features": features}

    def is_there(self, context, outputs):
        return (context.folder / "rank.json").exists()

    def conclude(self, context, outputs, record):
        record.facts["top"] = outputs["features"]


def test_a_step_is_added_by_its_class_alone(place, monkeypatch):
    """It runs, is skipped if nothing changed, and runs again if its input, settings or output changed."""
    monkeypatch.setattr(steps, "STEPS", (*steps.STEPS, Rank))
    monkeypatch.setattr(Rank, "runs", [])
    assert planned()["rank"] == "would run if an earlier step does"
    first = run()
    assert done(first) == [*STEPS, "rank"]
    assert first.facts["top"] == json.loads((place / "runs/tiny/rank.json").read_text())
    assert len(first.facts["top"]) == 3
    second = run()
    assert done(second) == []
    assert second.facts["top"] == first.facts["top"]
    assert done(run("rank.top=2")) == ["rank"]
    assert "rank" in done(run("rank.top=2", "fit.n_features_to_select=4"))
    (place / "runs/tiny/rank.json").unlink()
    assert done(run("rank.top=2", "fit.n_features_to_select=4")) == ["rank"]
    assert done(run("rank.top=2", "fit.n_features_to_select=4", start="rank")) == ["rank"]
    assert len(Rank.runs) == 5
    with pytest.raises(BadInput, match=r"rank\.top must be an integer in \[1, 100\], got 0"):
        run("rank.top=0")


def test_a_pipeline_sets_measure_and_linkage(place):
    keys = steps.Fit.table.keys
    assert keys["measure"].choices == tuple(MEASURES)
    assert keys["linkage"].choices == LINKAGES
    record = run("fit.measure=spearman", "fit.linkage=clique")
    model = load_model(place / "runs/tiny" / record.run)
    assert (model.measure, model.linkage) == ("spearman", "clique")
    assert planned("fit.measure=spearman", "fit.linkage=clique")["fit"] == "up to date"
    assert planned("fit.measure=spearman", "fit.linkage=star")["fit"] != "up to date"
    with pytest.raises(BadInput, match=r"fit\.measure must be"):
        load_pipeline("tiny.toml", ["fit.measure=kendall"])
