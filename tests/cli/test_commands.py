"""The command line as users see it: wrong options, warnings, and the documented exit codes."""

import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.store_helpers import GDM, gdm, run_gdm, some_labels, some_matrix, write_svmlight

from gdm_dask import GroupDiscoveryMachine, ingest, open_store
from gdm_dask.cli.app import ORDER
from gdm_dask.cli.cluster_commands import _row
from gdm_dask.cli.console import show_columns


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("commands")
    ingest(some_matrix(), place / "train.zarr", some_labels(60))
    return place / "train.zarr"


@pytest.mark.parametrize(
    "command",
    [
        ["synth", "out.svm", "--like", "paper", "--seed", "-1"],
        ["stability", "run", "train.zarr", "--seed", "-1"],
        ["demo", "--seed", "-1"],
        ["demo", "-k", "0"],
        ["groups", "run", "--members", "-1"],
        ["fit", "train.zarr", "--run", "run", "--workers", "0"],
    ],
)
def test_numbers_out_of_range_are_refused(capsys, command) -> None:
    code, _, err = gdm(capsys, *command)
    assert code == 2
    assert re.search(rf"Invalid value for '(--[\w-]+' / ')?{command[-2]}'", err)


def test_help_lists_the_commands_from_the_data_to_the_report(capsys) -> None:
    out = gdm(capsys, "--help")[1]
    listed = re.findall(r"^. (\w+) +[A-Z]", out, re.MULTILINE)
    assert listed == list(ORDER)


def test_the_demo_replaces_nothing_by_itself(capsys, store) -> None:
    before = open_store(store).fingerprint
    code, _, err = gdm(capsys, "demo", "--folder", store.parent)
    assert (code, "train.zarr exists" in err) == (2, True)
    assert open_store(store).fingerprint == before


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_the_demo_names_only_what_it_leaves(capsys, tmp_path: Path, monkeypatch, kept: bool) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "demo"
    code, out, _ = gdm(capsys, "demo", "-k", "5", *(("--folder", folder) if kept else ()))
    assert code == 0
    assert re.search(r"^test accuracy +0\.\d+ with 5 of 10,000 features$", out, re.MULTILINE)
    named = {Path(word) for word in re.findall(rf"{re.escape(str(tmp_path))}\S*", out)}
    assert named == ({folder / "run", folder / "report.html"} if kept else set())
    assert all(path.exists() for path in named)


def test_a_warning_is_a_line_of_the_log(store, tmp_path: Path) -> None:
    code, _, err = run_gdm("fit", store, "--run", tmp_path / "run", "-k", "10000", "--scheduler", "synchronous")
    assert code == 0
    lines = [line for line in err.splitlines() if "fewer than n_features_to_select=10000" in line]
    assert len(lines) == 1
    assert lines[0].split()[1:4] == ["support", "features", "were"]


def test_a_full_disk_is_not_bad_input(store) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = run_gdm("info", store, stdout=full)
    assert (code, err) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-", "2>/dev/full"])
def test_streams_that_take_no_text_leave_the_exit_code(store, streams: str) -> None:
    for place, expected in ((store, 0), (store.parent / "nowhere", 2)):
        command = ["sh", "-c", f'exec "$@" {streams}', "sh", *GDM, "info", str(place)]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (expected, False)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_seen_enough_is_no_failure(store, options: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _, err = run_gdm("info", store, *options, stdout=writer)
    os.close(writer)
    assert (code, err) == (0, "")


def test_characters_that_a_terminal_lacks_are_escaped(tmp_path: Path) -> None:
    store = ingest(some_matrix(), tmp_path / "x.zarr", np.where(some_labels(60) > 0, "\u03b1", "caf\xe9"))
    code, out, _ = run_gdm(
        "info", store.url, env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}, encoding="latin-1"
    )
    assert (code, "2 classes: caf\xe9 (" in out, "\\u03b1 (" in out) == (0, True, True)


def test_names_of_files_may_be_any_bytes(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff")
    source, store = write_svmlight(tmp_path / f"{name}.svm", some_matrix(), some_labels(60)), tmp_path / f"{name}.zarr"
    run = tmp_path / f"run{name}"
    assert run_gdm("ingest", source, store)[0] == 0
    assert run_gdm("fit", store, "--run", run, "-k", "2", "--scheduler", "synchronous")[0] == 0
    for suffix in ("html", "md", "json"):
        code, out, _ = run_gdm("report", run, "-o", tmp_path / f"{name}.{suffix}")
        assert (code, f"\\udcff.{suffix}: " in out) == (0, True)


def test_memory_that_does_not_suffice_ends_in_one_line(capsys, store, monkeypatch) -> None:
    def greedy(*_: object) -> None:
        raise MemoryError("Unable to allocate 1 TB")

    monkeypatch.setattr("gdm_dask.store.open_store", greedy)
    code, _, err = gdm(capsys, "info", store)
    assert (code, err) == (1, "error: the memory of this computer does not suffice: Unable to allocate 1 TB\n")


def test_a_wrong_place_is_bad_input(store, tmp_path: Path) -> None:
    text = write_svmlight(tmp_path / "x.svm", some_matrix(), some_labels(60))
    code, _, err = run_gdm("ingest", text, store / "targets" / "zarr.json" / "new.zarr")
    assert (code, "zarr.json" in err) == (2, True)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["synth", "a.svm", "--like", "news20", "--test", "a.svm"], "must have another name"),
        (
            ["ingest", "a.svm", "a.zarr", "--scratch", "s3://b/c"],
            "the scratch folder must be a local folder, got s3://b",
        ),
        (["fit", "--run", "s3://bucket/run", "-k", 2], "the run directory must be a local folder, got s3://bucket/run"),
    ],
)
def test_wrong_places_are_refused_before_the_work(capsys, store, tmp_path: Path, monkeypatch, command, message) -> None:
    monkeypatch.chdir(tmp_path)
    write_svmlight(tmp_path / "a.svm", some_matrix(), some_labels(60))
    code, _, err = gdm(capsys, *command, *([store] if command[0] == "fit" else []))
    assert (code, message in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_groups_that_were_not_searched_for_are_not_none(capsys, store, tmp_path: Path) -> None:
    options = ["--scheduler", "synchronous", "-k", "2"]
    found = gdm(capsys, "fit", store, "--run", tmp_path / "a", *options)[1]
    assert re.search(r"^groups +\d+ with affiliated features", found, re.MULTILINE)
    found = gdm(capsys, "fit", store, "--run", tmp_path / "b", *options, "--no-groups")[1]
    assert re.search(r"^groups +not searched for$", found, re.MULTILINE)


def test_a_fit_stops_at_its_supports_and_can_be_certified(capsys, store, tmp_path: Path) -> None:
    options = ["--scheduler", "synchronous", "-k", "2"]
    found = gdm(capsys, "fit", store, "--run", tmp_path / "a", *options)[1]
    assert re.search(r"^cuts .* supports entered, stopped at 2 supports$", found, re.MULTILINE)
    assert re.search(r"^strongest +\S.*, \S.*; gdm groups \S+/a prints all$", found, re.MULTILINE)
    assert "certificate" not in found
    found = gdm(capsys, "fit", store, "--run", tmp_path / "b", *options, "--certify")[1]
    proved = r"^certificate +The supports explain at least \d+\.\d% of what any 2 uncorrelated features can explain; "
    assert re.search(proved + r"the proof took \d+ reads? of the data\.$", found, re.MULTILINE)
    assert gdm(capsys, "report", tmp_path / "b", "-o", tmp_path / "report.md")[0] == 0
    assert "The supports explain at least" in (tmp_path / "report.md").read_text().partition("## Bounds")[2]
    code, _, err = gdm(capsys, "fit", store, "--run", tmp_path / "c", "--certify", "--scheduler", "synchronous")
    assert (code, "set `n_features_to_select`" in err) == (2, True), err


def test_classes_have_the_same_weight_in_all(capsys, store, tmp_path: Path) -> None:
    options = ["--run", tmp_path / "run", "-k", "2", "--scheduler", "synchronous", "--class-weight"]
    assert gdm(capsys, "fit", store, *options, "balanced")[0] == 0
    expected = GroupDiscoveryMachine(2, class_weight="balanced").fit(store)
    found = GroupDiscoveryMachine.load(tmp_path / "run")
    assert found.class_weight == "balanced"
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    code, _, err = gdm(capsys, "fit", store, *options, "equal", "--overwrite")
    assert (code, "`class_weight` must be None, 'balanced' or a dict of weights >= 0, got 'equal'" in err) == (2, True)


def test_fits_of_other_commands_have_workers_and_a_memory_limit_too(capsys, store, tmp_path: Path) -> None:
    assert gdm(capsys, "fit", store, "--run", tmp_path / "run", "-k", "2", "--scheduler", "synchronous")[0] == 0
    commands = [["stability", tmp_path / "run", store, "--repeats", "2"], ["tune", store, "-k", "2", "--tau", "0.25"]]
    for command in commands:
        code, _, err = gdm(capsys, *command, "--scheduler", "threads", "--workers", "1")
        assert (code, "engine: 1 threads" in err) == (0, True), err
        code, _, err = gdm(capsys, *command, "--memory-limit", "1MB")
        assert (code, "a memory limit of 1 MB is too low" in err) == (2, True), err


def test_info_describes_a_model(capsys, store, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert gdm(capsys, "fit", store, "--run", run, "-k", "3", "--scheduler", "synchronous")[0] == 0
    code, out, _ = gdm(capsys, "info", run)
    assert (code, f"fitted on   {store}" in out, "n_features_to_select=3" in out) == (0, True, True)
    facts = json.loads(gdm(capsys, "info", run, "--json")[1])
    assert (facts["n_supports"], facts["parameters"]["tau"], facts["store"]) == (3, 0.25, str(store))


def test_groups_tell_what_each_support_speaks_for(capsys, store, tmp_path: Path) -> None:
    run = tmp_path / "run"
    gdm(capsys, "fit", store, "--run", run, "-k", "3", "--scheduler", "synchronous")
    header, *rows = gdm(capsys, "groups", run)[1].splitlines()
    assert re.split(r"  +", header.strip())[:4] == ["support", "weight", "speaks for", "members"]
    table = GroupDiscoveryMachine.load(run).supports_
    expected = table[["name", "speaks_for", "members"]].astype(str).to_numpy().tolist()
    assert [[row.split()[place] for place in (0, 2, 3)] for row in rows] == expected


def test_stability_knows_the_training_store(capsys, store, tmp_path: Path, monkeypatch) -> None:
    run = tmp_path / "run"
    gdm(capsys, "fit", store, "--run", run, "-k", "2", "--scheduler", "synchronous")
    code, out, _ = gdm(capsys, "stability", run, "--repeats", "2", "--json", "--scheduler", "synchronous")
    assert (code, json.loads(out)["n_repeats"]) == (0, 2)
    monkeypatch.chdir(store.parent)
    gdm(capsys, "fit", store.name, "--run", run, "-k", "2", "--scheduler", "synchronous", "--overwrite")
    monkeypatch.chdir(tmp_path)
    assert gdm(capsys, "stability", run, "--repeats", "2", "--scheduler", "synchronous")[0] == 0
    (run / "run.json").unlink()
    code, _, err = gdm(capsys, "stability", run, "--repeats", "2")
    assert (code, "Pass the training store" in err) == (2, True)


def test_a_result_that_cannot_be_written_is_refused_before_the_work(capsys, store, tmp_path: Path, monkeypatch) -> None:
    run = tmp_path / "run"
    gdm(capsys, "fit", store, "--run", run, "-k", "2", "--scheduler", "synchronous")
    code, _, err = gdm(capsys, "tune", store, "-k", "2", "-o", tmp_path / "none" / "table.json")
    assert (code, "table.json: cannot be written" in err, "tau" in err) == (2, True, False)
    monkeypatch.setattr("os.access", lambda _, mode: not mode & os.W_OK)  # the superuser may write to any folder
    code, _, err = gdm(capsys, "stability", run, "--repeats", "2")
    assert (code, "stability.json: cannot be written" in err, "subsample" in err) == (2, True, False)


def test_tune_has_values_to_try(capsys, store, tmp_path: Path) -> None:
    code, out, err = gdm(capsys, "tune", store, "-k", "2", "-o", tmp_path / "table.json", "--scheduler", "synchronous")
    assert (code, out.startswith("tau  0.")) == (0, True)
    assert re.findall(r"tau (\S+): accuracy \d\.\d{4}, standard deviation", err) == ["0.1", "0.25", "0.5"]
    assert [row["tau"] for row in json.loads((tmp_path / "table.json").read_text())["table"]] == [0.1, 0.25, 0.5]


def test_ids_ends_and_errors_of_jobs_are_shown_whole_in_a_log(capsys) -> None:
    ids = ["gdm-job-20260101-000000-abcdef", "gdm-job-20260101-000001-012345"]
    progress = {"cuts": 20, "supports": 100, "gap": 0.4, "memory": 5 * 10**8, "expected_end": 1.8e9}
    error = "/shared/train.zarr: there is no feature store here. Make one with 'gdm ingest'. " * 2
    states = [
        {"job": ids[0], "state": "running", "error": "", "last": "reads the store", **progress},
        {"job": ids[1], "state": "failed", "error": error},
        {"job": ids[1], "state": "failed", "error": None},
    ]
    show_columns([_row(state) for state in states])
    shown = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    end = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1.8e9))
    assert shown[0] == [ids[0], "running", "20", "100", "40.00%", "500 MB", end, "reads the store"]
    assert shown[1] == [ids[1], "failed", error.strip()]
    assert shown[2] == [ids[1], "failed", f"gdm status {ids[1]} prints the error"]
