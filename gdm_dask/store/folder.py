"""Where a store's files are: a local folder or an object store, behind one small interface."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gdm_dask.errors import BadInput


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
            self._fs, self._root = fsspec.core.url_to_fs(self.url, **self.storage_options)
        except ImportError as error:
            raise BadInput(f"{self.url}: {error} (gdm_dask[s3] brings what s3:// needs)") from error
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
        return self._fs.cat_file(f"{self._root}/{key}")

    def write(self, key: str, data: bytes) -> None:
        """Write a file. Nothing refers to it yet: a store counts from the moment its manifest is written."""
        if not self.is_local:
            self._fs.pipe_file(f"{self._root}/{key}", data)
            return
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def size(self) -> int:
        """Bytes of all files below."""
        return sum(self._fs.du(self._root, total=False).values())

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        if self._fs.exists(self._root):
            self._fs.rm(self._root, recursive=True)


def write_whole(target: Path, data: bytes) -> None:
    """Write a local file under a temporary name, flush it to the disk, and rename it."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
