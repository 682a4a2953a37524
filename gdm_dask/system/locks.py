"""Locks that name their owner, and folders that are writable only by their user.

Neither trusts a name that another user may have taken: symbolic links are refused, never followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from gdm_dask.errors import GdmError, Locked

logger = logging.getLogger(__name__)

#: Seconds between two attempts.
_PAUSE = 0.2


class FileLock:
    """Exclusive lock on a file, held by this process until `release` or its death.

    The kernel ties the lock to the open file, so the lock of a killed owner is free at once. The file names the owner,
    for the error message of the next process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, what: str, wait: float = 0.0) -> None:
        """Take the lock, or raise `Locked` after `wait` seconds, naming the owner and the locked thing (`what`)."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + wait
        while True:
            file = self._open()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = self._owner(file)
                os.close(file)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                if time.monotonic() >= deadline:
                    raise Locked(f"{what} is being written by {owner}. Wait for it to end, or end it first.") from None
                time.sleep(_PAUSE)
                continue
            if self._is_current(file):
                break
            os.close(file)  # the previous owner removed the file between our open and our lock
        self._file = file
        if os.fstat(file).st_size:
            logger.info("%s was left by %s, which has ended", what, self._owner(file))
        us = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with suppress(OSError):  # the disk is full: the lock holds, but names no owner
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(us).encode(), 0)

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def release(self) -> None:
        """Remove the file and free the lock."""
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        """Open the file; refuse a link, which would write to a file of another name."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise GdmError(f"{self.path} is a symbolic link, not a lock file. Remove it.") from None
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(file)
            raise GdmError(f"{self.path} is a special file or has a second hard link, so it is not a lock. Remove it.")
        return file

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self.path))
        except FileNotFoundError:
            return False

    @staticmethod
    def _owner(file: int) -> str:
        try:
            owner = json.loads(os.pread(file, 4096, 0))
            return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
        except (ValueError, KeyError, TypeError):
            return "another process"

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def user_folder(name: str) -> Path:
    """Return a private folder of this user, always the same: in the cache folder or else in a temporary folder.

    Raises `GdmError` if another user owns the folder or can write to it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    try:
        if not cache.is_absolute():
            raise FileNotFoundError(cache)
        folder = cache / "gdm_dask"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a service without a home directory
        folder = Path(tempfile.gettempdir()) / f"gdm_dask-{os.getuid()}"
    for private in (folder, folder / name):
        with suppress(FileExistsError):
            private.mkdir(mode=0o700)
        check_private(private)
    return folder / name


def check_private(folder: Path) -> None:
    """Raise `GdmError` if `folder` exists and another user may have created it or written to it."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        reason = "is not a folder"
    elif found.st_uid != os.getuid():
        reason = "belongs to another user"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = "can be written to by other users"
    else:
        return
    raise GdmError(f"{folder} {reason}, so its content cannot be trusted. Remove it and run the same command again.")


def read_private(path: Path) -> bytes:
    """Return the content of a file in a private folder; raise FileNotFoundError for a symbolic link too."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise FileNotFoundError(path) from None
    with open(file, "rb") as content:
        return content.read()
