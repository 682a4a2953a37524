"""Read blocks and rows of a store for tasks: retry failed reads, and reuse memory."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.errors import DamagedStore, EngineError, GdmError
from gdm_dask.features.block import Block
from gdm_dask.store.feature_store import FeatureStore
from gdm_dask.store.remote import Copies
from gdm_dask.system.metrics import SOURCES, Metric, publish
from gdm_dask.system.scratch import SpareBuffers

logger = logging.getLogger(__name__)

#: Seconds to wait before the first retry; doubled each time.
READ_PAUSE = 0.2
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


class StoreReader:
    """Reads blocks of a store in any process.

    Parameters
    ----------
    store : FeatureStore
    attempts : int
        Number of reads of a block before giving up.
    copies : Path, optional
        Folder for copies of the chunks of an object store, on the hosts where it exists.
    """

    def __init__(self, store: FeatureStore, attempts: int, copies: Path | None = None) -> None:
        self._store, self._attempts = store, attempts
        self._place = copies
        self._copies = Copies(copies) if copies is not None and copies.is_dir() else None

    def __reduce__(self) -> tuple[Any, ...]:
        facts = self._store.url, self._store.fingerprint, self._attempts, self._place
        return _reader_of, (pickle.dumps(self._store), *facts)

    def blocks(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield blocks one after the other; a block is valid only until the next one is read."""
        with _spare.borrowed() as buffers, self._store.reading_ahead(numbers, self._copies) as store:
            for number in numbers:
                yield self._read(f"block {number}", store.load_block, number, buffers)

    def rows(self, features: np.ndarray) -> Block:
        """Return raw rows of some features; read only the chunks that hold them."""
        with self._store.reading_ahead((), self._copies) as store:
            return self._read("rows", store.load_rows, features)

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


def drop_buffers() -> None:
    """Release the memory that is kept for the next read of a block."""
    _spare.drop()


@lru_cache(maxsize=4)
def _reader_of(pickled: bytes, url: str, fingerprint: str, attempts: int, copies: Path | None) -> StoreReader:
    """Return the reader of a store in another process; the store is opened once per process."""
    if "prometheus_client" in sys.modules:  # a Dask worker that serves metrics
        publish()
    try:
        store = pickle.loads(pickled)
    except (GdmError, OSError) as error:
        raise EngineError(f"{error} The driver can read it: make sure that all workers reach the store.") from error
    if store.fingerprint != fingerprint:
        raise DamagedStore(
            f"{url}: the store was replaced while it was in use, or this worker sees another store under the same "
            "name. Start the fit again."
        )
    return StoreReader(store, attempts, copies)
