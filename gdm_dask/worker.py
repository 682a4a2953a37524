"""What a worker process keeps between tasks: opened stores, and decoded blocks within a limit."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.errors import DamagedStore, EngineError
from gdm_dask.store import Block
from gdm_dask.store.buffers import Buffers, SpareBuffers
from gdm_dask.store.feature_store import FeatureStore

logger = logging.getLogger(__name__)

#: A block is read up to this often, with a pause in between that doubles.
READ_ATTEMPTS = 3
READ_PAUSE = 0.2


@dataclass
class _Held:
    block: Block
    last_pass: str


class BlockCache:
    """Decoded blocks, up to a number of bytes.

    A pass reads the blocks in the same order every time. Dropping the oldest would then drop each block just before it
    is needed again; so what is in stays in, and what does not fit is read anew. Only a block that was used neither in
    this pass nor in the one before makes room: its place has moved to another worker.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], _Held] = {}
        self._passes: dict[str, list[str]] = {}  # store -> its present pass, and the one before
        self._lock = threading.Lock()
        self._nbytes = 0

    def get(self, key: tuple[str, int], pass_id: str) -> Block | None:
        """A block (store, number) that is held, or None."""
        with self._lock:
            self._begin(key[0], pass_id)
            held = self._held.get(key)
            if held is None:
                return None
            held.last_pass = pass_id
            return held.block

    def put(self, key: tuple[str, int], block: Block, pass_id: str, limit: int) -> None:
        """Hold a block if it fits below `limit` bytes, once blocks that are no longer used have made room."""
        with self._lock:
            if key not in self._held and self._make_room(key[0], block.nbytes, pass_id, limit):
                self._held[key] = _Held(block, pass_id)
                self._nbytes += block.nbytes

    def has_room(self, store: str, nbytes: int, pass_id: str, limit: int) -> bool:
        """Whether a block of a store would fit, once blocks that are no longer used have made room."""
        with self._lock:
            return self._make_room(store, nbytes, pass_id, limit)

    def _make_room(self, store: str, nbytes: int, pass_id: str, limit: int) -> bool:
        self._begin(store, pass_id)
        if self._nbytes + nbytes > limit:
            for other, held in list(self._held.items()):
                if other[0] != store or held.last_pass not in self._passes[store]:
                    self._drop(other)
        return self._nbytes + nbytes <= limit

    def forget(self, store: str) -> None:
        """Let go of all blocks of a store."""
        with self._lock:
            for key in [key for key in self._held if key[0] == store]:
                self._drop(key)
            self._passes.pop(store, None)

    def _begin(self, store: str, pass_id: str) -> None:
        passes = self._passes.setdefault(store, [])
        if pass_id not in passes:
            self._passes[store] = [pass_id, *passes[:1]]

    def _drop(self, key: tuple[str, int]) -> None:
        self._nbytes -= self._held.pop(key).block.nbytes


cache = BlockCache()
spare = SpareBuffers()
_stores: dict[tuple[str, str], FeatureStore] = {}
_stores_lock = threading.Lock()


def forget_store(fingerprint: str) -> None:
    """Let go of a store and its blocks in this process."""
    cache.forget(fingerprint)
    spare.drop()
    with _stores_lock:
        for key in [key for key in _stores if key[1] == fingerprint]:
            del _stores[key]


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
        self.fingerprint = store.fingerprint
        self._cache_bytes = cache_bytes
        self._pass_id = ""
        with _stores_lock:
            _stores[self._url, self.fingerprint] = store

    def begin_pass(self) -> None:
        """The tasks that are sent from here on belong to a new pass."""
        self._pass_id = uuid.uuid4().hex

    @property
    def store(self) -> FeatureStore:
        """The opened store."""
        key = (self._url, self.fingerprint)
        with _stores_lock:
            if key not in _stores:
                reopen, address = self._reopen
                opened = reopen(*address)
                if opened.fingerprint != self.fingerprint:
                    raise DamagedStore(
                        f"{self._url}: the store was replaced while it was in use, or this worker sees another one "
                        "under the same name. Start the fit again."
                    )
                _stores[key] = opened
            return _stores[key]

    @property
    def block_starts(self) -> np.ndarray:
        """First feature of each block, and the number of features."""
        return self.store.block_starts

    def blocks(self, numbers: list[int]) -> Iterator[tuple[Block, int]]:
        """Blocks one after the other, and the bytes that had to be read for each: 0 where it was held.

        A block that is not kept lasts until the next one: it lies in memory that is used again.
        """
        with spare.borrowed() as buffers:
            for number in numbers:
                yield self._block(number, buffers)

    def _block(self, number: int, buffers: Buffers) -> tuple[Block, int]:
        key = (self.fingerprint, number)
        held = cache.get(key, self._pass_id)
        if held is not None:
            return held, 0
        nbytes = self.store.manifest.blocks[number].nbytes
        if not cache.has_room(self.fingerprint, nbytes, self._pass_id, self._cache_bytes):
            block = self._read(number, buffers)
            return block, block.nbytes
        block = self._read(number, None)
        cache.put(key, block, self._pass_id, self._cache_bytes)
        return block, block.nbytes

    def _read(self, number: int, buffers: Buffers | None) -> Block:
        """Read a block; a fault that goes away when it is read again was not one of the store."""
        for attempt in range(READ_ATTEMPTS):
            try:
                return self.store.load_block(number, buffers)
            except (OSError, DamagedStore) as error:
                last: Exception = error
                logger.warning("block %d of %s could not be read: %s", number, self._url, error)
                if attempt < READ_ATTEMPTS - 1:
                    time.sleep(READ_PAUSE * 2**attempt)
        if isinstance(last, DamagedStore):
            raise last
        raise EngineError(
            f"{self._url}: block {number} cannot be read: {last}. See that all workers can reach the store, and go on "
            "with --resume."
        ) from last

    def rows(self, features: Any) -> Block:
        """Some rows, from held blocks where possible."""
        return self.store.load_rows(features, held=lambda number: cache.get((self.fingerprint, number), self._pass_id))
