"""Arrays at any byte offset of a buffer, as in messages between processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gdm_dask.engine.local import LocalEngine


def misaligned(array: np.ndarray) -> np.ndarray:
    """Copy an array to an odd address."""
    return np.frombuffer(_shifted(array.tobytes()), array.dtype).reshape(array.shape)


def arrived(value: Any) -> Any:
    """Return the value with all its arrays at odd addresses, as if received in a message."""
    buffers: list[pickle.PickleBuffer] = []
    message = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(message, buffers=[_shifted(bytes(buffer.raw())) for buffer in buffers])


def _shifted(content: bytes) -> np.ndarray:
    held = np.empty(len(content) + 2, np.uint8)
    start = 1 - held.ctypes.data % 2
    shifted = held[start : start + len(content)]
    shifted[:] = np.frombuffer(content, np.uint8)
    return shifted


class MisalignedEngine(LocalEngine):
    """Runs tasks in this process, with arguments and results as if received in messages."""

    def __init__(self) -> None:
        super().__init__("synchronous", 1)

    def map(self, function: Callable[..., Any], items: Sequence[Any], *common: Any, **_: Any) -> list[Any]:
        return [arrived(function(*arrived((item, *common)))) for item in items]
