"""Reads blocks and rows of a store for tasks: again where a read fails, and into memory that is used again."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from gdm_dask.errors import DamagedStore, EngineError
from gdm_dask.features.block import Block
from gdm_dask.store.feature_store import FeatureStore
from gdm_dask.system.scratch import SpareBuffers

logger = logging.getLogger(__name__)
Found = TypeVar("Found")

#: Seconds before a block is read again, doubled each time.
READ_PAUSE = 0.2
_spare = SpareBuffers()


class StoreReader:
    """Reads blocks of a store in any process.

    Parameters
    ----------
    store : FeatureStore
    attempts : int
        How often a block is read before it is given up.
    n_held : int
        So many of the first blocks are kept in the process where it was made.
    """

    def __init__(self, store: FeatureStore, attempts: int, n_held: int = 0) -> None:
        self._store = store
        self._attempts = attempts
        self._n_held = n_held
        self._held: dict[int, Block] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _reader_of, (pickle.dumps(self._store), self._store.url, self._store.fingerprint, self._attempts)

    def holds(self, number: int) -> bool:
        """Whether a block is in the memory of this process."""
        return number in self._held

    def blocks(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Blocks one after the other; each lasts until the next one, whose memory it shares unless it is kept."""
        with _spare.borrowed() as buffers:
            for number in numbers:
                if number >= self._n_held:
                    yield self._read(f"block {number}", self._store.load_block, number, buffers)
                else:
                    if number not in self._held:
                        self._held[number] = self._read(f"block {number}", self._store.load_block, number)
                    yield self._held[number]

    def rows(self, features: np.ndarray) -> Block:
        """Raw rows of some features; reads only the chunks that hold them."""
        return self._read("rows", self._store.load_rows, features, self._held.get)

    def forget(self) -> None:
        """Let go of the blocks that are kept, and of memory that others were read into."""
        self._held.clear()
        _spare.drop()

    def _read(self, what: str, load: Callable[..., Found], *arguments: Any) -> Found:
        """Read something; a fault that goes away when it is read again was not one of the store."""
        for attempt in range(1, self._attempts + 1):
            try:
                return load(*arguments)
            except (OSError, DamagedStore) as error:
                last: Exception = error
                logger.warning("%s of %s could not be read: %s", what, self._store.url, error)
                if attempt < self._attempts:
                    time.sleep(READ_PAUSE * 2 ** (attempt - 1))
        if isinstance(last, DamagedStore):
            raise last
        raise EngineError(
            f"{self._store.url}: {what} cannot be read: {last}. Make sure that all workers can reach the store, and go "
            "on with --resume."
        ) from last


@lru_cache(maxsize=4)
def _reader_of(pickled: bytes, url: str, fingerprint: str, attempts: int) -> StoreReader:
    """The reader of a store in another process, which opens it once."""
    store = pickle.loads(pickled)
    if store.fingerprint != fingerprint:
        raise DamagedStore(
            f"{url}: the store was replaced while it was in use, or this worker sees another one under the same name. "
            "Start the fit again."
        )
    return StoreReader(store, attempts)
