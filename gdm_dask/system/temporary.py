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
def temporary_folder(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """Create a private folder that exists as long as the body runs; remove those that killed processes left.

    It lies in `place`, by default where temporary files go. A process that still writes to it at the end may leave a
    part of it, which is removed like the others.
    """
    _sweep(prefix, place or Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as folder:
        held = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: nobody else can lock the folder, either
                fcntl.flock(held, fcntl.LOCK_EX)  # the kernel releases it, however this process ends
            yield Path(folder)
        finally:
            os.close(held)


@cache
def _sweep(prefix: str, place: Path) -> None:
    """Remove our user's folders that no process holds; process ids would not do, containers may share the folder."""
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(held)
                if found.st_uid == os.getuid() and time.time() - found.st_ctime > _YOUNG:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)
