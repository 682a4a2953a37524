"""Dask's local schedulers: synchronous, threads, and processes that are kept and keep what they have read."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.callbacks import Callback

from gdm_dask.errors import EngineError

#: Arrays above this size go to processes through a file that they map, once, and not through every task's pickle.
MAPPED_BYTES = 1 << 20
#: How often a pass is taken up again after a worker process died.
MAX_ATTEMPTS = 3


class LocalBackend:
    """Runs tasks in this process or in processes of its own.

    Parameters
    ----------
    name : {"synchronous", "threads", "processes"}
    n_workers : int
    """

    memory_limit: int | None = None

    def __init__(self, name: str, n_workers: int) -> None:
        self.name = name
        self.n_workers = 1 if name == "synchronous" else n_workers
        self._pool: Executor | None = None
        if name == "threads":
            self._pool = ThreadPoolExecutor(self.n_workers)
        elif name == "processes":
            self._pool = PlacedPool(self.n_workers)
        self.description = name if name == "synchronous" else f"{self.n_workers} {name}"

    def map(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        common: tuple,
        on_done: Callable[[Any], None] | None,
    ) -> list[Any]:
        """Apply `function` to all items; item i goes to worker i modulo the number of workers."""
        results: dict[int, Any] = {}
        for attempt in range(MAX_ATTEMPTS):
            left = [position for position in range(len(items)) if position not in results]
            try:
                self._compute(function, items, left, common, on_done, results)
                break
            except BrokenProcessPool as error:
                assert isinstance(self._pool, PlacedPool)
                self._pool.replace_dead()
                if attempt == MAX_ATTEMPTS - 1:
                    raise EngineError(
                        f"worker processes died {MAX_ATTEMPTS} times in a row, most likely for want of memory. "
                        "Lower --memory-limit, use fewer workers, or use the threads scheduler."
                    ) from error
        return [results[position] for position in range(len(items))]

    def _compute(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        positions: list[int],
        common: tuple,
        on_done: Callable[[Any], None] | None,
        results: dict[int, Any],
    ) -> None:
        """Run the tasks at `positions` as one Dask graph; `results` is filled as they end."""
        tag = uuid.uuid4().hex[:8]
        keys = {f"gdm-{tag}-{position}@{position % self.n_workers}": position for position in positions}

        def finished(key: Any, result: Any, *_: Any) -> None:
            if key in keys:
                results[keys[key]] = result
                if on_done is not None:
                    on_done(result)

        call = dask.delayed(function, pure=False, traverse=False)
        with _SharedArrays(common if self.name == "processes" else ()) as shared, Callback(posttask=finished):
            arguments = shared.arguments if self.name == "processes" else common
            tasks = [call(items[position], *arguments, dask_key_name=key) for key, position in keys.items()]
            options: dict[str, Any] = {"scheduler": self.name, "optimize_graph": False}
            if self._pool is not None:
                options |= {"pool": self._pool, "num_workers": self.n_workers, "chunksize": 1}
            dask.compute(*tasks, **options)

    def close(self) -> None:
        """End the pool."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class PlacedPool(Executor):
    """Processes that can be chosen: a task whose key ends in ``@3`` runs in process 3, where its blocks are held."""

    def __init__(self, n_workers: int) -> None:
        self._pools = [self._new() for _ in range(n_workers)]
        self._max_workers = 1 << 20  # hand over all tasks at once; each process has a queue of its own

    @staticmethod
    def _new() -> ProcessPoolExecutor:
        # spawn: a fork of a process with threads may hang, and would inherit locks
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        pool.submit(os.getpid)  # start it now, so that it is there when the first pass begins
        return pool

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run a batch of one Dask task where its key says."""
        key = args[0][0][0]
        return self._pools[int(key.rsplit("@", 1)[1])].submit(function, *args, **kwargs)

    def replace_dead(self) -> None:
        """Start new processes in place of those that died."""
        for slot, pool in enumerate(self._pools):
            try:
                pool.submit(os.getpid).result()
            except BrokenProcessPool:
                self._pools[slot] = self._new()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes."""
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)


class _SharedArrays:
    """Large arrays among the arguments, put into files that processes of this machine map."""

    def __init__(self, values: tuple) -> None:
        self._folder: tempfile.TemporaryDirectory | None = None
        self.arguments = tuple(self._shared(value) for value in values)

    def _shared(self, value: Any) -> Any:
        if not (isinstance(value, np.ndarray) and value.nbytes > MAPPED_BYTES):
            return value
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="gdm-pass-")
        path = Path(self._folder.name) / f"{uuid.uuid4().hex}.npy"
        np.save(path, value, allow_pickle=False)
        return MappedArray(path)

    def __enter__(self) -> _SharedArrays:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._folder is not None:
            self._folder.cleanup()


class MappedArray:
    """An array in a file; a task that receives it gets the array itself."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple:
        return map_array, (self._path,)


def map_array(path: Path) -> np.ndarray:
    """The array of a file, mapped; changes to it would stay private."""
    return np.asarray(np.load(path, mmap_mode="c"))
