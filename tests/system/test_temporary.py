"""Temporary folders are removed at the end or, after a kill, when the next process needs one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from gdm_dask.system import temporary
from gdm_dask.system.temporary import temporary_folder

HOLD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from gdm_dask.system.temporary import temporary_folder
with temporary_folder("gdm-pass-") as folder:
    (folder / "arguments").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_YOUNG", -1.0)
    temporary._sweep.cache_clear()
    yield tmp_path
    temporary._sweep.cache_clear()


def test_folders_of_killed_processes_are_removed_and_those_of_live_ones_stay(place) -> None:
    held = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    killed, alive = (process.stdout.readline().strip() for process in held)
    held[0].send_signal(signal.SIGKILL)
    held[0].communicate()
    (place / "gdm-pass-file").touch()
    os.symlink(place, place / "gdm-pass-link")
    with temporary_folder("gdm-pass-") as ours:
        assert not os.path.exists(killed)
        assert os.path.exists(f"{alive}/arguments")
        assert ours.stat().st_mode & 0o77 == 0
    assert not ours.exists()
    held[1].communicate("")
    assert sorted(path.name for path in place.iterdir()) == ["gdm-pass-file", "gdm-pass-link"]


def test_a_folder_whose_owner_may_not_have_locked_it_yet_stays(place, monkeypatch) -> None:
    monkeypatch.setattr(temporary, "_YOUNG", 60.0)
    (place / "gdm-pass-new").mkdir()
    with temporary_folder("gdm-pass-"):
        assert (place / "gdm-pass-new").exists()


def test_another_place_is_swept_too(place, tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "gdm-copies-old").mkdir(parents=True)
    with temporary_folder("gdm-copies-", elsewhere) as ours:
        assert [*elsewhere.iterdir()] == [ours]
    assert not [*elsewhere.iterdir()]
