"""Memory that is used again: touching fresh memory can cost more than the work that is done in it."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

#: Where memory and files must begin and end so that the one can be read into the other without a copy.
PAGE = 4096
#: From so many bytes on memory is taken from the system itself.
LARGE = 1 << 20

_spaces = threading.local()


def whole_pages(nbytes: int) -> int:
    """So many bytes, rounded up to whole pages.

    >>> whole_pages(1), whole_pages(8192)
    (4096, 8192)
    """
    return -(-nbytes // PAGE) * PAGE


def page_aligned(nbytes: int) -> np.ndarray:
    """Fresh memory that begins at a page.

    Where there is much of it, it comes in ordinary pages. NumPy asks for huge ones, and a virtual machine may have to
    get each of them from its host: 20 passes of a fit that keeps 3.7 GB took 29 s with them, and 13 s without.
    """
    if nbytes >= LARGE and hasattr(mmap, "MAP_PRIVATE"):
        return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    held = np.empty(nbytes + PAGE, np.uint8)
    start = -held.ctypes.data % PAGE
    return held[start : start + nbytes]


def work_space(name: str, length: int, dtype: np.dtype | type) -> np.ndarray:
    """An array that begins at a page and that this thread keeps for its next call by that name."""
    dtype = np.dtype(dtype)
    nbytes = length * dtype.itemsize
    held = getattr(_spaces, name, None)
    if held is None or held.nbytes < nbytes:
        setattr(_spaces, name, None)  # free the old one first
        held = page_aligned(nbytes * 9 // 8)
        setattr(_spaces, name, held)
    return held[:nbytes].view(dtype)


class Buffers:
    """Arrays by name; the next one of the same name takes the place of the last."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
        """An array whose content is whatever was there.

        Examples
        --------
        >>> buffers = Buffers()
        >>> first = buffers.take("values", (4,), "uint32")
        >>> np.shares_memory(first, buffers.take("values", (2, 3), "uint8"))
        True
        """
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        held = self._held.get(name)
        if held is None or held.nbytes < nbytes:
            self._held.pop(name, None)
            held = self._held[name] = page_aligned(nbytes)
        return held[:nbytes].view(dtype).reshape(shape)


class SpareBuffers:
    """Buffers that tasks borrow, one after the other."""

    def __init__(self) -> None:
        self._spare: list[Buffers] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[Buffers]:
        """Buffers for one task."""
        with self._lock:
            buffers = self._spare.pop() if self._spare else Buffers()
        try:
            yield buffers
        finally:
            with self._lock:
                self._spare.append(buffers)

    def drop(self) -> None:
        """Let go of those that nobody has borrowed."""
        with self._lock:
            self._spare.clear()
