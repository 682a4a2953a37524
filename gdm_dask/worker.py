"""What a worker process keeps between tasks: opened stores, and decoded blocks within a limit."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from gdm_dask.errors import DamagedStore, EngineError
from gdm_dask.store import Block
from gdm_dask.store.feature_store import FeatureStore

logger = logging.getLogger(__name__)

#: A block is read up to this often, with a pause in between that doubles.
READ_ATTEMPTS = 3
READ_PAUSE = 0.2


class BlockCache:
    """Decoded blocks, up to a number of bytes.

    A pass reads the blocks in the same order every time. Dropping the oldest would then drop each block just before it
    is needed again; so what is in stays in, and what does not fit is read anew.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], Block] = {}
        self._lock = threading.Lock()
        self._nbytes = 0

    def get(self, key: tuple[str, int]) -> Block | None:
        """A block that is held, or None."""
        with self._lock:
            return self._blocks.get(key)

    def put(self, key: tuple[str, int], block: Block, limit: int) -> None:
        """Hold a block if it fits below `limit` bytes; blocks of other stores make room."""
        with self._lock:
            if key in self._blocks:
                return
            if self._nbytes + block.nbytes > limit:
                for other in [held for held in self._blocks if held[0] != key[0]]:
                    self._nbytes -= self._blocks.pop(other).nbytes
            if self._nbytes + block.nbytes <= limit:
                self._blocks[key] = block
                self._nbytes += block.nbytes

    def clear(self) -> None:
        """Let go of all blocks."""
        with self._lock:
            self._blocks.clear()
            self._nbytes = 0


cache = BlockCache()
_stores: dict[tuple[str, str], FeatureStore] = {}
_stores_lock = threading.Lock()


class StoreHandle:
    """A store as tasks carry it: its address and fingerprint; opened once in each process.

    Parameters
    ----------
    store : FeatureStore
    cache_bytes : int
        Decoded blocks that each process may keep.
    """

    def __init__(self, store: FeatureStore, cache_bytes: int) -> None:
        self._url = store.url
        self._reopen = store.__reduce__()
        self._fingerprint = store.fingerprint
        self._cache_bytes = cache_bytes
        with _stores_lock:
            _stores[self._url, self._fingerprint] = store

    @property
    def store(self) -> FeatureStore:
        """The opened store."""
        key = (self._url, self._fingerprint)
        with _stores_lock:
            if key not in _stores:
                reopen, address = self._reopen
                opened = reopen(*address)
                _stores[self._url, opened.fingerprint] = opened
            if key not in _stores:
                raise self._changed()
            return _stores[key]

    def _changed(self) -> Exception:
        return DamagedStore(f"{self._url}: the store was replaced while it was in use. Start the fit again.")

    def block(self, number: int) -> tuple[Block, int]:
        """Block `number`, and the bytes that had to be read for it: 0 where it was held."""
        key = (self._fingerprint, number)
        held = cache.get(key)
        if held is not None:
            return held, 0
        block = self._read(number)
        cache.put(key, block, self._cache_bytes)
        return block, block.nbytes

    def _read(self, number: int) -> Block:
        """Read a block; a fault that goes away when it is read again was not one of the store."""
        for attempt in range(READ_ATTEMPTS):
            try:
                return self.store.load_block(number)
            except (OSError, DamagedStore) as error:
                logger.warning("block %d of %s could not be read: %s", number, self._url, error)
                if attempt == READ_ATTEMPTS - 1:
                    if isinstance(error, DamagedStore):
                        raise
                    raise EngineError(
                        f"{self._url}: block {number} cannot be read: {error}. See that all workers can reach the "
                        "store, and go on with --resume."
                    ) from error
                time.sleep(READ_PAUSE * 2**attempt)
        raise AssertionError("unreachable")

    def rows(self, features: Any) -> Block:
        """Some rows, from held blocks where possible."""
        return self.store.load_rows(features, held=lambda number: cache.get((self._fingerprint, number)))
