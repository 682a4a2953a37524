"""A killed ingest resumes where it stopped; a second ingest at a time, or over an existing store, is refused."""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import time

import pytest
from helpers.clusters import gdm as start_gdm
from helpers.clusters import held_gdm, is_running
from helpers.store_helpers import (
    CommandForks,
    assert_store_equals,
    files_below,
    gdm,
    some_labels,
    some_matrix,
    write_svmlight,
)

import gdm_dask
from gdm_dask.errors import BadInput, DamagedStore, Locked
from gdm_dask.ingestion import run_ingest, staging
from gdm_dask.ingestion.staging import Staging
from gdm_dask.store.folder import Folder
from gdm_dask.system.locks import FileLock

MATRIX = some_matrix(800, 300)
LABELS = some_labels(800)
OPTIONS = {"block_bytes": 40_000, "run_bytes": 60_000}
#: For processes that get disturbed: forty runs and forty blocks leave time for it.
MANY = {"block_bytes": 15_000, "run_bytes": 25_000}
FLAGS = ["--block-size", "15kB", "--run-size", "25kB"]
#: Number of kills at random moments; ``make chaos`` has more.
N_KILLS = int(os.environ.get("GDM_CHAOS_KILLS", 6))


@pytest.fixture
def source(tmp_path):
    """Text that needs nearly twenty runs and as many blocks."""
    return write_svmlight(tmp_path / "x.svm", MATRIX, LABELS)


def listed(folder, pattern):
    try:
        return list(folder.glob(pattern))
    except FileNotFoundError:  # the folder was removed while it was read
        return []


def finished(partial):
    """Identity of the finished runs and blocks of an unfinished ingest."""
    runs = [path for path in listed(partial, "runs/*") if path.suffix != ".wip"]
    found = {}
    for path in (*runs, *listed(partial, "entries/*.json")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # it is being removed at the end
        found[path.relative_to(partial)] = (status.st_ino, status.st_mtime_ns)
    return found


def count_finished(partial):
    """Count `finished` after a short pause, which leaves processor time to the ingest."""
    names = []
    for folder in ("runs", "entries"):
        with contextlib.suppress(FileNotFoundError):
            names += os.listdir(partial / folder)
    return sum(not name.endswith((".wip", ".tmp")) for name in names)


def kill_after(process, partial, n_new, chance):
    """Kill the process once `n_new` more runs or blocks are finished, or a little later, unless it ends first."""
    before = count_finished(partial)
    while is_running(process) and count_finished(partial) < before + n_new:
        time.sleep(0.001)
    time.sleep(chance.random() * 0.003)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def ingest_with_kills(forks, chance, source, store):
    """Ingest and kill it at random moments until it finishes; returns the number of kills."""
    partial = store.with_name(f"{store.name}.partial")
    kept = {}
    for n_kills in itertools.count():
        kill_after(forks.start("ingest", source, store, *FLAGS), partial, chance.randint(0, 5), chance)
        code = forks.wait()
        if code == 0:
            return n_kills
        assert code == -signal.SIGKILL
        now = finished(partial)
        if not store.exists():
            assert {path: now.get(path) for path in kept} == kept, "finished work was done again"
        kept = now
    raise AssertionError("never")


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, source):
    gdm_dask.ingest(source, tmp_path / "whole", **MANY)
    n_kills, chance = 0, random.Random(0)
    with CommandForks() as forks:
        while n_kills < N_KILLS:
            n_kills += ingest_with_kills(forks, chance, source, tmp_path / "s")
            assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "whole", "x.svm"]
            assert files_below(tmp_path / "s") == files_below(tmp_path / "whole")
            assert_store_equals(gdm_dask.open_store(tmp_path / "s"), MATRIX, LABELS)
            shutil.rmtree(tmp_path / "s")


def interrupted(source, store, stop_at, monkeypatch, **options):
    """Ingest until a step is about to begin, as if killed there."""

    class Killed(BaseException):
        pass

    def kill(*_, **__):
        raise Killed

    module, name = stop_at.rsplit(".", 1)
    with monkeypatch.context() as patch:
        patch.setattr(f"gdm_dask.ingestion.{module}.{name}", kill)
        with pytest.raises(Killed):
            run_ingest(source, store, **OPTIONS, **options)


def test_finished_work_is_counted(tmp_path, source, monkeypatch):
    whole = run_ingest(source, tmp_path / "whole", **OPTIONS)
    assert whole.runs_kept == whole.blocks_kept == 0
    assert whole.runs_written > 10
    assert whole.blocks_written > 5
    for step in ("driver.make_blocks", "driver._publish"):
        interrupted(source, tmp_path / step, step, monkeypatch)
        with pytest.raises(DamagedStore, match="no feature store here yet: its ingest has not finished"):
            gdm_dask.open_store(tmp_path / step)
        done = run_ingest(source, tmp_path / step, **OPTIONS)
        assert (done.runs_written, done.runs_kept) == (0, whole.runs_written)
        blocks_kept = whole.blocks_written if step == "driver._publish" else 0
        assert (done.blocks_written, done.blocks_kept) == (whole.blocks_written - blocks_kept, blocks_kept)
        assert files_below(tmp_path / step) == files_below(tmp_path / "whole")


def test_killed_after_the_store_took_its_name(tmp_path, source, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "__exit__", lambda self, *error: self.lock.release())
        run_ingest(source, tmp_path / "s", **OPTIONS)
    assert (tmp_path / "s.partial").exists()
    before = files_below(tmp_path / "s")
    done = run_ingest(source, tmp_path / "s", **OPTIONS)
    assert done.runs_written == done.blocks_written == 0
    assert files_below(tmp_path / "s") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "x.svm"]


def test_damaged_leftovers_are_made_anew(tmp_path, source, monkeypatch):
    """After a power failure, finished files may have other content."""
    gdm_dask.ingest(source, tmp_path / "whole", **OPTIONS)
    interrupted(source, tmp_path / "s", "driver._publish", monkeypatch)
    partial = tmp_path / "s.partial"
    runs = sorted(path for path in (partial / "runs").iterdir())
    (runs[0] / "samples").write_bytes(b"")
    (runs[1] / "rows").unlink()
    (runs[2] / "run.json").write_bytes(b"\0\0\0")
    (partial / "entries" / "00001.json").write_bytes(b"")
    chunk = partial / "store" / "blocks" / "00002" / "indices" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\0")
    (partial / "store" / "blocks" / "00003" / "values" / "c" / "0.1234.tmp").write_bytes(b"rest")
    done = run_ingest(source, tmp_path / "s", **OPTIONS)
    assert (done.runs_written, done.blocks_written) == (3, 2)
    assert files_below(tmp_path / "s") == files_below(tmp_path / "whole")


@pytest.mark.parametrize("change", ["source", "option", "less memory", "scratch"])
def test_another_job_starts_over(tmp_path, source, monkeypatch, change):
    interrupted(source, tmp_path / "s", "driver.make_blocks", monkeypatch)
    options = dict(OPTIONS)
    matrix = MATRIX
    if change == "source":
        matrix = MATRIX * 2
        write_svmlight(source, matrix, LABELS)
    elif change == "option":
        options["codec"] = "zstd"
    elif change == "scratch":
        (tmp_path / "scratch").mkdir()
        options["scratch"] = tmp_path / "scratch"
    else:
        options["run_bytes"] = 50_000
    done = run_ingest(source, tmp_path / "s", **options)
    assert done.runs_kept == 0
    assert_store_equals(done.store, matrix, LABELS)
    left = {path.name for path in tmp_path.rglob("*.partial")} | {path.name for path in tmp_path.glob("scratch/*")}
    assert left == set()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_signals(tmp_path, source, number, code, scheduler):
    arguments = ["ingest", source, tmp_path / "s", *FLAGS, "--scheduler", scheduler]
    with held_gdm("partition", 1, *arguments, log=tmp_path / "log") as ingest:
        ingest.signal(number)
    assert ingest.wait() == code, ingest.text
    assert re.search(f"ended by {number.name}: .*the same command resumes where it stopped", ingest.text)
    assert "Traceback" not in ingest.text
    assert not (tmp_path / "s").exists()
    done = run_ingest(source, tmp_path / "s", **MANY)
    assert done.runs_kept > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "s", "x.svm"]


def test_two_ingests_to_one_path(tmp_path, source, capsys):
    store = tmp_path / "s"
    lock = FileLock(tmp_path / "s.partial.lock")
    with lock:
        lock.acquire("the store")
        for scratch in ([], ["--scratch", tmp_path]):
            code, out, err = gdm(capsys, "ingest", source, store, *scratch)
            assert (code, out) == (4, "")
            assert f"{store} is being written by process {os.getpid()} on " in " ".join(err.split())
        with pytest.raises(Locked, match="Wait for it to end"):
            gdm_dask.ingest(source, store)
    assert not store.exists()
    assert gdm(capsys, "ingest", source, store)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "x.svm"]


def test_the_second_of_two_processes_is_refused(tmp_path, source):
    arguments = ["ingest", source, tmp_path / "s", *FLAGS]
    with held_gdm("partition", 1, *arguments, log=tmp_path / "first.log") as first:
        second = start_gdm(*arguments, log=tmp_path / "second.log")
        assert second.wait() == 4, second.text
        assert f"process {first.pid} on" in second.text
    assert first.wait() == 0, first.text
    assert_store_equals(gdm_dask.open_store(tmp_path / "s"), MATRIX, LABELS)


def test_an_existing_store_is_kept_without_overwrite(tmp_path, source, capsys):
    gdm_dask.ingest(source, tmp_path / "s")
    before = files_below(tmp_path / "s")
    code, _, err = gdm(capsys, "ingest", source, tmp_path / "s", "--codec", "none")
    assert code == 2
    assert "exists: choose another name, or pass --overwrite" in " ".join(err.split())
    assert files_below(tmp_path / "s") == before
    assert gdm(capsys, "ingest", source, tmp_path / "s", "--codec", "none", "--overwrite")[0] == 0
    assert gdm_dask.open_store(tmp_path / "s").manifest.codec == "none"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "x.svm"]


def test_what_is_no_store_is_never_overwritten(tmp_path, source):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(b"precious")
    (tmp_path / "file").write_bytes(b"precious")
    for name, message in (("photos", "holds '1.jpg'"), ("file", "is a file")):
        with pytest.raises(BadInput, match=message):
            gdm_dask.ingest(source, tmp_path / name, overwrite=True)
    assert files_below(tmp_path / "photos") == {"1.jpg": b"precious"}
    (tmp_path / "empty").mkdir()
    gdm_dask.ingest(source, tmp_path / "empty").verify()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_overwriting_killed_at_any_moment_keeps_a_whole_store(tmp_path, source, monkeypatch, can_exchange):
    """If the system cannot swap two names atomically, the next attempt restores the old store."""
    if not can_exchange:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    gdm_dask.ingest(source, tmp_path / "s", codec="none")
    old = files_below(tmp_path / "s")
    interrupted(source, tmp_path / "s", "driver.layout.write_manifest", monkeypatch, overwrite=True)
    assert files_below(tmp_path / "s") == old
    rename, done = os.rename, []

    def kill_at_second(one, other):
        done.append(other)
        if len(done) == 2:
            raise KeyboardInterrupt
        rename(one, other)

    monkeypatch.setattr(os, "rename", kill_at_second)
    if can_exchange:
        gdm_dask.ingest(source, tmp_path / "s", overwrite=True, **OPTIONS)
        assert done == []
    else:
        with pytest.raises(KeyboardInterrupt):
            gdm_dask.ingest(source, tmp_path / "s", overwrite=True, **OPTIONS)
        assert not (tmp_path / "s").exists()
        monkeypatch.setattr(os, "rename", rename)
        with pytest.raises(BadInput, match="exists"):
            gdm_dask.ingest(source, tmp_path / "s", **OPTIONS)
        assert files_below(tmp_path / "s") == old
        gdm_dask.ingest(source, tmp_path / "s", overwrite=True, **OPTIONS)
    assert gdm_dask.open_store(tmp_path / "s").manifest.codec == "lz4"
    gdm_dask.open_store(tmp_path / "s").verify()


def test_scratch_is_announced_elsewhere_and_removed(tmp_path, source, capsys):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code, _, err = gdm(capsys, "ingest", source, tmp_path / "s", "--scratch", scratch)
    assert code == 0
    assert re.search(
        r"scratch files: up to about .*MB in .*scratch/s-.*free\), removed at the end", " ".join(err.split())
    )
    assert list(scratch.iterdir()) == []
    assert Staging(Folder(tmp_path / "s"), scratch).runs.parent == scratch


def test_a_lock_whose_owner_died_is_free(tmp_path):
    lock = FileLock(tmp_path / "l")
    (tmp_path / "l").write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "long ago"}))
    lock.acquire("it")
    assert lock.is_held
    lock.release()
    assert not lock.is_held
    assert list(tmp_path.iterdir()) == []
