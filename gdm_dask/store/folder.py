"""Access to the files of a store, in a local folder or an object store, through one small interface."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import fsspec
import numpy as np
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from gdm_dask.errors import BadInput, EngineError, GdmError
from gdm_dask.system.scratch import work_space
from gdm_dask.system.uncached import read_file, write_file

if TYPE_CHECKING:
    from gdm_dask.store.remote import Copies

#: Bytes that a task requests from an object store before it reads them: enough to hide a latency of 100 ms.
READ_AHEAD = 64 << 20
#: Bytes that a task has sent to an object store without an answer yet.
WRITE_BEHIND = 16 << 20
#: Bytes of a remote source that are read at a time, at least.
WINDOW = 1 << 20
#: Seconds to go on with a service that cannot be reached.
PATIENCE = 30.0
#: Options for reading many objects of a few MB: whole, without asking for the size first, and many at the same time.
_SUITABLE: dict[str, dict[str, Any]] = {
    "s3": {"max_concurrency": 1, "config_kwargs": {"max_pool_connections": 64}},
}

#: What file systems call the time of the last change, or the version of a file.
_VERSIONS = ("mtime", "ETag", "etag", "last_modified", "LastModified", "updated", "created")

COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: Errors for compressed data that is damaged or cut off.
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)

#: Suffix of files that are being written; a killed writer may leave some.
UNFINISHED = ".tmp"
#: Suffix of the folder in which a local store is built, next to the store.
PARTIAL = ".partial"


class Folder:
    """Files below a local path or a URL supported by fsspec (``s3://bucket/name``, ``gs://...``, ``memory://...``).

    The folder need not exist yet. For `storage_options`, see `client_options`.
    """

    def __init__(self, url: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> None:
        url = os.fspath(url)
        self.url = str(url)
        self.storage_options = dict(storage_options or options_of(url))
        self._fs, root = file_system(self.url, self.storage_options)
        self._root = root.rstrip("/") or root
        self.is_local = isinstance(self._fs, LocalFileSystem)
        #: Decoded bytes of files to request before they are read; 0 if files come one by one.
        self.bytes_ahead = READ_AHEAD if self._fs.async_impl else 0
        #: Bytes of files that are being written and read back at the same time.
        self.bytes_behind = 2 * WRITE_BEHIND if self._fs.async_impl else 0

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    @property
    def path(self) -> Path:
        """The local path; only for local folders."""
        return Path(self._root)

    def read(self, key: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Return the content of a file, or some of its bytes; raise FileNotFoundError if it does not exist."""
        if self.is_local and start is None:
            return (self.path / key).read_bytes()
        content: bytes = self._call(self._fs.cat_file, self._place(key), start=start, end=stop)
        return content

    def read_range(self, start: int, stop: int) -> bytes:
        """Return some bytes of this file on a URL, all of which must be there."""
        data = self.read("", start, stop)
        if len(data) != stop - start:
            raise BadInput(
                f"{self.url}: expected {stop - start} bytes, got {len(data)}: the server ignores ranges, or the file "
                "changed. Download the file, and ingest the copy."
            )
        return data

    def info(self, key: str = "") -> dict[str, Any]:
        """Return what the file system knows about a file, by default this one: its ``size``, ``ETag`` or ``mtime``."""
        found: dict[str, Any] = self._call(self._fs.info, self._place(key))
        return found

    def read_chunk(self, key: str) -> bytes | memoryview:
        """Read a file into work space of this thread; the result is valid until the thread's next read."""
        if not self.is_local:
            return self.read(key)
        with open(self._place(key), "rb") as file:  # making a Path takes as long as opening the file
            room = work_space("chunk read", os.fstat(file.fileno()).st_size, np.uint8)
            return room.data[: file.readinto(room.data)]

    def read_once(self, key: str) -> bytes | memoryview:
        """Read a file from the disk, not from the page cache, into work space of this thread."""
        if not self.is_local:
            return self.read_chunk(key)
        path = self.path / key
        data = read_file(path, 0, path.stat().st_size, lambda nbytes: work_space("file read once", nbytes, np.uint8))
        return memoryview(data)  # type: ignore[arg-type]

    def write(self, key: str, data: bytes) -> None:
        """Write a file atomically."""
        if not self.is_local:
            self._put(self._fs.pipe_file, key, data)
            return
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with renamed_at_end(target, f"{target.name}.") as temporary:
            temporary.write_bytes(data)

    def write_and_compare(self, key: str, data: np.ndarray) -> None:
        """Write bytes and compare them with those read back from the disk, not from the page cache.

        Arrays that begin at a page boundary are written directly, without a copy.
        """
        if self.is_local:
            target = self.path / key
            target.parent.mkdir(parents=True, exist_ok=True)
            with renamed_at_end(target, f"{target.name}.") as temporary:
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

    def ahead(self, files: Iterable[tuple[str, int]], copies: Copies | None = None) -> AbstractContextManager[Folder]:
        """Return a folder to read the chunks in these files from; see `gdm_dask.store.remote.ReadAhead`."""
        if not self.bytes_ahead:
            return nullcontext(self)
        from gdm_dask.store.remote import ReadAhead

        return ReadAhead(self, files, copies)

    def behind(self) -> AbstractContextManager[Folder]:
        """Return a folder to write files to, until the context ends; see `gdm_dask.store.remote.WriteBehind`."""
        if not self.bytes_behind:
            return nullcontext(self)
        from gdm_dask.store.remote import WriteBehind

        return WriteBehind(self)

    def create(self, key: str, data: bytes) -> bool:
        """Write a file of an object store unless it exists; return whether it was written."""
        from gdm_dask.store.remote import create_only

        return bool(self._put(partial(create_only, self._fs), key, data))

    def names(self) -> set[str]:
        """Return the names of the entries of the folder; none if it does not exist."""
        self._fs.invalidate_cache()
        try:
            found = self._call(self._fs.ls, self._root, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return set()
        return {name.rstrip("/").rsplit("/", 1)[-1] for name in found}

    def find(self) -> dict[str, dict[str, Any]]:
        """Return what the file system knows about all files below."""
        found: dict[str, dict[str, Any]] = self._call(self._fs.find, self._root, detail=True)
        return found

    def size(self) -> int:
        """Return the bytes of all files below."""
        return sum(int(info["size"]) for info in self.find().values())

    def remove(self, key: str = "") -> None:
        """Remove a file or folder with all of its content; by default this whole folder."""
        self._fs.invalidate_cache()
        if self._call(self._fs.exists, self._place(key)):
            self._call(self._fs.rm, self._place(key), recursive=True)

    def _place(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _put(self, write: Callable[[str, bytes], Any], key: str, data: bytes) -> Any:
        try:
            return self._call(write, f"{self._root}/{key}", data)
        except FileNotFoundError as error:
            why = error.strerror or error
            raise BadInput(f"{self.url}: cannot be written to: {why}. Make the bucket or container first.") from error

    def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of the file system; see `gdm_dask.store.remote.call`."""
        if self.is_local:
            return function(*args, **options)
        from gdm_dask.store.remote import call

        return call(self.url, float(self.storage_options.get("patience", PATIENCE)), function, *args, **options)


class Url(str):
    """A URL with the options to reach it. It is printed and saved without them: they may hold secrets."""

    def __new__(cls, url: str, storage_options: dict[str, Any] | None = None) -> Url:
        """Return the URL, with its options as an attribute."""
        made = super().__new__(cls, url)
        made.storage_options = dict(storage_options or {})
        return made

    storage_options: dict[str, Any]


def absolute(path: str) -> str:
    """Make a local path absolute, for other processes and computers with the same mounts; URLs stay unchanged."""
    return path if "://" in path else os.path.abspath(path)


def options_of(url: str) -> dict[str, Any]:
    """Return the storage options of a URL; none of a plain text."""
    return url.storage_options if isinstance(url, Url) else {}


def client_options(url: str, storage_options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the options for fsspec, such as endpoint and credentials, with suitable defaults.

    Without `storage_options`, a `Url` brings its own. Local paths need none. Our own option ``patience`` is left out.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    options = dict(storage_options or options_of(url)) if scheme else {}
    options.pop("patience", None)
    for key, value in _SUITABLE.get(scheme, {}).items():
        options[key] = value | options.get(key, {}) if isinstance(value, dict) else options.get(key, value)
    return options


def file_system(url: str, storage_options: dict[str, Any] | None = None) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a path or URL, and the path in it; see `client_options`."""
    try:
        found, path = fsspec.core.url_to_fs(url, **client_options(url, storage_options))
    except (ImportError, ValueError) as error:
        raise BadInput(f"{url}: {error}") from error
    except OSError as error:  # of a client that connects at once
        raise EngineError(f"{url}: cannot be reached: {error}. Check the address and the network.") from error
    if found.async_impl:
        from gdm_dask.store.remote import keep_quiet

        keep_quiet(found)
    return found, path


def open_file(path: str) -> io.BufferedReader:
    """Open a local or remote file for reading bytes; raise a clear error on failure."""
    with _readable(path):
        found, name = file_system(path)
        if isinstance(found, LocalFileSystem):
            return open(name, "rb")
        from gdm_dask.store.remote import RemoteFile

        return io.BufferedReader(RemoteFile(path), WINDOW)


def compression_of(path: str) -> str | None:
    """Return the compression suffix of a file name, or None."""
    suffix = os.path.splitext(path)[1].lower()
    return suffix if suffix in COMPRESSIONS else None


@contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """Open a plain or compressed file for reading lines."""
    suffix = compression_of(path)
    with open_file(path) as raw:
        if suffix is None:
            yield raw
            return
        try:
            yield COMPRESSIONS[suffix](raw)
        except DAMAGED as error:
            raise BadInput(f"{path}: the file is damaged or cut off: {error}. Fetch it again.") from error


def file_info(path: str) -> dict[str, Any]:
    """Return size and version of a local or remote file that can be read."""
    with _readable(path):
        info = Folder(path).info()
    if info["type"] != "file":
        kind = "a folder" if info["type"] == "directory" else "a device or a pipe"
        raise BadInput(f"{path}: this is {kind}, not a file that can be ingested")
    if info["size"] is None:
        raise BadInput(
            f"{path}: the server does not tell the size of the file. Download it, and ingest the local copy."
        )
    open_file(path).close()
    return {"size": int(info["size"]), "changed": version_of(info)}


def version_of(info: dict[str, Any]) -> str:
    """Return the time of the last change, or another mark of the version of a file; see `Folder.info`."""
    return str(next((info[key] for key in _VERSIONS if info.get(key)), None))


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError as error:
        also = ", or its server cannot be reached" if "://" in path else ""
        raise BadInput(f"{path}: cannot be read: no such file{also}") from error
    except (OSError, ImportError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def local_folder(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path of a local folder; refuse a URL, which would create a folder named after its scheme."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(path)):
        shown = re.sub(":/+", "://", os.fspath(path), count=1)  # a Path has lost a slash
        raise BadInput(f"{what} must be a local folder, got {shown}")
    return Path(path)


def check_writable(target: Path) -> None:
    """Refuse a local file that cannot be written, before the work for its content."""
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise BadInput(f"{target}: cannot be written: choose an existing folder that you may write to")


def write_whole(target: Path, data: bytes) -> None:
    """Write a local file under a temporary name, flush it to the disk, and rename it."""
    with renamed_at_end(target, f".{target.name}.") as temporary, open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def renamed_at_end(target: Path, prefix: str) -> Iterator[Path]:
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
