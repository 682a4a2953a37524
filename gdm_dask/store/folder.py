"""Access to the files of a store, in a local folder or an object store, through one small interface."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from gdm_dask.errors import BadInput, GdmError
from gdm_dask.system.scratch import work_space
from gdm_dask.system.uncached import read_file, write_file

#: Suffix of files that are being written; a killed writer may leave some.
UNFINISHED = ".tmp"
#: Suffix of the folder in which a local store is built, next to the store.
PARTIAL = ".partial"


class Folder:
    """Files below a local path or a URL supported by fsspec (``s3://bucket/name``, ``gs://...``, ``memory://...``).

    Parameters
    ----------
    url : str or path
        The folder; it need not exist yet.
    storage_options : dict, optional
        Passed to fsspec (credentials, ``endpoint_url``).
    """

    def __init__(self, url: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> None:
        self.url = os.fspath(url)
        self.storage_options = dict(storage_options or {})
        try:
            self._fs, root = fsspec.core.url_to_fs(self.url, **self.storage_options)
        except (ImportError, ValueError) as error:
            raise BadInput(f"{self.url}: {error} (for s3://, pip install 'gdm_dask[s3]')") from error
        self._root = root.rstrip("/") or root
        self.is_local = isinstance(self._fs, LocalFileSystem)

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    @property
    def path(self) -> Path:
        """The local path; only for local folders."""
        return Path(self._root)

    def read(self, key: str) -> bytes:
        """Return the whole content of a file; raise FileNotFoundError if it does not exist."""
        if self.is_local:
            return (self.path / key).read_bytes()
        with self._remote():
            content: bytes = self._fs.cat_file(f"{self._root}/{key}")
            return content

    def read_once(self, key: str) -> bytes | memoryview:
        """Read a file that is not needed again soon: bypass the page cache, into work space of this thread."""
        if not self.is_local:
            return self.read(key)
        path = self.path / key
        data = read_file(path, 0, path.stat().st_size, lambda nbytes: work_space("file read once", nbytes, np.uint8))
        return memoryview(data)  # type: ignore[arg-type]

    def write(self, key: str, data: bytes) -> None:
        """Write a file atomically."""
        if not self.is_local:
            with self._remote():
                self._fs.pipe_file(f"{self._root}/{key}", data)
            return
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with _renamed_at_end(target, f"{target.name}.") as temporary:
            temporary.write_bytes(data)

    def write_and_compare(self, key: str, data: np.ndarray) -> None:
        """Write bytes and compare them with those read back from the disk, not from the page cache.

        Arrays that begin at a page boundary are written directly, without a copy.
        """
        if self.is_local:
            target = self.path / key
            target.parent.mkdir(parents=True, exist_ok=True)
            with _renamed_at_end(target, f"{target.name}.") as temporary:
                write_file(temporary, data)
                there = read_file(
                    temporary, 0, len(data), lambda nbytes: work_space("file read back", nbytes, np.uint8)
                )
                same = _same(there, data)
        else:
            self.write(key, data.tobytes())
            same = self.read(key) == data.tobytes()
        if not same:
            raise GdmError(f"{self.url}: {key} reads back differently from what was written: check the disk")

    def names(self) -> set[str]:
        """Return the names of the entries of the folder; none if it does not exist."""
        with self._remote():
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._root, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return set()
        return {name.rstrip("/").rsplit("/", 1)[-1] for name in found}

    def size(self) -> int:
        """Return the bytes of all files below."""
        with self._remote():
            return sum(self._fs.du(self._root, total=False).values())

    def remove(self, key: str = "") -> None:
        """Remove a file or folder with all of its content; by default this whole folder."""
        place = f"{self._root}/{key}" if key else self._root
        with self._remote():
            self._fs.invalidate_cache()
            if self._fs.exists(place):
                self._fs.rm(place, recursive=True)

    @contextmanager
    def _remote(self) -> Iterator[None]:
        """Turn errors of a remote service (no connection, no credentials) into one line that names the place."""
        try:
            yield
        except (OSError, GdmError):
            raise
        except Exception as error:
            raise GdmError(f"{self.url}: cannot be reached: {error}") from error


def local_folder(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path of a local folder; refuse a URL, which would create a folder named after its scheme."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(path)):
        raise BadInput(f"{what} must be a local folder, got {os.fspath(path)}")
    return Path(path)


def write_whole(target: Path, data: bytes) -> None:
    """Write a local file under a temporary name, flush it to the disk, and rename it."""
    with _renamed_at_end(target, f".{target.name}.") as temporary, open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _renamed_at_end(target: Path, prefix: str) -> Iterator[Path]:
    """Yield a temporary name; rename the file to `target` on success, remove it on failure."""
    temporary = target.with_name(f"{prefix}{uuid.uuid4().hex[:8]}{UNFINISHED}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _same(there: np.ndarray, wanted: np.ndarray) -> bool:
    """Return whether two arrays of the same number of bytes are equal; comparing eight at a time is fastest."""
    words = len(wanted) // 8 * 8
    return np.array_equal(there[:words].view(np.uint64), wanted[:words].view(np.uint64)) and np.array_equal(
        there[words:], wanted[words:]
    )
