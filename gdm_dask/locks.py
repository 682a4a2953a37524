"""A lock with an owner: one writer per place, and a killed writer leaves no lock behind."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gdm_dask.errors import Locked

logger = logging.getLogger(__name__)

#: Seconds between two tries.
_PAUSE = 0.2


class FileLock:
    """Exclusive lock on a file, held by this process until `release` or its death.

    The kernel ties the lock to the open file, so a lock whose owner was killed is free at once. The file holds who the
    owner is, for the message that the next one gets.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, what: str, wait: float = 0.0) -> None:
        """Take the lock or raise `Locked`, naming the owner and `what` is locked.

        Parameters
        ----------
        what : str
        wait : float
            Seconds in which the owner may let go.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + wait
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            os.close(file)  # the owner before us removed the file between our open and our lock
        self._file = file
        if os.fstat(file).st_size:
            logger.info("%s was left by %s, which has ended", what, self._owner(file))
        us = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with suppress(OSError):  # the disk is full: the lock holds without a name on it
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
        except (ValueError, KeyError, TypeError):
            return "another process"

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
