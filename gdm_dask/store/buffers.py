"""Memory that is used again and again: where it is fresh, its first touch costs more than decoding a block into it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gdm_dask.system.scratch import page_aligned


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
