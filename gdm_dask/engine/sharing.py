"""Large arguments for processes of this machine: written to a file once, and mapped by every task."""

from __future__ import annotations

import mmap
import pickle
import tempfile
from pathlib import Path
from typing import Any

#: Arguments whose arrays take more than this go through a file and not through every task's own message.
LARGE_BYTES = 1 << 20
_ALIGNMENT = 64


def array_bytes(value: Any) -> int:
    """Bytes of the arrays within a value, without copying them."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)


class SharedArguments:
    """Arguments of all tasks of a pass; the large ones lie in files until the pass is over.

    Parameters
    ----------
    values : tuple

    Attributes
    ----------
    values : tuple
        What to send in their place: a task that receives it gets the value.
    """

    def __init__(self, values: tuple) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gdm-pass-")
        self.values = tuple(self._shared(number, value) for number, value in enumerate(values))

    def _shared(self, number: int, value: Any) -> Any:
        if array_bytes(value) <= LARGE_BYTES:
            return value
        buffers: list[pickle.PickleBuffer] = []
        header = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        path = Path(self._folder.name) / str(number)
        bounds = []
        with open(path, "wb") as file:
            for buffer in buffers:
                file.seek(-file.tell() % _ALIGNMENT, 1)
                start = file.tell()
                file.write(buffer.raw())
                bounds.append((start, file.tell()))
            file.truncate()
        return MappedValue(header, path, bounds)

    def __enter__(self) -> SharedArguments:
        return self

    def __exit__(self, *_: Any) -> None:
        self._folder.cleanup()


class MappedValue:
    """A value whose arrays lie in a file."""

    def __init__(self, header: bytes, path: Path, bounds: list[tuple[int, int]]) -> None:
        self._parts = header, path, bounds

    def __reduce__(self) -> tuple:
        return map_value, self._parts


def map_value(header: bytes, path: Path, bounds: list[tuple[int, int]]) -> Any:
    """The value itself; its arrays are mapped, and changes to them would stay private."""
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return pickle.loads(header, buffers=[mapped[start:stop] for start, stop in bounds])
