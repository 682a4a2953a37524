"""The history of a pipeline, metrics, logs and exit codes; and a schedule in fast motion."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from helpers.soak import soak
from helpers.store_helpers import gdm

from gdm_dask.cli import pipeline_commands  # noqa: F401 (registers its commands)
from gdm_dask.cli.app import app
from gdm_dask.cli.logs import JsonLines
from gdm_dask.cli.main import run
from gdm_dask.errors import EngineError
from gdm_dask.pipeline import load_pipeline, run_pipeline
from gdm_dask.pipeline.history import History, Record, change_between, write_metrics
from gdm_dask.pipeline.runner import remove_old_runs
from gdm_dask.system.locks import FileLock

PAPER = """\
name = "paper"
[ingest.train]
reader = "twin"
like = "paper"
scale = 0.03
[fit]
n_features_to_select = 3
scheduler = "synchronous"
[report]
form = "json"
"""


def machine(groups, names=None):
    return SimpleNamespace(
        groups_={support: np.array(members) for support, members in groups.items()},
        support_features_=np.array(list(groups)),
        names_=names or {},
        name_of=lambda feature: (names or {}).get(int(feature), str(feature)),
    )


def test_supports_gained_and_lost_and_the_drift_of_groups():
    change = change_between(machine({1: [1, 2], 5: [5]}), machine({1: [1, 2, 3, 4], 7: [7], 8: [8]}))
    assert change == {"gained": 1, "lost": 2, "drift": 0.5}
    assert change_between(machine({1: [1]}), machine({2: [2]}))["drift"] is None


def test_names_are_compared_where_there_are_some():
    here = machine({1: [1, 2]}, {1: "cheap", 2: "buy"})
    there = machine({8: [3, 8]}, {8: "cheap", 3: "buy"})
    assert change_between(here, there) == {"gained": 0, "lost": 0, "drift": 0.0}


def test_runs_without_an_end_were_killed(tmp_path):
    history = History(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    ours = history.begin("p")
    dead = Record(f"{ours.id.rpartition('-')[0]}-{ended.pid}", "p", ours.started)
    alive = Record(f"{ours.id.rpartition('-')[0]}-{os.getppid()}", "p", ours.started)
    elsewhere = Record("20200101T000000000000-another-host-1", "p", ours.started)
    # in a container every run is the process of the same number
    before = Record(f"20200101T000000000000-{ours.id.partition('-')[2]}", "p", ours.started)
    for record in (dead, alive, elsewhere, before):
        history.write(record)
    (tmp_path / "history" / "x.json").write_text("damaged")
    history.settle(ours)
    found = {record.id: (record.status, record.exit_code) for record in history.records()}
    assert found == {
        ours.id: ("running", None),
        dead.id: ("killed", 137),
        alive.id: ("running", None),
        elsewhere.id: ("killed", 137),
        before.id: ("killed", 137),
    }


def test_metrics_keep_what_a_failed_run_does_not_know(tmp_path):
    path = tmp_path / "gdm.prom"
    facts = {"accuracy": 0.5, "redundancy_rate": 0.25, "n_supports": 7}
    write_metrics(path, Record("a", 'a "b"', "2026-01-01T00:00:00Z", "done", 0, 2.5, facts=facts, change={"gained": 1}))
    write_metrics(path, Record("b", 'a "b"', "2026-01-02T00:00:00Z", "failed", 2, 1.5))
    lines = path.read_text().splitlines()
    assert 'gdm_accuracy{pipeline="a \\"b\\""} 0.5' in lines
    assert 'gdm_run_exit_code{pipeline="a \\"b\\""} 2.0' in lines
    assert 'gdm_run_success_timestamp_seconds{pipeline="a \\"b\\""} 1767225600.0' in lines
    assert 'gdm_run_started_timestamp_seconds{pipeline="a \\"b\\""} 1767312000.0' in lines
    assert sum(line.startswith("# TYPE") for line in lines) == 8


def test_metrics_of_two_pipelines_share_a_file(tmp_path):
    path = tmp_path / "gdm.prom"
    path.write_bytes(b'\xff\ngdm_accuracy{pipeline="c"} much\nother_metric{pipeline="a"} 1\n')
    for name, accuracy in (("a", 0.5), ("b", 0.25), ("a", 0.75)):
        write_metrics(path, Record("x", name, "2026-01-01T00:00:00Z", "done", 0, 1.0, facts={"accuracy": accuracy}))
    write_metrics(path, Record("x", "b", "2026-01-01T00:00:00Z", "failed", 2, 1.0))
    lines = path.read_text().splitlines()
    assert [line for line in lines if line.startswith("gdm_accuracy")] == [
        'gdm_accuracy{pipeline="a"} 0.75',
        'gdm_accuracy{pipeline="b"} 0.25',
    ]
    assert sum(line.startswith("# TYPE gdm_accuracy") for line in lines) == 1


def test_metrics_of_pipelines_that_end_together_are_all_kept(tmp_path):
    path, n_each = tmp_path / "gdm.prom", 20
    together = threading.Barrier(2)

    def end(name):
        together.wait(60)
        for k in range(n_each):
            write_metrics(path, Record("x", f"{name}{k}", "2026-01-01T00:00:00Z", "done", 0, 1.0))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(end, "ab"))
    lines = path.read_text().splitlines()
    assert sum(line.startswith("gdm_run_exit_code{") for line in lines) == 2 * n_each
    assert [file.name for file in tmp_path.iterdir()] == ["gdm.prom"]


def test_needed_runs_are_never_removed(tmp_path):
    for day, name in enumerate("abcde"):
        (tmp_path / name).mkdir()
        if name != "e":
            (tmp_path / name / "model.json").touch()
            os.utime(tmp_path / name / "model.json", (1e9 + day,) * 2)
    remove_old_runs(tmp_path, 2, {"a", "d"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "d"]


def test_log_lines_are_json():
    record = logging.makeLogRecord(
        {"name": "gdm_dask.x", "levelname": "INFO", "msg": "cut %d", "args": (3,), "step": "fit"}
    )
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["step"], line["level"], line["logger"]) == ("cut 3", "fit", "info", "gdm_dask.x")
    try:
        raise ValueError("no")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "ValueError: no" in json.loads(JsonLines().format(record))["traceback"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GDM_RUNS", raising=False)
    (tmp_path / "paper.toml").write_text(PAPER)
    return tmp_path


def test_the_command_line_runs_and_tells(place, capsys):
    app(["run", "paper.toml"], standalone_mode=False)
    app(["run", "paper.toml"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "up to date  acquire, ingest train, fit, evaluate, report" in printed
    assert "3 supports" in printed
    app(["run", "paper.toml", "--dry-run", "--set", "fit.tau=0.4"], standalone_mode=False)
    assert "would run" in capsys.readouterr().out
    app(["history", "paper.toml"], standalone_mode=False)
    assert capsys.readouterr().out.count("done") == 2
    app(["history", "paper.toml", "--json", "--last", "1"], standalone_mode=False)
    (record,) = json.loads(capsys.readouterr().out)
    assert record["change"] == {"gained": 0, "lost": 0, "drift": 0.0}
    app(
        ["tune", "runs/paper/data/train.zarr", "-k", "2", "--C", "1", "--C", "50", "--folds", "2"],
        standalone_mode=False,
    )
    assert capsys.readouterr().out.startswith("C")


def test_exit_codes_and_json_logs(place, capsys):
    code, _, err = gdm(capsys, "--log-format", "json", "run", "paper.toml")
    assert code == 0, err
    lines = [json.loads(line) for line in err.splitlines()]
    assert [line["step"] for line in lines if "step" in line] == [
        "acquire",
        "ingest train",
        "fit",
        "evaluate",
        "report",
    ]
    lock = FileLock(place / "runs/paper/.lock")
    lock.acquire("test")
    with lock:
        assert gdm(capsys, "run", "paper.toml")[0] == 4
    code, _, err = gdm(capsys, "run", "paper.toml", "--set", "fit.tau=9")
    assert (code, "fit.tau" in err) == (2, True)
    statuses = [(record.status, record.exit_code) for record in History(place / "runs/paper").records()]
    assert statuses == [("done", 0), ("locked", 4)]


def test_a_cluster_that_is_not_there_ends_a_run_with_3(place, monkeypatch):
    monkeypatch.setitem(dask.config.config["gdm_dask"], "wait-for-workers", 1.0)
    with pytest.raises(EngineError, match="no Dask scheduler answers"):
        run_pipeline(load_pipeline("paper.toml", ["fit.scheduler=tcp://127.0.0.1:1"]))
    (record,) = History(place / "runs/paper").records()
    assert (record.status, record.exit_code, record.stages["fit"]["state"]) == ("failed", 3, "failed")


def test_metrics_that_cannot_be_written_change_nothing(place, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(logging.getLogger("gdm_dask"), "propagate", True)
    nowhere = f"history.prometheus={place / 'paper.toml'}/gdm.prom"
    assert run_pipeline(load_pipeline("paper.toml", [nowhere])).status == "done"
    assert "history.prometheus" in caplog.text
    monkeypatch.setitem(dask.config.config["gdm_dask"], "wait-for-workers", 1.0)
    with pytest.raises(EngineError):  # and none about the metrics
        run_pipeline(load_pipeline("paper.toml", [nowhere, "fit.tau=0.4", "fit.scheduler=tcp://127.0.0.1:1"]))
    assert [record.exit_code for record in History(place / "runs/paper").records()] == [0, 3]


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 1), (errno.EDQUOT, 1), (errno.ENOENT, 2)])
def test_a_full_disk_is_not_bad_input(place, monkeypatch, number, code):
    def fail(*given):
        raise OSError(number, os.strerror(number), "some.file")

    monkeypatch.setattr("gdm_dask.pipeline.steps.Report.run", fail)
    monkeypatch.setattr(sys, "argv", ["gdm", "run", "paper.toml"])
    monkeypatch.setattr("signal.signal", lambda *given: None)
    with pytest.raises(SystemExit) as ended:
        run()
    (record,) = History(place / "runs/paper").records()
    assert (ended.value.code, record.exit_code) == (code, code)


@pytest.mark.slow
def test_a_schedule_with_kills_and_overlaps_leaves_nothing_wrong(tmp_path):
    ended = soak(tmp_path, 4, seed=2)  # one is killed, and one of two parallel ones is terminated
    assert ended["done"] >= 2
