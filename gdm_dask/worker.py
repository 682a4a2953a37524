"""What a worker process keeps between tasks: opened stores, and decoded blocks within a limit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gdm_dask.store import Block, open_store
from gdm_dask.store.feature_store import FeatureStore


class BlockCache:
    """Decoded blocks, up to a number of bytes.

    A pass reads the blocks in the same order every time. Dropping the oldest would then drop each block just before it
    is needed again; so what is in stays in, and what does not fit is read anew.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._lock = threading.Lock()
        self._nbytes = 0

    def get(self, key: tuple[str, int]) -> Block | None:
        """A block that is held, or None."""
        with self._lock:
            return self._blocks.get(key)

    def put(self, key: tuple[str, int], block: Block, limit: int) -> None:
        """Hold a block if it fits below `limit` bytes."""
        with self._lock:
            if key not in self._blocks and self._nbytes + block.nbytes <= limit:
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
        self._options = store.storage_options
        self._fingerprint = store.fingerprint
        self._cache_bytes = cache_bytes
        with _stores_lock:
            _stores[self._url, self._fingerprint] = store

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    @property
    def store(self) -> FeatureStore:
        """The opened store."""
        key = (self._url, self._fingerprint)
        with _stores_lock:
            if key not in _stores:
                opened = open_store(self._url, self._options)
                _stores[self._url, opened.fingerprint] = opened
            if key not in _stores:
                raise self._changed()
            return _stores[key]

    def _changed(self) -> Exception:
        from gdm_dask.errors import DamagedStore

        return DamagedStore(f"{self._url}: the store was replaced while it was in use. Start the fit again.")

    def block(self, number: int) -> tuple[Block, int]:
        """Block `number`, and the bytes that had to be read for it: 0 where it was held."""
        key = (self._fingerprint, number)
        held = cache.get(key)
        if held is not None:
            return held, 0
        block = self.store.load_block(number)
        cache.put(key, block, self._cache_bytes)
        return block, block.nbytes

    def rows(self, features: Any) -> Block:
        """Some rows, from held blocks where possible."""
        return self.store.load_rows(features, held=lambda number: cache.get((self._fingerprint, number)))
