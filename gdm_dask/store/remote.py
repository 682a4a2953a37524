"""Object stores: patience with a service that cannot be reached, files read by ranges, many requests at once."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gdm_dask.errors import BadInput, EngineError, GdmError
from gdm_dask.store.folder import WRITE_BEHIND, Folder
from gdm_dask.system import interrupts
from gdm_dask.system.resources import format_bytes, is_in_memory
from gdm_dask.system.temporary import temporary_folder

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

#: Files that a task has requested but not read yet, or sent without an answer yet, at most.
REQUESTS_AHEAD = 64
#: For temporary files that are too large for memory.
DISK = Path("/var/tmp")
#: Seconds to wait before the first further attempt; doubled each time, up to the longest pause.
PAUSE = 0.2
LONGEST_PAUSE = 5.0

#: Answers that further attempts do not change.
_ANSWERS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
#: HTTP statuses below 500 of requests that may succeed later: a time-out, and too many requests.
_LATER = (408, 429)
#: Base classes of errors in clients that are not OSError: of botocore, aiohttp and the Azure SDK.
_NO_CONNECTION = {"ConnectionError", "HTTPClientError", "ClientConnectionError", "ClientPayloadError", "AzureError"}
#: The same of errors about credentials: of botocore, the Azure SDK and Google's client.
_NO_CREDENTIALS = {
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "ClientAuthenticationError", "GoogleAuthError",
}  # fmt: skip


def call(url: str, patience: float, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
    """Call a function of a file system, for `patience` seconds while the service fails; its errors name the URL."""
    deadline, pause = time.monotonic() + patience, PAUSE
    while True:
        try:
            return function(*args, **options)
        except GdmError:
            raise
        except Exception as error:
            text = str(error).partition("\n")[0].rstrip(".") or type(error).__name__  # Azure adds its whole answer
            status = _status_of(error)
            if isinstance(error, PermissionError) or status in (401, 403) or _is_one_of(error, _NO_CREDENTIALS):
                raise BadInput(
                    f"{url}: access denied ({text}). Check the credentials: --storage-option, or the variables and "
                    "profiles of the service's client."
                ) from error
            if isinstance(error, _ANSWERS):
                raise
            if status == 404:
                raise FileNotFoundError(errno.ENOENT, text, url) from error
            if isinstance(error, (TypeError, ValueError)):
                raise BadInput(f"{url}: a storage option is wrong: {text}") from error
            if not _may_pass(error, status):
                raise GdmError(f"{url}: {text}") from error
            if time.monotonic() + pause > deadline:
                raise EngineError(
                    f"{url}: cannot be reached: {text}. Check the endpoint and the network, and run the same command "
                    "again (gdm fit with --resume); --storage-option patience=SECONDS waits longer."
                ) from error
            logger.warning("%s: cannot be reached: %s; trying again", url, text)
        interrupts.check()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status in an error of a client (Azure SDK, gcsfs, aiohttp), or None."""
    if isinstance(error, OSError) and str(error).startswith("Forbidden"):  # gcsfs
        return 403
    found = (getattr(error, name, None) for name in ("status_code", "code", "status"))
    return next((int(text) for text in map(str, found) if text.isdigit() and int(text)), None)


def _may_pass(error: Exception, status: int | None) -> bool:
    """Return whether a failed request may succeed later."""
    if status is not None:
        return status >= 500 or status in _LATER
    if isinstance(error, OSError):
        return error.errno not in (errno.EINVAL, errno.ENOSYS)
    return _is_one_of(error, _NO_CONNECTION)


def _is_one_of(error: Exception, names: set[str]) -> bool:
    """Return whether an error belongs to a class of a client that may not be installed."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def create_only(file_system: AbstractFileSystem, path: str, data: bytes) -> bool:
    """Write a file unless it exists; return whether it was written. Stores without conditional writes overwrite it."""
    try:
        file_system.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if "PreconditionFailed" in str(error.__cause__):  # MinIO does not name the condition
            return False
        if error.errno != errno.ENOSYS:
            raise
        logger.warning("%s: the store has no conditional writes; two ingests at once are not noticed", path)
        file_system.pipe_file(path, data)
    return True


def keep_quiet(file_system: AbstractFileSystem) -> None:
    """Log errors of abandoned requests at debug level: requests that somebody waits for raise them."""

    def log(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        logger.debug("%s", context.get("message"), exc_info=context.get("exception"))

    loop = file_system.loop
    loop.call_soon_threadsafe(loop.set_exception_handler, log)


class RemoteFile(io.RawIOBase):
    """A file on a URL, read by ranges of bytes, each with patience."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._file = Folder(url)
        self._size = int(self._file.info()["size"])
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place; nothing is requested."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with one request; return the number of bytes."""
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        data = self._file.read_range(self._at, stop)
        buffer[: len(data)] = data
        self._at = stop
        return len(data)


@contextmanager
def copies_of(name: str, nbytes: int, limit: int, folder: str | None = None) -> Iterator[Path | None]:
    """Create a folder for copies of chunks on the local disk, which ends with the body; None if there is no room.

    Parameters
    ----------
    name : str
        The store, for the log.
    nbytes : int
        Upper bound on the bytes of all copies.
    limit : int
        Bytes that they may take, but never more than half of what is free.
    folder : str, optional
        Where to create the folder; by default where temporary files go, or in `DISK` if these are in memory.
    """
    place = Path(folder or tempfile.gettempdir())
    if not folder and is_in_memory(place) and DISK.is_dir():
        place = DISK
    try:
        room = min(limit, shutil.disk_usage(place).free // 2)
    except OSError as error:
        raise BadInput(f"`gdm_dask.scratch` must be a local folder, got {place}: {error.strerror}") from error
    if not folder and is_in_memory(place):
        room = 0
    if nbytes > room:
        logger.info(
            "%s: each pass fetches all chunks, because copies of up to %s have no room in %s (%s). "
            "DASK_GDM_DASK__SCRATCH and DASK_GDM_DASK__SCRATCH_LIMIT choose another folder and limit",
            name, format_bytes(nbytes), place, format_bytes(room),
        )  # fmt: skip
        yield None
        return
    with temporary_folder("gdm-copies-", place) as copies:
        logger.info("%s: copies of chunks, up to %s, go to %s", name, format_bytes(nbytes), copies)
        yield copies


class Copies(Folder):
    """Copies of chunks, which all processes of a host share. It stays incomplete if the disk is full."""

    _is_full = False

    def keep(self, key: str, data: bytes) -> None:
        """Write a copy, unless an earlier one could not be written."""
        if self._is_full:
            return
        try:
            self.write(key, data)
        except OSError as error:
            self._is_full = True
            logger.warning("%s: no more copies of chunks: %s. Later passes fetch the others again", self.url, error)


class ReadAhead(Folder):
    """A folder in an object store that requests files before they are read, several at the same time.

    As a context, it cancels on exit the requests of files that were not read.

    Parameters
    ----------
    folder : Folder
    files : iterable of (str, int)
        Key and upper bound on the bytes of each file, in the order of reading. Other files are read as usual.
    copies : Copies, optional
        Where to keep the files that are read; those that are there are not requested.
    """

    def __init__(self, folder: Folder, files: Iterable[tuple[str, int]], copies: Copies | None = None) -> None:
        vars(self).update(vars(folder))
        self._copies = copies
        self._given: set[str] = set()
        self._files = (file for file in files if copies is None or not (copies.path / file[0]).exists())
        self._next: tuple[str, int] | None = next(self._files, None)
        self._coming: dict[str, tuple[Future[bytes], int]] = {}
        self._nbytes = 0
        self._request()

    def _request(self) -> None:
        """Request files until enough are on their way."""
        while self._next is not None and len(self._coming) < REQUESTS_AHEAD:
            key, nbytes = self._next
            if self._coming and self._nbytes + nbytes > self.bytes_ahead:
                break
            request = self._fs._cat_file(f"{self._root}/{key}")
            self._coming[key] = asyncio.run_coroutine_threadsafe(request, self._fs.loop), nbytes
            self._nbytes += nbytes
            self._next = next(self._files, None)

    def read_chunk(self, key: str) -> bytes | memoryview:
        """Return the content of a file; a file that is read again was damaged, so its copy is not used but replaced."""
        if self._copies is None:
            return self._fetch(key)
        is_first = key not in self._given
        self._given.add(key)
        if is_first and key not in self._coming:
            with suppress(OSError):
                return self._copies.read_chunk(key)
        data = self._fetch(key)
        self._copies.keep(key, data)
        return data

    def _fetch(self, key: str) -> bytes:
        """Return the content of a file in the object store; if its request failed, read it again, with patience."""
        if key not in self._coming:
            return self.read(key)
        future, nbytes = self._coming.pop(key)
        self._nbytes -= nbytes
        self._request()
        try:
            return future.result()
        except Exception:  # of any client; the second read reports what is wrong
            return self.read(key)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *error: object) -> None:
        for future, _ in self._coming.values():
            future.cancel()


class WriteBehind(Folder):
    """A folder in an object store that writes several files at the same time.

    As a context, it waits on exit until all files are written, and raises the first error.
    """

    def __init__(self, folder: Folder) -> None:
        vars(self).update(vars(folder))
        self._going: deque[tuple[Future[None], str, bytes, bool]] = deque()
        self._nbytes = 0

    def write(self, key: str, data: bytes) -> None:
        """Begin to write a file."""
        self._begin(key, data, compare=False)

    def write_and_compare(self, key: str, data: np.ndarray) -> None:
        """Begin to write a file, which is read back and compared."""
        self._begin(key, data.tobytes(), compare=True)

    def _begin(self, key: str, data: bytes, compare: bool) -> None:
        while self._going and (self._nbytes + len(data) > WRITE_BEHIND or len(self._going) == REQUESTS_AHEAD):
            self._end_one()
        request = self._send(self._place(key), data, compare)
        self._going.append((asyncio.run_coroutine_threadsafe(request, self._fs.loop), key, data, compare))
        self._nbytes += len(data)

    async def _send(self, path: str, data: bytes, compare: bool) -> None:
        await self._fs._pipe_file(path, data)
        if compare and await self._fs._cat_file(path) != data:
            raise OSError("it reads back differently")

    def _end_one(self) -> None:
        """Wait for the oldest file; one that failed is written again, with patience."""
        future, key, data, compare = self._going.popleft()
        self._nbytes -= len(data)
        interrupts.check()
        try:
            future.result()
        except Exception:  # of any client; the second attempt reports what is wrong
            if compare:
                super().write_and_compare(key, np.frombuffer(data, np.uint8))
            else:
                super().write(key, data)

    def __enter__(self) -> WriteBehind:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            while self._going and kind is None:
                self._end_one()
        finally:
            for future, *_ in self._going:
                future.cancel()
