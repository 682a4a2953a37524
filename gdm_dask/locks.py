"""A lock with an owner: one writer per place, and a killed writer leaves no lock behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType

from gdm_dask.errors import Locked


class FileLock:
    """Exclusive lock on a file, held by this process until `release` or its death.

    The kernel ties the lock to the open file, so a lock whose owner was killed is free at once. The file holds who the
    owner is, for the message that the next one gets.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, what: str) -> None:
        """Take the lock or raise `Locked`, naming the owner and `what` is locked."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = self._owner(file)
                os.close(file)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise Locked(f"{what} is being written by {owner}. Wait for it to end, or end it first.") from None
            if self._is_current(file):
                break
            os.close(file)  # the owner before us removed the file between our open and our lock
        self._file = file
        us = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
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

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        except FileNotFoundError:
            return False

    @staticmethod
    def _owner(file: int) -> str:
        try:
            owner = json.loads(os.pread(file, 4096, 0))
            return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
        except (ValueError, KeyError):
            return "another process"

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
