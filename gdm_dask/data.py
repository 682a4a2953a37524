"""What `fit` is handed becomes blocks, labels and names: stores as they are, arrays in memory, the rest by ingest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.engine import Engine
from gdm_dask.errors import BadInput
from gdm_dask.ingestion import ingest
from gdm_dask.passes import Passes
from gdm_dask.resources import default_memory_limit, parse_bytes
from gdm_dask.store import FeatureStore, open_store
from gdm_dask.store.memory import MemoryStore
from gdm_dask.worker import StoreHandle

#: Part of the memory limit that decoded blocks may take; the rest is for the work on them.
CACHE_PART = 0.5


@dataclass
class Data:
    """Feature blocks behind passes, with the shape (features, samples)."""

    passes: Passes
    shape: tuple[int, int]


def is_store(X: Any) -> bool:
    """Whether `X` is a store, or the path or URL of one."""
    return isinstance(X, (FeatureStore, str, os.PathLike))


def as_store(X: Any) -> FeatureStore:
    """An opened store."""
    return X if isinstance(X, FeatureStore) else open_store(X)


def is_dask(X: Any) -> bool:
    """Whether `X` is a Dask collection."""
    return hasattr(X, "dask") and hasattr(X, "compute")


@contextmanager
def open_data(X: Any, engine: Engine, memory_limit: int | str | None) -> Iterator[Data]:
    """Blocks of a store, or of a matrix (samples x features) that was checked before.

    A matrix in memory stays there when the engine runs in this process. For other engines, and for Dask collections,
    it is ingested into a temporary store first.
    """
    limit = default_memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    if isinstance(X, FeatureStore):
        yield _store_data(X, engine, limit)
    elif engine.shares_memory and not is_dask(X):
        memory = MemoryStore(X)
        yield Data(Passes(memory, memory.sizes, engine), memory.shape)
    else:
        with tempfile.TemporaryDirectory(prefix="gdm-fit-") as folder:
            labels = np.arange(X.shape[0]) % 2  # the store's labels are not used
            store = ingest(X, os.path.join(folder, "data.zarr"), labels, memory_limit=limit)
            yield _store_data(store, engine, limit)


def _store_data(store: FeatureStore, engine: Engine, limit: int) -> Data:
    if store.shape[0] == 0:
        raise BadInput(f"{store.url}: the store has no features")
    n_processes = 1 if engine.shares_memory else engine.n_workers
    handle = StoreHandle(store, int(CACHE_PART * limit / n_processes))
    return Data(Passes(handle, [entry.nbytes for entry in store.manifest.blocks], engine), store.shape)
