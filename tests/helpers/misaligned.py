"""Arrays as messages between processes leave them: at any byte of a buffer."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gdm_dask.engine.local import LocalEngine


def misaligned(array: np.ndarray) -> np.ndarray:
    """A copy of an array that begins at an odd address."""
    return np.frombuffer(_shifted(array.tobytes()), array.dtype).reshape(array.shape)


def arrived(value: Any) -> Any:
    """A value whose arrays came in a message, each of them at an odd address."""
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
    """Runs tasks here, with arguments and results as messages leave them."""

    def __init__(self) -> None:
        super().__init__("synchronous", 1)

    def map(self, function: Callable[..., Any], items: Sequence[Any], *common: Any, **_: Any) -> list[Any]:
        return [arrived(function(*arrived((item, *common)))) for item in items]
