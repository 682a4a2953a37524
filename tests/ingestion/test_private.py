"""Scratch, plans and locks are private to their user: files that others planted are not followed or removed."""

import json
import os
import stat
import tempfile

import pytest
from helpers.store_helpers import assert_store_equals, files_below, some_labels, some_matrix, write_svmlight

import gdm_dask
from gdm_dask.errors import GdmError
from gdm_dask.ingestion import run_ingest
from gdm_dask.ingestion.staging import Staging
from gdm_dask.store.folder import Folder
from gdm_dask.system.locks import FileLock, user_folder

MATRIX = some_matrix(80, 60)
LABELS = some_labels(80)
URL = "memory://private/s"


@pytest.fixture
def source(tmp_path):
    return write_svmlight(tmp_path / "x.svm", MATRIX, LABELS)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A user's cache folder, and a folder of temporary files that all users share."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary").chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    folder = Folder(URL)
    if folder.names():
        folder.remove()


@pytest.fixture
def victim(tmp_path):
    """A folder that must not be lost."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter.txt").write_bytes(b"dear")
    yield tmp_path / "precious"
    assert files_below(tmp_path / "precious") == {"letter.txt": b"dear"}


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def killed(source, target, monkeypatch, **options):
    """Run an ingest that ends before it makes its blocks, as if killed."""
    with monkeypatch.context() as patch:
        patch.setattr("gdm_dask.ingestion.driver.make_blocks", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_ingest(source, target, **options)


def plan_of(target, runs, **scratch):
    """Plant a plan that names other runs, where the next ingest looks for one."""
    staging = Staging(Folder(target), **scratch)
    staging.path.mkdir(mode=0o700)
    (staging.path / "plan.json").write_text(json.dumps({"job": {}, "run_bytes": 1, "runs": str(runs)}))
    return staging


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_never_writes_through_a_link(tmp_path, victim, link):
    link(victim / "letter.txt", tmp_path / "lock")
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(GdmError, match=r"is a symbolic link|has a second hard link"):
        lock.acquire("the store")
    assert not lock.is_held


def test_a_lock_makes_no_file_where_a_dangling_link_points(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GdmError, match="symbolic link"):
        FileLock(tmp_path / "lock").acquire("the store")
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_place_of_the_lock_stops_the_ingest(tmp_path, source, victim):
    (tmp_path / "s.partial.lock").symlink_to(victim / "letter.txt")
    with pytest.raises(GdmError, match="symbolic link"):
        gdm_dask.ingest(source, tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("target", ["s", URL])
def test_a_path_that_a_plan_names_is_not_removed(tmp_path, source, victim, cache, target):
    place = target if target == URL else tmp_path / target
    plan_of(place, victim)
    assert_store_equals(gdm_dask.ingest(source, place), MATRIX, LABELS)


def test_a_plan_that_is_a_link_is_not_read(tmp_path, source, victim, monkeypatch):
    killed(source, tmp_path / "s", monkeypatch)
    plan = tmp_path / "s.partial" / "plan.json"
    plan.rename(tmp_path / "mine.json")
    plan.symlink_to(tmp_path / "mine.json")
    assert run_ingest(source, tmp_path / "s").runs_kept == 0
    assert (tmp_path / "mine.json").exists()


def test_nothing_lies_under_a_foreseeable_name_among_the_temporary_files(tmp_path, source, victim, cache, monkeypatch):
    killed(source, URL, monkeypatch)
    assert list((tmp_path / "temporary").iterdir()) == []
    staging = Staging(Folder(URL))
    assert cache in staging.path.parents
    folders = (cache / "gdm_dask", staging.path.parent, staging.path, staging.runs)
    assert [mode_of(folder) for folder in folders] == [0o700] * len(folders)
    planted = tmp_path / "temporary" / staging.path.name
    planted.symlink_to(victim)
    done = run_ingest(source, URL)
    assert done.runs_kept > 0
    assert_store_equals(done.store, MATRIX, LABELS)
    assert list(staging.path.parent.iterdir()) == []


def planted_mode(folder, monkeypatch):
    folder.chmod(0o777)


def planted_owner(folder, monkeypatch):
    """Pretend that the folder belongs to another user: tests may not be allowed to change its owner."""
    lstat = os.lstat

    def foreign(path, **options):
        found = lstat(path, **options)
        if str(path) != str(folder):
            return found
        fields = list(found)
        fields[stat.ST_UID] = os.getuid() + 1
        return os.stat_result(fields)

    monkeypatch.setattr(os, "lstat", foreign)


def planted_link(folder, monkeypatch):
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


PLANTED = {planted_mode: "written to by other", planted_owner: "belongs to another user", planted_link: "not a folder"}


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("which", ["beside the store", "scratch", "user", "staging of a URL"])
def test_a_folder_that_others_can_write_to_is_refused_and_kept(tmp_path, source, cache, monkeypatch, plant, which):
    place = tmp_path / "s" if which in ("beside the store", "scratch") else URL
    options = {"scratch": tmp_path / "scratch"} if which == "scratch" else {}
    killed(source, place, monkeypatch, **options)
    staging = Staging(Folder(place), **options)
    folder = {"scratch": staging.runs, "user": cache / "gdm_dask"}.get(which, staging.path)
    (folder / "mark").write_bytes(b"planted")
    with monkeypatch.context() as patch:
        plant(folder, patch)
        with pytest.raises(GdmError, match=PLANTED[plant]) as raised:
            run_ingest(source, place, **options)
        assert str(folder) in str(raised.value)
    assert (folder / "mark").read_bytes() == b"planted"
    if plant is planted_link:
        folder.unlink()
        folder.with_name("moved").rename(folder)
    folder.chmod(0o700)
    assert run_ingest(source, place, **options).runs_kept > 0


def test_without_a_home_the_folder_among_the_temporary_files_is_private(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").write_bytes(b"")
    folder = user_folder("ingest")
    assert tmp_path / "temporary" in folder.parents
    assert (mode_of(folder), mode_of(folder.parent)) == (0o700, 0o700)
    assert user_folder("ingest") == folder
    folder.parent.chmod(0o777)
    with pytest.raises(GdmError, match="can be written to by other users"):
        user_folder("ingest")


def test_purged_scratch_is_made_again(tmp_path, source, monkeypatch):
    scratch = tmp_path / "scratch"
    killed(source, tmp_path / "s", monkeypatch, scratch=scratch)
    os.rename(scratch, tmp_path / "purged")
    assert_store_equals(run_ingest(source, tmp_path / "s", scratch=scratch).store, MATRIX, LABELS)


def test_runs_on_another_scratch_disk_are_named_and_kept(tmp_path, source, monkeypatch, caplog):
    killed(source, tmp_path / "s", monkeypatch, scratch=tmp_path / "scratch")
    run_ingest(source, tmp_path / "s")
    (left,) = (tmp_path / "scratch").iterdir()
    assert f"scratch files in {left} are no longer needed" in caplog.text


def test_the_store_itself_is_as_open_as_the_user_wants(tmp_path, source):
    (tmp_path / "other").mkdir()
    gdm_dask.ingest(source, tmp_path / "s")
    assert mode_of(tmp_path / "s") == mode_of(tmp_path / "other")
