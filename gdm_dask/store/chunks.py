"""A Zarr chunk: encode a slice of an array to bytes and decode it, with a checksum.

The bytes follow the Zarr v3 codec chain ``bytes (little) -> blosc -> crc32c``, so any Zarr reader can decode them. They
are not produced by zarr-python's pipeline because this step limits the speed of a pass over the data: decoding directly
into the destination takes about half of the pipeline's time (``make bench-codecs`` prints both). The checksums are also
kept in the store's manifest. This catches chunks that a pipeline cannot detect: a missing chunk, which it reads as
zeros, and a swapped chunk, whose own checksum is right.
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
#: From the 16-byte header of a blosc buffer: the decoded and the compressed number of bytes.
_BLOSC_HEADER = struct.Struct("<4xI4xI")

#: name -> (blosc compressor, level); None stores the bytes uncompressed.
CODECS: dict[str, tuple[str, int] | None] = {"none": None, "lz4": ("lz4", 5), "zstd": ("zstd", 3)}


def check_codec(codec: str) -> None:
    """Refuse an unknown codec name."""
    if codec not in CODECS:
        raise BadInput(f"unknown codec {codec!r}: choose one of {', '.join(CODECS)}")


def codec_metadata(codec: str, itemsize: int) -> list[dict[str, Any]]:
    """Return the Zarr v3 ``codecs`` entry for chunks written by `encode`."""
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
    """Disable the internal threads of blosc: with them, the order of the parts of a chunk depends on timing.

    Blosc uses them in the main thread, or anywhere if told to. Its setting is restored when no thread compresses here.
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
    """Return the bytes of one chunk, in work space of this thread, and the CRC-32C at their end.

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
        Describes the fault in the bytes; the caller adds the name of the chunk.
    """
    body = memoryview(data)[:-CRC_BYTES]  # type: ignore[arg-type]
    if int.from_bytes(bytes(data[-CRC_BYTES:]), "little") != crc or crc32c(body) != crc:
        raise DamagedStore(f"its {len(data)} bytes do not match their checksum")
    # The checksum is right, but the chunk may come from a program other than `encode`.
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
