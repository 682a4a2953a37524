"""Files that are written once and read once, bypassing the page cache.

In the cache they would displace useful pages, and filling fresh pages can cost more than all other work of an ingest.
If the system cannot bypass the cache (O_DIRECT of Linux), the same calls use it.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Callable

import numpy as np

from gdm_dask.system.scratch import PAGE, page_aligned, whole_pages, work_space

_DIRECT = getattr(os, "O_DIRECT", 0)


def write_file(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write the bytes of a contiguous array; bypass the cache if the array is page-aligned."""
    data = array.reshape(-1).view(np.uint8)
    with open(path, "wb", buffering=0) as file:
        if data.ctypes.data % PAGE:
            _transfer(file, file.write, data)
            return
        _go_around_cache(file)
        whole = len(data) - len(data) % PAGE
        _transfer(file, file.write, data[:whole])
        if whole < len(data):
            last = work_space("last page", PAGE, np.uint8)
            last[: len(data) - whole] = data[whole:]
            _transfer(file, file.write, last)
            file.truncate(len(data))


def read_file(
    path: str | os.PathLike[str], start: int, nbytes: int, room: Callable[[int], np.ndarray] = page_aligned
) -> np.ndarray:
    """Return bytes `start` to ``start + nbytes`` of a file; raise EOFError if it is too short.

    `room` returns memory for a number of bytes, preferably page-aligned.
    """
    shift = start % PAGE
    buffer = room(whole_pages(shift + nbytes))
    with open(path, "rb", buffering=0) as file:
        _go_around_cache(file)
        file.seek(start - shift)
        if _transfer(file, file.readinto, buffer) < shift + nbytes:
            raise EOFError(f"{os.fspath(path)}: the file ends too early")
    return buffer[shift : shift + nbytes]


def _go_around_cache(file: io.FileIO, on: bool = True) -> None:
    """Ask the system to copy directly between the disk and our memory; it may not be able to."""
    if not _DIRECT:
        return
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
    except OSError:
        if not on:
            raise


def _transfer(file: io.FileIO, move: Callable[[memoryview], int | None], data: np.ndarray) -> int:
    """Move all of `data`, or as much as there is; return the number of bytes moved."""
    rest = memoryview(data)  # type: ignore[arg-type]
    while len(rest):
        try:
            count = move(rest)
        except OSError as error:  # a file system with another alignment, or the rest of a page
            if error.errno != errno.EINVAL or not fcntl.fcntl(file, fcntl.F_GETFL) & _DIRECT:
                raise
            _go_around_cache(file, on=False)
            continue
        if not count:
            break
        rest = rest[count:]
    return len(data) - len(rest)
