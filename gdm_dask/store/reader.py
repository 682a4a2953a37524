"""Read blocks and rows of a store, in any process."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.errors import DamagedStore, EngineError, GdmError
from gdm_dask.features.block import Block, check_features, no_rows, stack
from gdm_dask.store.arrays import REMEDY, chunk_files, read_array, read_ranges
from gdm_dask.store.folder import Folder
from gdm_dask.store.layout import BLOCK, BlockEntry, read_manifest
from gdm_dask.store.remote import Copies, copies_of
from gdm_dask.system.metrics import SOURCES, Metric, publish
from gdm_dask.system.scratch import Buffers, SpareBuffers

logger = logging.getLogger(__name__)

#: Seconds to wait before the first retry; doubled each time.
READ_PAUSE = 0.2
#: Blocks of an object store whose rows or names are read at the same time.
READS_AT_ONCE = 8
#: Arrays of a block that a pass reads, in this order.
_PASS_ARRAYS = ("values", "means", "norms", "indptr", "indices", "counts")
_spare = SpareBuffers()


class _Reads:
    """Counts of all reads of blocks and rows in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts = {"reads": 0.0, "read_bytes": 0.0, "read_seconds": 0.0, "read_retries": 0.0}

    def add(self, **more: float) -> None:
        """Add to some counts."""
        with self._lock:
            for name, count in more.items():
                self.counts[name] += count

    def metrics(self) -> list[Metric]:
        """Return the counts as metrics."""
        texts = {
            "reads": "Blocks, and rows of some features, read from stores.",
            "read_bytes": "Decoded bytes of these reads.",
            "read_seconds": "Seconds of these reads, failed attempts included.",
            "read_retries": "Attempts that failed and were repeated.",
        }
        return [Metric(f"gdm_{name}_total", texts[name], count) for name, count in self.counts.items()]


READS = _Reads()
SOURCES.append(READS.metrics)


def counted(function: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, float]]:
    """Call a function; return its result, and what it has added to the counts, for another process to add."""
    before = dict(READS.counts)
    result = function(*args)
    return result, {name: count - before[name] for name, count in READS.counts.items()}


class StoredBlocks:
    """The blocks of a store: each chunk is checked against the manifest when it is read."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.manifest = read_manifest(folder)
        self.shape = self.manifest.shape
        self._in_bounds: set[int] = set()  # blocks with checked sample indices; checksums show later changes

    @property
    def url(self) -> str:
        """Path or URL of the store."""
        return self._folder.url

    @property
    def place(self) -> tuple[str, dict[str, Any]]:
        """Path or URL of the store, and the options to reach it."""
        return self._folder.url, self._folder.storage_options

    @property
    def fingerprint(self) -> str:
        """Hash of the content: equal for stores with equal blocks."""
        return self.manifest.fingerprint

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored compressed."""
        return self.manifest.kind == "sparse"

    @property
    def n_blocks(self) -> int:
        """Number of blocks, the units of parallel work."""
        return len(self.manifest.blocks)

    @cached_property
    def block_starts(self) -> np.ndarray:
        """First feature of each block, followed by the number of features."""
        return np.array([*(entry.start for entry in self.manifest.blocks), self.shape[0]], np.int64)

    @property
    def nbytes(self) -> int:
        """Decoded bytes of all blocks."""
        return sum(entry.nbytes for entry in self.manifest.blocks)

    @property
    def bytes_ahead(self) -> int:
        """Upper bound on the bytes that `ahead` keeps."""
        return min(self._folder.bytes_ahead, self.nbytes)

    def ahead(self, numbers: Sequence[int], copies: Copies | None = None) -> AbstractContextManager[Folder]:
        """Return a folder to read these blocks from, in this order; an object store sends the next ones meanwhile.

        Chunks of an object store that are in `copies` are read there; others are copied to it.
        """
        files = (file for number in numbers for file in block_files(number, self.manifest.blocks[number]))
        return self._folder.ahead(files, copies)

    @contextmanager
    def reader(self, attempts: int, folder: str | None, most_copied: int) -> Iterator[StoreReader]:
        """Yield a reader that tries `attempts` times, for any process.

        Chunks of an object store of at most `most_copied` bytes are copied below a local folder until the context ends.
        """
        copied = copies_of(self.url, self.nbytes, most_copied, folder) if self.bytes_ahead else nullcontext()
        with copied as copies:
            try:
                yield StoreReader(self, attempts, copies)
            finally:
                drop_buffers()

    def load_block(self, number: int, buffers: Buffers | None = None, folder: Folder | None = None) -> Block:
        """Return block `number`, checked. With `buffers`, its arrays are valid until the next read into them.

        `folder` is from `ahead`.
        """
        below = None if number in self._in_bounds else self.shape[1]
        with self._reading():
            entry = self.manifest.blocks[number]
            block = read_block(folder or self._folder, number, entry, self.shape[1], buffers, below)
        self._in_bounds.add(number)
        return block

    def load_rows(self, features: np.ndarray, folder: Folder | None = None) -> Block:
        """Return some features as a block, in the given order; read only the chunks that hold them."""
        features = check_features(features, self.shape[0])

        def rows_of(number: int, positions: np.ndarray) -> Block:
            entry = self.manifest.blocks[number]
            local, inverse = np.unique(features[positions] - entry.start, return_inverse=True)
            with self._reading():
                return read_block_rows(folder or self._folder, number, entry, self.shape[1], local).rows(inverse)

        if not len(features):
            return no_rows(self.shape[1], self.is_sparse)
        owned = self._by_block(features)
        order = np.concatenate([positions for _, positions in owned])
        return stack(list(self._each(rows_of, owned))).rows(np.argsort(order))

    def _by_block(self, features: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return each block that holds some of the features, and their positions in `features`."""
        owner = np.searchsorted(self.block_starts, features, side="right") - 1
        return [(number, np.flatnonzero(owner == number)) for number in np.unique(owner).tolist()]

    def _each(self, read: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield ``read(*item)`` for each item; from an object store, read several at the same time."""
        if not self._folder.bytes_ahead:
            yield from (read(*item) for item in items)
            return
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            yield from pool.map(lambda item: read(*item), items)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Distinguish a replaced store from a damaged one."""
        try:
            yield
        except DamagedStore as error:
            if self._is_replaced():
                raise DamagedStore(f"{self.url}: the store was replaced while it was in use. Start again.") from error
            raise

    def _is_replaced(self) -> bool:
        try:
            return read_manifest(self._folder).fingerprint != self.fingerprint
        except DamagedStore:
            return False


class StoreReader:
    """Reads blocks of a store in any process: retries failed reads, and reuses memory.

    Parameters
    ----------
    store : StoredBlocks
    attempts : int
        Number of reads of a block before giving up.
    copies : Path, optional
        Folder for copies of the chunks of an object store, on the hosts where it exists.
    """

    def __init__(self, store: StoredBlocks, attempts: int, copies: Path | None = None) -> None:
        self._store, self._attempts = store, attempts
        self._place = copies
        self._copies = Copies(copies) if copies is not None and copies.is_dir() else None

    def __reduce__(self) -> tuple[Any, ...]:
        place = pickle.dumps(self._store.place)
        return _reader_of, (place, self._store.fingerprint, self._attempts, self._place)

    def blocks(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield blocks one after the other; a block is valid only until the next one is read."""
        with _spare.borrowed() as buffers, self._store.ahead(numbers, self._copies) as folder:
            for number in numbers:
                yield self._read(f"block {number}", self._store.load_block, number, buffers, folder)

    def rows(self, features: np.ndarray) -> Block:
        """Return raw rows of some features; read only the chunks that hold them."""
        with self._store.ahead((), self._copies) as folder:
            return self._read("rows", self._store.load_rows, features, folder)

    def _read(self, what: str, load: Callable[..., Block], *arguments: Any) -> Block:
        """Read something, with retries: a fault that a second read does not show is not a fault of the store."""
        began = time.perf_counter()
        for attempt in range(1, self._attempts + 1):
            try:
                found = load(*arguments)
                READS.add(reads=1, read_bytes=found.nbytes, read_seconds=time.perf_counter() - began)
                return found
            except (OSError, DamagedStore) as error:
                last: Exception = error
                logger.warning("%s of %s could not be read: %s", what, self._store.url, error)
                if attempt < self._attempts:
                    READS.add(read_retries=1)
                    time.sleep(READ_PAUSE * 2 ** (attempt - 1))
        if isinstance(last, DamagedStore):
            raise last
        raise EngineError(
            f"{self._store.url}: {what} cannot be read: {last}. Make sure that all workers can reach the store, and go "
            "on with --resume."
        ) from last


def block_files(number: int, entry: BlockEntry) -> Iterator[tuple[str, int]]:
    """Yield the key of each file that `read_block` reads, in that order, and its decoded bytes."""
    for name in _PASS_ARRAYS:
        if name in entry.arrays:
            yield from chunk_files(f"{BLOCK.format(number)}/{name}", entry.arrays[name])


def read_block(
    folder: Folder,
    number: int,
    entry: BlockEntry,
    n_samples: int,
    buffers: Buffers | None = None,
    below: int | None = None,
    once: bool = False,
) -> Block:
    """Read and check a whole block, into `buffers` if given; refuse samples that are not `below`.

    With `once`, the read bypasses the page cache.
    """
    buffers = buffers or Buffers()  # a block that is kept needs memory of its own
    sparse = "indptr" in entry.arrays
    found = {
        name: read_array(
            folder,
            f"{BLOCK.format(number)}/{name}",
            entry.arrays[name],
            buffers=buffers,
            once=once,
            as_stored=sparse,
            below=below if name == "indices" else None,
        )
        for name in _PASS_ARRAYS
        if name in entry.arrays
    }
    _check_rows(folder, number, entry, found["means"], found["norms"], found.get("indptr"))
    decimals = entry.arrays["values"].places if sparse and "values" in found else None
    return Block(
        entry.start, entry.stop, n_samples, found.get("values"), found["means"], found["norms"],
        found.get("indptr"), found.get("indices"), found.get("counts"), decimals,
    )  # fmt: skip


def _check_rows(
    folder: Folder, number: int, entry: BlockEntry, means: np.ndarray, norms: np.ndarray, indptr: np.ndarray | None
) -> None:
    """Refuse moments that would turn scores into NaN, and pointers beyond the nonzeros, whatever the checksums say."""
    if not (np.isfinite(means).all() and np.isfinite(norms).all()):
        raise DamagedStore(f"{folder.url}: block {number}: a moment is not finite. {REMEDY}")
    if indptr is not None and (indptr[0] != 0 or indptr[-1] != entry.nnz or (indptr[1:] < indptr[:-1]).any()):
        raise DamagedStore(f"{folder.url}: block {number}: its pointers do not fit its indices. {REMEDY}")


def read_block_rows(folder: Folder, number: int, entry: BlockEntry, n_samples: int, local: np.ndarray) -> Block:
    """Read some rows of a block (positions within it, increasing); decode only the chunks that hold them."""
    path = BLOCK.format(number)

    def whole(name: str) -> np.ndarray:
        return read_array(folder, f"{path}/{name}", entry.arrays[name])

    def ranges(name: str, starts: np.ndarray, stops: np.ndarray) -> np.ndarray | None:
        if name not in entry.arrays:
            return None
        below = n_samples if name == "indices" else None
        return read_ranges(folder, f"{path}/{name}", entry.arrays[name], starts, stops, below)

    means, norms = whole("means")[local], whole("norms")[local]
    pointers = whole("indptr").astype(np.int64) if "indptr" in entry.arrays else None
    _check_rows(folder, number, entry, means, norms, pointers)
    if pointers is None:
        counts = whole("counts")[local]
        return Block(0, len(local), n_samples, ranges("values", local, local + 1), means, norms, nonzeros=counts)
    starts, stops = pointers[local], pointers[local + 1]
    indptr = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.uint32)
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    indices = ranges("indices", starts, stops)
    return Block(0, len(local), n_samples, ranges("values", starts, stops), means, norms, indptr, indices)


def drop_buffers() -> None:
    """Release the memory that is kept for the next read of a block."""
    _spare.drop()


@lru_cache(maxsize=4)
def _reader_of(place: bytes, fingerprint: str, attempts: int, copies: Path | None) -> StoreReader:
    """Return the reader of a store in another process; the store is opened once per process."""
    if "prometheus_client" in sys.modules:  # a Dask worker that serves metrics
        publish()
    try:
        store = StoredBlocks(Folder(*pickle.loads(place)))
    except (GdmError, OSError) as error:
        raise EngineError(f"{error} The driver can read it: make sure that all workers reach the store.") from error
    if store.fingerprint != fingerprint:
        raise DamagedStore(
            f"{store.url}: the store was replaced while it was in use, or this worker sees another store under the "
            "same name. Start the fit again."
        )
    return StoreReader(store, attempts, copies)
