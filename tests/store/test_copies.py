"""Later passes over an object store read copies of its chunks on the local disk."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import dask
import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from helpers.clusters import small_store

import gdm_dask
from gdm_dask import FeatureStore, GroupDiscoveryMachine
from gdm_dask.errors import BadInput
from gdm_dask.store.reader import StoreReader
from gdm_dask.store.remote import Copies
from gdm_dask.system.resources import is_in_memory


class CountedFiles(AsyncFileSystem):
    """Local files as an object store that counts requests for chunks."""

    protocol = "counted"
    cachable = False
    asked: list[str] = []  # noqa: RUF012 (shared by all instances, and cleared by the fixture)

    async def _cat_file(self, path, start=None, end=None, **_):
        self.asked.append(path)
        return Path("/", path).read_bytes()[start:end]


@pytest.fixture
def remote(tmp_path, monkeypatch) -> FeatureStore:
    """A store in an object store, with nothing asked for yet but its manifest."""
    fsspec.register_implementation("counted", CountedFiles, clobber=True)
    monkeypatch.setattr(CountedFiles, "asked", [])
    store = small_store(tmp_path)
    return gdm_dask.open_store(f"counted://{Path(store.url).as_posix().lstrip('/')}")


@pytest.fixture
def scratch(tmp_path):
    """The folder for copies."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    with dask.config.set({"gdm_dask.scratch": str(folder)}):
        yield folder


def chunks_asked() -> list[str]:
    return [path for path in CountedFiles.asked if "/blocks/" in path]


def passes_of_a_fit(store: FeatureStore, on_cut=None) -> int:
    return GroupDiscoveryMachine(5, scheduler="threads").fit(store, callback=on_cut).counts_["passes"]


def n_chunks(store: FeatureStore) -> int:
    return sum(
        len(entry.crc) for block in store.manifest.blocks
        for name, entry in block.arrays.items() if not name.startswith("names/")
    )  # fmt: skip


def test_each_chunk_is_fetched_once_and_nothing_is_left(remote, scratch) -> None:
    seen = []
    assert passes_of_a_fit(remote, lambda _: seen.extend(scratch.iterdir())) > 1
    assert len(chunks_asked()) == len(set(chunks_asked())) == n_chunks(remote)
    assert seen
    assert not [*scratch.iterdir()]


@pytest.mark.parametrize("limit", [0, "1 kB"])
def test_a_store_beyond_the_limit_is_fetched_in_each_pass(remote, scratch, limit, caplog) -> None:
    seen = []
    with dask.config.set({"gdm_dask.scratch-limit": limit}), caplog.at_level(logging.INFO, "gdm_dask"):
        n_passes = passes_of_a_fit(remote, lambda _: seen.extend(scratch.iterdir()))
    assert len(chunks_asked()) == n_passes * n_chunks(remote)
    assert not seen
    assert "each pass fetches all chunks" in caplog.text


@pytest.mark.parametrize("disk", ["/var/tmp", "/dev/shm", "/nowhere"])
def test_copies_take_no_memory_unless_asked_for(remote, monkeypatch, disk) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/shm")
    monkeypatch.setattr("gdm_dask.store.remote.DISK", Path(disk))
    is_disk = Path(disk).is_dir() and not is_in_memory(Path(disk))  # /var/tmp may be in memory, too
    n_passes = passes_of_a_fit(remote)
    assert len(chunks_asked()) == n_chunks(remote) * (1 if is_disk else n_passes)


def test_the_environment_sets_place_and_limit(tmp_path) -> None:
    settings = {"SCRATCH": str(tmp_path), "SCRATCH_LIMIT": "0", "READ_ATTEMPTS": "2"}
    env = {**os.environ, **{f"DASK_GDM_DASK__{name}": value for name, value in settings.items()}}
    store = small_store(tmp_path)
    fit = f"from gdm_dask import GroupDiscoveryMachine as G; print(G(5).fit({store.url!r}).n_cuts_)"
    done = subprocess.run([sys.executable, "-c", fit], env=env, capture_output=True, text=True, timeout=240)
    assert (done.returncode, int(done.stdout) > 0) == (0, True), done.stderr


def test_a_folder_that_is_not_there_is_named(remote, tmp_path) -> None:
    with (
        dask.config.set({"gdm_dask.scratch": str(tmp_path / "none")}),
        pytest.raises(BadInput, match=r"`gdm_dask.scratch` must be a local folder, got .*none"),
    ):
        passes_of_a_fit(remote)


def test_a_damaged_copy_is_replaced(remote, scratch) -> None:
    reader = StoreReader(remote, 2, scratch)
    expected = [block.to_scipy() for block in reader.blocks(range(remote.n_blocks))]
    CountedFiles.asked.clear()
    for name in ("indices", "means"):
        copy = scratch / f"blocks/00001/{name}/c/0"
        whole = copy.read_bytes()
        for damage in (whole[:-7], whole[:20] + b"oops" + whole[24:]):
            copy.write_bytes(damage)
            again = [block.to_scipy() for block in reader.blocks(range(remote.n_blocks))]
            assert all(np.array_equal(a.toarray(), b.toarray()) for a, b in zip(again, expected, strict=True))
            assert copy.read_bytes() == whole
    assert all("/blocks/00001/" in path for path in chunks_asked())


def test_rows_are_read_from_copies(remote, scratch) -> None:
    reader = StoreReader(remote, 1, scratch)
    expected = reader.rows(np.array([3, 40]))
    for _ in reader.blocks(range(remote.n_blocks)):
        pass
    CountedFiles.asked.clear()
    assert np.array_equal(reader.rows(np.array([3, 40])).to_scipy().toarray(), expected.to_scipy().toarray())
    assert not chunks_asked()


def test_a_disk_that_takes_no_more_ends_the_copies_only(remote, scratch, caplog) -> None:
    (scratch / "blocks").touch()  # nothing can be written below
    reader = StoreReader(remote, 1, scratch)
    for _ in range(2):
        assert sum(block.n_rows for block in reader.blocks(range(remote.n_blocks))) == remote.shape[0]
    assert len(chunks_asked()) == 2 * n_chunks(remote)
    assert caplog.text.count("no more copies of chunks") == 1


def test_a_host_without_the_folder_copies_nothing(remote, tmp_path) -> None:
    reader = StoreReader(remote, 1, tmp_path / "on another host")
    for _ in reader.blocks(range(remote.n_blocks)):
        pass
    assert not (tmp_path / "on another host").exists()


def test_a_copy_is_whole_or_not_there(tmp_path) -> None:
    copies = Copies(tmp_path)
    copies.keep("blocks/00000/means/c/0", b"x" * 1000)
    assert bytes(copies.read_chunk("blocks/00000/means/c/0")) == b"x" * 1000
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["0"]
