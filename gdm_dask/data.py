"""What `fit` is handed becomes blocks, labels and names: stores as they are, arrays in memory, the rest by ingest."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.engine import Engine, active_client
from gdm_dask.errors import BadInput, MemoryLimitTooLow
from gdm_dask.ingestion import ingest
from gdm_dask.memory_plan import FitPlan, Work, plan_fit
from gdm_dask.passes import Passes, tasks_of
from gdm_dask.resources import default_memory_limit, parse_bytes
from gdm_dask.store import FeatureStore, open_store
from gdm_dask.store.memory import MemoryStore
from gdm_dask.worker import StoreHandle, forget_store

logger = logging.getLogger(__name__)


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


def default_scheduler() -> Any:
    """The active Client if there is one; threads otherwise.

    Kernels, codecs and file reads release the GIL, so threads are as fast as processes; they need no start-up, share
    the blocks that are held, and hand over rows without a copy through a pipe.
    """
    return active_client() or "threads"


def as_dask_array(X: Any) -> Any:
    """A Dask array or DataFrame as an array whose shape is known."""
    array = X.to_dask_array(lengths=True) if hasattr(X, "to_dask_array") else X
    return array.copy().compute_chunk_sizes() if any(np.isnan(size) for size in array.shape) else array


def as_dask_matrix(X: Any) -> Any:
    """`as_dask_array` of samples x features."""
    X = as_dask_array(X)
    if X.ndim != 2:
        raise BadInput(f"a matrix of samples x features is needed, not a Dask array of shape {X.shape}")
    return X


@contextmanager
def open_data(
    X: Any, engine: Engine, memory_limit: int | str | None, n_supports: int, n_passes: int = 2
) -> Iterator[Data]:
    """Blocks of a store, or of a matrix (samples x features) that was checked before.

    A matrix in memory stays there when the engine runs in this process. For other engines, and for Dask collections,
    it is ingested into a temporary store first.

    Parameters
    ----------
    X : FeatureStore, ndarray, sparse matrix or Dask collection
    engine : Engine
    memory_limit : int, str or None
    n_supports, n_passes : int
        Supports that the fit may come to hold and passes that it may take, for the memory plan.
    """
    logger.info("engine: %s", engine.description)
    if engine.shares_memory and not isinstance(X, FeatureStore) and not is_dask(X):
        memory = MemoryStore(X)
        yield Data(Passes(memory, memory.sizes, engine), memory.shape)
        return
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    with tempfile.TemporaryDirectory(prefix="gdm-fit-") as folder:
        if not isinstance(X, FeatureStore):
            labels = np.arange(X.shape[0]) % 2  # the store's labels are not used
            X = ingest(X, os.path.join(folder, "data.zarr"), labels, memory_limit=limit)
        sizes = [entry.nbytes for entry in X.manifest.blocks]
        plan = _plan(X, sizes, engine, limit, n_supports, n_passes)
        logger.info("plan: %s", plan)
        handle = StoreHandle(X, plan.cache_bytes)
        try:
            yield Data(Passes(handle, sizes, engine), X.shape)
        finally:
            engine.tell_all(forget_store, handle.fingerprint)


def _plan(
    store: FeatureStore, sizes: list[int], engine: Engine, limit: int | None, n_supports: int, n_passes: int
) -> FitPlan:
    if limit is None and engine.worker_memory is None:
        limit = default_memory_limit()
    holders = max(1, engine.n_processes)
    tasks = tasks_of(sizes, engine)
    shares = [[number for task in tasks[first::holders] for number in task] for first in range(holders)]
    rows = [entry.stop - entry.start for entry in store.manifest.blocks]
    dense = None if store.is_sparse else store.largest_rows(n_supports)
    work = Work(sizes, rows, store.shape[1], n_supports, n_passes, shares, dense)
    plan = partial(
        plan_fit, n_workers=engine.n_workers, n_processes=engine.n_processes, limit=limit,
        worker_limit=engine.worker_memory,
    )  # fmt: skip
    try:
        return plan(work)
    except MemoryLimitTooLow:  # by a guess: look what the rows take
        return plan(replace(work, support_bytes=store.largest_rows(n_supports)))
