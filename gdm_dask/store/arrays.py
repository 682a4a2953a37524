"""Zarr v3 arrays, chunked along the first axis. Chunks are written once and checked on every read.

Each array is described by an `ArrayEntry` in the store's manifest, so a reader needs no other metadata. An ordinary
``zarr.json`` lies beside the chunks, so any other Zarr reader can open the array too.

The bytes of a chunk follow the Zarr v3 codec chain ``bytes (little) -> blosc -> crc32c``. They are not produced by
zarr-python's pipeline because this step limits the speed of a pass over the data: decoding directly into the
destination takes about half of the pipeline's time (``make bench-codecs`` prints both). The checksums are also kept in
the manifest. This catches chunks that a pipeline cannot detect: a missing chunk, which it reads as zeros, and a swapped
chunk, whose own checksum is right.
"""

from __future__ import annotations

import json
import math
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from crc32c import crc32c
from numcodecs import blosc

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.features.values import MOST_DECIMALS, from_whole, to_whole
from gdm_dask.store.folder import Folder
from gdm_dask.system.scratch import Buffers, work_space

#: Decoded bytes of one chunk: large enough to make the overhead negligible, small enough to fetch a single row.
CHUNK_BYTES = 4 << 20

#: Feature and sample numbers are 32-bit, and so are the pointers to the nonzeros of a block.
MAX_LENGTH = 2**32
REMEDY = "Restore the store from a copy, or ingest the source again with --overwrite."
CRC_BYTES = 4
#: From the 16-byte header of a blosc buffer: the decoded and the compressed number of bytes.
_BLOSC_HEADER = struct.Struct("<4xI4xI")

#: name -> (blosc compressor, level); None stores the bytes uncompressed.
CODECS: dict[str, tuple[str, int] | None] = {"none": None, "lz4": ("lz4", 5), "zstd": ("zstd", 3)}


@dataclass(frozen=True)
class ArrayEntry:
    """Manifest entry of one array."""

    dtype: str  # Zarr data type of the stored values (``"uint32"``, ...), little-endian
    shape: list[int]
    chunk: int  # rows (entries of the first axis) in a chunk
    codec: str  # a name of `CODECS`
    crc: list[int]  # CRC-32C of every chunk, in order
    #: If given, the array stores integers, and each value is the float64 quotient of the integer and 10 to this power.
    places: int | None = None

    def type_of(self, as_stored: bool) -> np.dtype:
        """Return the type of the values in memory: the stored integers, or the numbers they stand for."""
        return np.dtype(self.dtype if as_stored or self.places is None else np.float64)

    def fits(self, types: str, *shape: int) -> bool:
        """Return whether the array has one of these types, this shape (-1: any length), and a checksum for each chunk.

        The entry comes from a file that anybody may have written, and arrays are allocated from it.
        """
        sizes = [*self.shape, self.chunk]
        if not all(type(size) is int and 0 <= size < MAX_LENGTH for size in sizes) or len(self.shape) != len(shape):
            return False
        if self.chunk < 1 or self.dtype not in types.split() or self.codec not in CODECS:
            return False
        row_bytes = math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize
        n_chunks = -(-self.shape[0] // self.chunk) if row_bytes else 0
        whole = self.places is None or (
            type(self.places) is int and 0 <= self.places <= MOST_DECIMALS and self.dtype == "int32"
        )
        alike = all(wanted in (-1, size) for wanted, size in zip(shape, self.shape, strict=True))
        checked = type(self.crc) is list and len(self.crc) == n_chunks
        return alike and whole and checked and self.chunk * row_bytes < 2**31

    def nbytes_of(self, as_stored: bool) -> int:
        """Return the decoded size of the stored integers, or of the numbers they stand for."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.type_of(as_stored).itemsize


def chunk_length(n_rows: int, row_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Return the rows per chunk, for chunks of equal length near `chunk_bytes`: the last one needs little padding.

    Examples
    --------
    >>> chunk_length(1000, row_bytes=4, chunk_bytes=1600)
    500
    """
    n_chunks = max(1, round(n_rows * row_bytes / chunk_bytes))
    return max(1, -(-n_rows // n_chunks))


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


def zarr_metadata(entry: ArrayEntry) -> bytes:
    """Return the ``zarr.json`` of the array."""
    itemsize = np.dtype(entry.dtype).itemsize
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": entry.shape,
        "data_type": entry.dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [entry.chunk, *(max(1, length) for length in entry.shape[1:])]},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": codec_metadata(entry.codec, itemsize),
        "attributes": {} if entry.places is None else {"decimal_places": entry.places},
        "storage_transformers": [],
    }
    return json.dumps(document, indent=2).encode()


def check_metadata(folder: Folder, name: str, entry: ArrayEntry) -> None:
    """Raise `DamagedStore` if the array's ``zarr.json``, used by other Zarr readers, differs from the one written."""
    try:
        whole = folder.read(f"{name}/zarr.json") == zarr_metadata(entry)
    except FileNotFoundError:
        whole = False
    if not whole:
        raise DamagedStore(f"{folder.url}: zarr.json of array {name!r} is missing or damaged. {REMEDY}")


def _chunk_key(name: str, number: int, n_dims: int) -> str:
    return f"{name}/c/{number}" + "/0" * (n_dims - 1)


def chunk_files(name: str, entry: ArrayEntry) -> Iterator[tuple[str, int]]:
    """Yield the key of each chunk of an array, in the order of reading, and its decoded bytes."""
    nbytes = entry.chunk * math.prod(entry.shape[1:]) * np.dtype(entry.dtype).itemsize
    for number in range(len(entry.crc)):
        yield _chunk_key(name, number, len(entry.shape)), nbytes


def write_array(folder: Folder, name: str, values: np.ndarray, codec: str, places: int | None = None) -> ArrayEntry:
    """Write a 1-D or 2-D array with all of its chunks; equal values give equal bytes.

    Each chunk is read back and compared with the bytes that were written. With `places`, the array stores integers over
    10 to this power: `values` are these integers or, if they are floats, are converted to them.
    """
    dtype = values.dtype if places is None else np.dtype(np.int32)
    length = chunk_length(len(values), dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64)))
    entry = ArrayEntry(dtype.name, list(values.shape), length, codec, [], places)
    for number, start in enumerate(range(0, len(values) if values.size else 0, length)):
        part = values[start : start + length]
        if len(part) < length:  # Zarr stores the last chunk in full
            part = np.concatenate([part, np.zeros((length - len(part), *part.shape[1:]), part.dtype)])
        if part.dtype != entry.dtype:
            part = _whole(part, places)
        data, crc = encode(part, codec)
        folder.write_and_compare(_chunk_key(name, number, values.ndim), data)
        entry.crc.append(crc)
    folder.write(f"{name}/zarr.json", zarr_metadata(entry))
    return entry


def _whole(part: np.ndarray, places: int | None) -> np.ndarray:
    """Convert floats to the integers they stand for, in work space of this thread."""
    assert places is not None
    out = work_space("whole numbers", part.size, np.int32)
    to_whole(np.ascontiguousarray(part), places, out)
    return out


def read_array(
    folder: Folder,
    name: str,
    entry: ArrayEntry,
    start: int = 0,
    stop: int | None = None,
    buffers: Buffers | None = None,
    once: bool = False,
    as_stored: bool = False,
    below: int | None = None,
) -> np.ndarray:
    """Return rows `start` to `stop` of an array. Only the chunks that hold them are decoded and checked.

    With `buffers`, the rows are decoded into the buffer named by the last part of `name`. With `once`, the read
    bypasses the page cache. Integers with `places` are returned unchanged with `as_stored`, otherwise as the numbers
    they stand for. Values that are not `below` a limit are refused, chunk by chunk while they are in the processor's
    cache.

    Raises
    ------
    DamagedStore
        Naming the chunk that is missing or damaged.
    """
    stop = entry.shape[0] if stop is None else stop
    row_shape = entry.shape[1:]
    if stop <= start or not all(row_shape):
        return np.zeros((max(0, stop - start), *row_shape), entry.type_of(as_stored))
    first, last = start // entry.chunk, -(-stop // entry.chunk)
    shape = ((last - first) * entry.chunk, *row_shape)
    dtype = entry.type_of(as_stored)
    out = np.empty(shape, dtype) if buffers is None else buffers.take(name.rpartition("/")[2], shape, dtype)
    for number in range(first, last):
        position = (number - first) * entry.chunk
        _read_chunk(folder, name, entry, number, out[position : position + entry.chunk], once, below)
    return out[start - first * entry.chunk : stop - first * entry.chunk]


def _read_chunk(
    folder: Folder, name: str, entry: ArrayEntry, number: int, out: np.ndarray, once: bool, below: int | None
) -> None:
    read = folder.read_once if once else folder.read_chunk
    try:
        stored = out if out.dtype == entry.dtype else work_space("whole numbers", out.size, np.int32)
        decode(read(_chunk_key(name, number, len(entry.shape))), entry.crc[number], entry.codec, stored)
        if stored is not out:
            assert entry.places is not None
            from_whole(stored, 10.0**entry.places, out.reshape(-1))
        if below is not None and out.max() >= below:
            raise DamagedStore(f"a number in it is not below {below}")
    except FileNotFoundError:
        problem = "it is missing"
    except DamagedStore as error:
        problem = str(error)
    else:
        return
    raise DamagedStore(f"{folder.url}: chunk {number} of array {name!r} is damaged: {problem}. {REMEDY}")


def read_ranges(
    folder: Folder, name: str, entry: ArrayEntry, starts: np.ndarray, stops: np.ndarray, below: int | None = None
) -> np.ndarray:
    """Return several ranges of rows, concatenated; ranges that share a chunk or touch are read together.

    Parameters
    ----------
    starts, stops : ndarray of int64
        Bounds of each range, increasing.
    below : int, optional
        As in `read_array`.
    """
    parts = []
    position = 0
    while position < len(starts):
        end = position + 1
        while end < len(starts) and starts[end] // entry.chunk <= (stops[end - 1] - 1) // entry.chunk:
            end += 1
        first = int(starts[position])
        window = read_array(folder, name, entry, first, int(stops[end - 1]), below=below)
        parts += [window[starts[k] - first : stops[k] - first] for k in range(position, end)]
        position = end
    return np.concatenate(parts) if parts else np.zeros((0, *entry.shape[1:]), entry.type_of(as_stored=False))


def write_group(folder: Folder, path: str) -> None:
    """Write the ``zarr.json`` that turns a folder into a Zarr group."""
    document = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    folder.write(f"{path}/zarr.json", json.dumps(document).encode())
