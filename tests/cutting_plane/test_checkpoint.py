"""Checkpoints and run directories: a fit that is killed at any point resumes and ends with the same bits."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers.clusters import Started, Stop, gdm, same_model, small_data, stop_after, until

from gdm_dask import GroupDiscoveryMachine, ingest
from gdm_dask.errors import BadInput, GdmError, Locked
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.system.locks import FileLock

SETTINGS = {"tau": 0.4, "C": 50.0, "cut_size": 3, "max_cuts": 5, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--C", "50", "--cut-size", "3", "--max-cuts", "5", "--tol", "0"]


def machine(**options) -> GroupDiscoveryMachine:
    return GroupDiscoveryMachine(**(SETTINGS | {"scheduler": "synchronous"} | options))


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_fit_that_stops_after_any_cut_goes_on_to_the_same_bits(store, expected, tmp_path: Path, cut: int) -> None:
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(Stop):
        run.fit(machine(), store, callback=stop_after(cut))
    cuts = []
    done = run.fit(machine(scheduler="threads"), store, resume=True, callback=lambda it: cuts.append(it.number))
    assert cuts == list(range(cut + 1, 6))
    same_model(run.path, expected)
    assert [iteration.number for iteration in done.history_] == [1, 2, 3, 4, 5]
    assert not run.checkpoint.exists()


@pytest.mark.parametrize(
    "settings",
    [{"n_features_to_select": 7}, {"tol": 0.05, "C": 10.0, "max_cuts": 20}, {"matching": "exact"}, {"tau": 0}],
)
def test_other_ways_to_stop(store, tmp_path: Path, settings: dict) -> None:
    settings = {"max_cuts": 10} | settings
    whole, parted = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "parted")
    n_cuts = whole.fit(machine(**settings), store).n_cuts_
    assert n_cuts >= 2
    for cut in range(1, min(n_cuts, 4)):  # stopped again and again
        with pytest.raises(Stop):
            parted.fit(machine(**settings), store, resume=True, callback=stop_after(cut))
    parted.fit(machine(**settings), store, resume=True)
    same_model(parted.path, whole.path)


KILLED = """
import os, signal, sys
from gdm_dask import GroupDiscoveryMachine, open_store
from gdm_dask.pipeline.run_directory import RunDirectory
def kill(iteration):
    os.kill(os.getpid(), signal.SIGKILL)
try:
    machine = GroupDiscoveryMachine(tau=0.4, C=50.0, cut_size=3, max_cuts=5, tol=0.0, scheduler="synchronous")
    RunDirectory(sys.argv[2]).fit(machine, open_store(sys.argv[1]), resume=True, callback=kill)
except BaseException as error:
    print(repr(error))
    raise
"""


@pytest.mark.slow
def test_the_driver_is_killed_after_each_cut_in_turn(store, expected, tmp_path: Path) -> None:
    for _ in range(5):
        driver = Started([sys.executable, "-c", KILLED, store.url, str(tmp_path / "run")], tmp_path / "log")
        assert driver.wait() == -signal.SIGKILL, driver.text
    assert (tmp_path / "run" / ".lock").exists()
    assert RunDirectory(tmp_path / "run").fit(machine(), store, resume=True).n_cuts_ == 5
    same_model(tmp_path / "run", expected)


def test_a_checkpoint_needs_a_folder_and_a_store(store, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="folder for the checkpoint does not exist"):
        machine().fit(store, checkpoint=tmp_path / "nowhere" / "state.npz")
    with pytest.raises(BadInput, match="a checkpoint needs a store"):
        machine().fit(np.eye(4), [0, 1, 0, 1], checkpoint=tmp_path / "state.npz")


def test_numbers_of_numpy_are_numbers(store, tmp_path: Path) -> None:
    numbers = {
        "n_features_to_select": np.int64(4),
        "max_cuts": np.int32(3),
        "cut_size": np.uint8(2),
        "C": np.float32(5),
    }
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(Stop):
        run.fit(machine(**numbers), store, callback=stop_after(1))
    run.fit(machine(**{name: value.item() for name, value in numbers.items()}), store, resume=True)
    assert run.fit(machine(**numbers), store, resume=True).n_features_to_select == 4


@pytest.fixture
def unfinished(store, tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "unfinished")
    with pytest.raises(Stop):
        run.fit(machine(), store, callback=stop_after(2))
    return run


def test_what_is_there_is_not_overwritten_by_mistake(store, unfinished, expected) -> None:
    with pytest.raises(BadInput, match="holds an unfinished fit: pass --resume to continue, or --overwrite"):
        unfinished.fit(machine(), store)
    unfinished.fit(machine(), store, overwrite=True)
    same_model(unfinished.path, expected)
    with pytest.raises(BadInput, match="holds a fitted model"):
        unfinished.fit(machine(), store)
    with pytest.raises(BadInput, match="holds a fit with another C: choose"):
        unfinished.fit(machine(C=3.0), store, resume=True)
    with pytest.raises(BadInput, match="holds a fit with another C and tau: choose"):
        unfinished.fit(machine(C=3.0, tau=0.5), store, resume=True)
    assert unfinished.fit(machine(scheduler="threads"), store, resume=True).n_cuts_ == 5


@pytest.mark.parametrize("wrong", [{"tau": 3}, {"scheduler": "nowhere"}, {"memory_limit": "1kB"}])
def test_a_fit_that_cannot_begin_leaves_the_model_that_it_would_replace(store, expected, tmp_path, wrong) -> None:
    run = RunDirectory(tmp_path / "run")
    run.fit(machine(), store)
    with pytest.raises(BadInput):
        run.fit(machine(**wrong), store, overwrite=True)
    same_model(run.path, expected)
    assert run.fit(machine(), store, resume=True).n_cuts_ == 5


def test_a_fit_that_has_begun_takes_the_place_of_the_model_before(store, tmp_path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.fit(machine(), store)
    with pytest.raises(Stop):
        run.fit(machine(C=2.0), store, overwrite=True, callback=stop_after(2))
    assert not run.model.exists()
    assert run.fit(machine(C=2.0), store, resume=True).C == 2.0
    assert RunDirectory(tmp_path / "run").fit(machine(C=2.0), store, resume=True).n_cuts_ == 5


@pytest.mark.parametrize(
    "change", [{"C": 2.0}, {"tau": 0.3}, {"cut_size": 4}, {"matching": "exact"}, {"measure": "cosine"}]
)
def test_a_checkpoint_of_other_parameters_is_refused_by_name(store, unfinished, change: dict) -> None:
    (name, value), *_ = change.items()
    with pytest.raises(
        BadInput, match=rf"belongs to another fit: {name} was {machine().get_params()[name]!r} and is {value!r}"
    ):
        unfinished.fit(machine(**change), store, resume=True)
    described = json.loads((unfinished.path / "run.json").read_bytes())
    assert described["parameters"][name] == machine().get_params()[name]


def test_a_checkpoint_of_another_store_is_refused(unfinished, tmp_path: Path) -> None:
    X, y = small_data(seed=12)
    other = ingest(X, tmp_path / "other.zarr", y, block_bytes=20_000)
    with pytest.raises(BadInput, match=r"belongs to another fit: .*store was '"):
        unfinished.fit(machine(), other, resume=True)


def repack(path: Path, **changes) -> None:
    """Write a checkpoint with a changed document."""
    with np.load(path, allow_pickle=False) as arrays:
        state = dict(arrays)
    document = json.loads(state["document"].tobytes()) | changes
    state["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **state)
    path.write_bytes(buffer.getvalue())


def test_a_newer_checkpoint_is_refused(store, unfinished) -> None:
    repack(unfinished.checkpoint, format_version=99)
    with pytest.raises(BadInput, match="written by a newer gdm_dask"):
        unfinished.fit(machine(), store, resume=True)


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "text", "array", "no duals", "no cuts", "pickle"])
def test_a_damaged_checkpoint_is_refused(store, unfinished, damage: str) -> None:
    path = unfinished.checkpoint
    data = path.read_bytes()
    if damage in ("no duals", "pickle"):
        with np.load(path, allow_pickle=False) as arrays:
            state = dict(arrays)
        state.pop("0.duals")
        if damage == "pickle":
            state["0.duals"] = np.array([{"a": 1}], dtype=object)
        np.savez(path, **state)
    elif damage == "no cuts":
        repack(path, problems={"0": {"cuts": None}})
    else:
        middle = data.index(b"duals.npy") + 400  # in its numbers; a name in a header may be anything
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        kinds = {"empty": b"", "short": data[:-100], "flipped": flipped, "text": b"no", "array": _npy()}
        path.write_bytes(kinds[damage])
    with pytest.raises(BadInput, match=r"checkpoint\.npz: the checkpoint cannot be read.*--overwrite"):
        unfinished.fit(machine(), store, resume=True)


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def test_a_run_directory_is_private(store, unfinished) -> None:
    assert stat.S_IMODE(unfinished.path.stat().st_mode) == 0o700


def test_a_file_in_place_of_the_folder(store, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match="is a file: choose a folder"):
        RunDirectory(tmp_path / "run").fit(machine(), store)


def test_a_store_in_place_of_the_folder(store) -> None:
    with pytest.raises(BadInput, match="is a feature store: choose another folder for the run"):
        RunDirectory(store.url).fit(machine(), store)


HOLD = """
import sys, time
from pathlib import Path
from gdm_dask.system.locks import FileLock
FileLock(Path(sys.argv[1]) / ".lock").acquire("it")
print("held", flush=True)
time.sleep(600)
"""


def test_a_run_directory_has_one_owner_at_a_time(store, expected, unfinished, tmp_path: Path, caplog) -> None:
    holder = Started([sys.executable, "-c", HOLD, str(unfinished.path)], tmp_path / "holder.log")
    try:
        holder.wait_for("(held)")
        with pytest.raises(Locked, match=rf"is being written by process {holder.pid} on \S+ since"):
            unfinished.fit(machine(), store, resume=True)
        fit = gdm("fit", store.url, "--run", unfinished.path, "--resume", *OPTIONS, log=tmp_path / "fit.log")
        assert fit.wait() == 4
        assert f"process {holder.pid}" in fit.text
    finally:
        holder.end()
    caplog.set_level("INFO", "gdm_dask")
    unfinished.fit(machine(), store, resume=True)
    assert f"was left by process {holder.pid}" in caplog.text
    same_model(unfinished.path, expected)


def test_a_lock_holds_though_its_owner_cannot_be_written(tmp_path: Path) -> None:
    lock, other = FileLock(tmp_path / ".lock"), FileLock(tmp_path / ".lock")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        lock.acquire("it")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(Locked, match="by another process"):
        other.acquire("it")
    lock.release()
    other.acquire("it")
    other.release()


def test_waiting_for_a_lock(tmp_path: Path) -> None:
    holder = Started([sys.executable, "-c", HOLD, str(tmp_path)], tmp_path / "holder.log")
    holder.wait_for("(held)")
    lock = FileLock(tmp_path / ".lock")
    with pytest.raises(Locked):
        lock.acquire("it", wait=0.3)
    os.kill(holder.pid, signal.SIGKILL)
    lock.acquire("it", wait=60.0)
    lock.release()
    holder.end()


def fill_up(path: Path, size: int) -> None:
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while size > 0:
            size -= file.write(bytes(4096))


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 400 kB or, if none can be mounted, a limit on the size of files."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = (
        shutil.which("mount")
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(place)], capture_output=True, check=False
        ).returncode
    )
    if mounted:
        yield (
            place,
            lambda: (place / "ballast").write_bytes(bytes(os.statvfs(place).f_bavail * os.statvfs(place).f_bsize)),
        )
        subprocess.run(["umount", "-l", str(place)], check=True)
    else:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        yield place, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk(store, expected, small_disk) -> None:
    place, fill = small_disk
    run = RunDirectory(place / "run")

    def at_cut_two(iteration) -> None:
        if iteration.number == 2:
            fill()

    with pytest.raises(GdmError, match=r"state after cut 3 cannot be written: (No space|File too large).*--resume"):
        run.fit(machine(), store, callback=at_cut_two)
    assert [path.name for path in run.path.iterdir() if path.name.endswith(".tmp")] == []
    (place / "ballast").unlink(missing_ok=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    cuts = []
    run.fit(machine(), store, resume=True, callback=lambda iteration: cuts.append(iteration.number))
    assert cuts == [3, 4, 5]
    same_model(run.path, expected)


SLOW = """
import sys, time
from gdm_dask.cutting_plane import algorithm as cutting_plane
from gdm_dask.cli import model_commands
plain = model_commands.log_iteration
def slow(iteration):
    plain(iteration)
    if iteration.number == 3:
        time.sleep(600)
model_commands.log_iteration = slow
from gdm_dask.cli.main import run
run()
"""


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_a_state_to_go_on_from(
    store, expected, tmp_path: Path, number: int, code: int, scheduler: str
) -> None:
    run = tmp_path / "run"
    arguments = ["fit", store.url, "--run", str(run), "--scheduler", scheduler, "--workers", "1", *OPTIONS]
    fit = Started([sys.executable, "-c", SLOW, *arguments], tmp_path / "fit.log")
    fit.wait_for("(cut 3:)")
    if number == signal.SIGINT:
        os.killpg(fit.pid, number)  # as a terminal does
    else:
        fit.signal(number)
    assert fit.wait() == code, fit.text
    assert "the state after the last cut is saved; continue with --resume" in fit.text
    assert "Traceback" not in fit.text
    again = gdm("fit", store.url, "--run", run, "--resume", *OPTIONS, log=tmp_path / "again.log")
    assert again.wait() == 0, again.text
    assert "cut 4:" in again.text
    assert "cut 3:" not in again.text
    same_model(run, expected)
    until(lambda: not (run / ".lock").exists(), "the lock is gone")
