"""Where a store's files are: a local folder or an object store, behind one small interface."""

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

#: Ending of files that are being written; a killed writer may leave some.
UNFINISHED = ".tmp"
#: Ending of the folder in which a local store is made, beside it.
PARTIAL = ".partial"


class Folder:
    """Files below a local path or a URL that fsspec knows (``s3://bucket/name``, ``gs://...``, ``memory://...``).

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
            raise BadInput(f"{self.url}: {error} (pip install 'gdm_dask[s3]' brings what s3:// needs)") from error
        self._root = root.rstrip("/") or root
        self.is_local = isinstance(self._fs, LocalFileSystem)

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    @property
    def path(self) -> Path:
        """The local path; only for local folders."""
        return Path(self._root)

    def read(self, key: str) -> bytes:
        """Whole content of a file; FileNotFoundError where it is not there."""
        if self.is_local:
            return (self.path / key).read_bytes()
        with self._remote():
            content: bytes = self._fs.cat_file(f"{self._root}/{key}")
            return content

    def read_once(self, key: str) -> bytes | memoryview:
        """`read`, of a file that will not be read again soon: around the page cache, into work space of this thread."""
        if not self.is_local:
            return self.read(key)
        path = self.path / key
        data = read_file(path, 0, path.stat().st_size, lambda nbytes: work_space("file read once", nbytes, np.uint8))
        return memoryview(data)  # type: ignore[arg-type]

    def write(self, key: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        if not self.is_local:
            with self._remote():
                self._fs.pipe_file(f"{self._root}/{key}", data)
            return
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with _renamed_at_end(target, f"{target.name}.") as temporary:
            temporary.write_bytes(data)

    def write_and_compare(self, key: str, data: np.ndarray) -> None:
        """`write` bytes and read them back: from the disk, not from the memory where the system keeps what was written.

        Those that begin at a page go straight from there to the disk.
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
        """Names of what lies in the folder; none where it does not exist."""
        with self._remote():
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._root, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return set()
        return {name.rstrip("/").rsplit("/", 1)[-1] for name in found}

    def size(self) -> int:
        """Bytes of all files below."""
        with self._remote():
            return sum(self._fs.du(self._root, total=False).values())

    def remove(self, key: str = "") -> None:
        """Remove a file or folder, or all of this one, with all that is in it."""
        place = f"{self._root}/{key}" if key else self._root
        with self._remote():
            self._fs.invalidate_cache()
            if self._fs.exists(place):
                self._fs.rm(place, recursive=True)

    @contextmanager
    def _remote(self) -> Iterator[None]:
        """Errors of a service (no connection, no credentials) as one line that names the place."""
        try:
            yield
        except (OSError, GdmError):
            raise
        except Exception as error:
            raise GdmError(f"{self.url}: cannot be reached: {error}") from error


def local_folder(path: str | os.PathLike[str], what: str) -> Path:
    """The path of a local folder; refuses a URL, of which a folder named after its scheme would be made."""
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
    """A name to write a file under, which becomes `target` when it is whole, and goes when it is not."""
    temporary = target.with_name(f"{prefix}{uuid.uuid4().hex[:8]}{UNFINISHED}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _same(there: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether two arrays of as many bytes are equal; eight of them at a time are fastest."""
    words = len(wanted) // 8 * 8
    return np.array_equal(there[:words].view(np.uint64), wanted[:words].view(np.uint64)) and np.array_equal(
        there[words:], wanted[words:]
    )
