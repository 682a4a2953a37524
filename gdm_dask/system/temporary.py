"""Temporary folders that do not stay behind: later processes remove the folders of killed ones."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

#: Seconds from the creation of a folder until it must be locked by its owner.
_YOUNG = 60.0


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Create a private folder that exists as long as the body runs; remove those that killed processes left."""
    _sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        place = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: nobody else can lock the folder, either
                fcntl.flock(place, fcntl.LOCK_EX)  # the kernel releases it, however this process ends
            yield Path(folder)
        finally:
            os.close(place)


@cache
def _sweep(prefix: str) -> None:
    """Remove our user's folders that no process holds; process ids would not do, containers may share the folder."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(place)
                if found.st_uid == os.getuid() and time.time() - found.st_ctime > _YOUNG:
                    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(place)
