"""One Zarr chunk: encode an array's slice to bytes and back, with its checksum.

The bytes are what the Zarr v3 codec chain ``bytes (little) -> blosc -> crc32c`` defines, so any Zarr reader can
decode them. They are made here and not by zarr-python's pipeline because a pass over the data is bound by this step:
decoding straight into the destination costs about half of the pipeline's time (``make bench-codecs`` prints both). And
a checksum that is compared with the store's manifest also catches the chunks that a pipeline cannot: the missing one,
which it reads as zeros, and the swapped one, whose own checksum is right.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
from crc32c import crc32c
from numcodecs import blosc

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.system.scratch import work_space

CRC_BYTES = 4
#: Of the 16 bytes that begin what blosc compressed: the number of bytes decoded, and as they are.
_BLOSC_HEADER = struct.Struct("<4xI4xI")

#: name -> (blosc compressor, level); None stores the bytes as they are.
CODECS: dict[str, tuple[str, int] | None] = {"none": None, "lz4": ("lz4", 5), "zstd": ("zstd", 3)}


def check_codec(codec: str) -> None:
    """Refuse an unknown codec name."""
    if codec not in CODECS:
        raise BadInput(f"unknown codec {codec!r}: choose one of {', '.join(CODECS)}")


def codec_metadata(codec: str, itemsize: int) -> list[dict[str, Any]]:
    """Zarr v3 ``codecs`` entry for chunks written by `encode`."""
    chain: list[dict[str, Any]] = [
        {"name": "bytes", "configuration": {"endian": "little"}} if itemsize > 1 else {"name": "bytes"}
    ]
    settings = CODECS[codec]
    if settings is not None:
        name, level = settings
        chain.append(
            {
                "name": "blosc",
                "configuration": {
                    "cname": name,
                    "clevel": level,
                    "shuffle": "shuffle" if itemsize > 1 else "noshuffle",
                    "typesize": itemsize,
                    "blocksize": 0,
                },
            }
        )
    return [*chain, {"name": "crc32c"}]


class _WithoutThreads:
    """Keeps blosc from using threads of its own: with them the parts of a chunk lie in the order in which they end.

    It would in the main thread, or anywhere when told to. What it was told holds again when nobody compresses here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._told: bool | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._told, blosc.use_threads = blosc.use_threads, False
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                blosc.use_threads = self._told


_without_threads = _WithoutThreads()


def encode(values: np.ndarray, codec: str) -> tuple[np.ndarray, int]:
    """Bytes of one chunk, in work space of this thread, and the CRC-32C that ends them.

    Examples
    --------
    >>> data, crc = encode(np.arange(4, dtype=np.uint32), "lz4")
    >>> out = np.empty(4, np.uint32)
    >>> decode(data, crc, "lz4", out)
    >>> out
    array([0, 1, 2, 3], dtype=uint32)
    """
    values = np.ascontiguousarray(values)
    settings = CODECS[codec]
    if settings is None:
        body = values.tobytes()
    else:
        name, level = settings
        shuffle = blosc.SHUFFLE if values.itemsize > 1 else blosc.NOSHUFFLE
        with _without_threads:
            body = blosc.compress(values, name.encode(), level, shuffle)
    crc = crc32c(body)
    data = work_space("encoded chunk", len(body) + CRC_BYTES, np.uint8)
    data[:-CRC_BYTES] = np.frombuffer(body, np.uint8)
    data[-CRC_BYTES:] = np.frombuffer(crc.to_bytes(CRC_BYTES, "little"), np.uint8)
    return data, crc


def decode(data: bytes | memoryview | np.ndarray, crc: int, codec: str, out: np.ndarray) -> None:
    """Check a chunk's bytes against the manifest's `crc` and decode them into `out` (contiguous); undoes `encode`.

    Raises
    ------
    DamagedStore
        With what is wrong with the bytes; the caller adds which chunk it was.
    """
    body = memoryview(data)[:-CRC_BYTES]  # type: ignore[arg-type]
    if int.from_bytes(bytes(data[-CRC_BYTES:]), "little") != crc or crc32c(body) != crc:
        raise DamagedStore(f"its {len(data)} bytes do not have the checksum that was written")
    # The checksum is right, but whoever wrote it need not have been `encode`.
    if CODECS[codec] is None:
        if len(body) != out.nbytes:
            raise DamagedStore(f"it holds {len(body)} bytes, not {out.nbytes}")
        out.reshape(-1).view(np.uint8)[:] = np.frombuffer(body, np.uint8)
        return
    if len(body) < _BLOSC_HEADER.size:
        raise DamagedStore("it is too short")
    decoded, encoded = _BLOSC_HEADER.unpack_from(body)
    if (decoded, encoded) != (out.nbytes, len(body)):
        raise DamagedStore(f"it holds {decoded} bytes in {encoded}, not {out.nbytes} in {len(body)}")
    try:
        blosc.decompress(body, out)
    except (RuntimeError, ValueError) as error:
        raise DamagedStore(str(error)) from error
