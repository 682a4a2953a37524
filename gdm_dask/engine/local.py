"""Dask's local schedulers: synchronous, threads, and processes that are kept and keep what they have read."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
from dask.callbacks import Callback

from gdm_dask.engine.sharing import SharedArguments
from gdm_dask.errors import EngineError

#: How often in a row worker processes may die before one more task is done.
MAX_DEATHS = 5


#: Dask's own functions: a scheduler's name would make it import distributed, half a second and 50 MB.
_GET = {"synchronous": dask.local.get_sync, "threads": dask.threaded.get, "processes": dask.multiprocessing.get}


@dataclass(frozen=True)
class Batch:
    """Items that are done one after another, and the worker that does them, or "any"."""

    slot: str
    positions: list[int]


def call_all(function: Callable[..., Any], items: list[Any], *arguments: Any) -> list[Any]:
    """What a task does."""
    return [function(item, *arguments) for item in items]


class LocalBackend:
    """Runs tasks in this process or in processes of its own.

    Parameters
    ----------
    name : {"synchronous", "threads", "processes"}
    n_workers : int
    """

    worker_memory: int | None = None

    def __init__(self, name: str, n_workers: int) -> None:
        self.name = name
        self.n_workers = 1 if name == "synchronous" else n_workers
        self.n_processes = self.n_workers if name == "processes" else 0
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
        places: Sequence[int] | None,
        on_done: Callable[[Any], None] | None,
    ) -> list[Any]:
        """Apply `function` to all items; place p is worker p modulo the number of workers."""
        batches = self._batches(len(items), places)
        results: dict[int, Any] = {}

        def finished(position: int, result: Any) -> None:
            results[position] = result
            if on_done is not None:
                on_done(result)

        deaths = 0
        with SharedArguments(common) if self.name == "processes" else nullcontext() as shared:
            arguments = common if shared is None else shared.values
            while len(results) < len(items):
                done_before = len(results)
                left = [batch for batch in batches if batch.positions[0] not in results]
                try:
                    self._compute(function, items, left, arguments, finished)
                except BrokenProcessPool as error:
                    deaths = deaths + 1 if len(results) == done_before else 1
                    self._recover(deaths, error)
        return [results[position] for position in range(len(items))]

    def _batches(self, n_items: int, places: Sequence[int] | None) -> list[Batch]:
        """Single items, but all of a process as one where it has to do them: a message takes a millisecond."""
        if places is None:
            return [Batch("any", [position]) for position in range(n_items)]
        slots = [str(place % self.n_workers) for place in places]
        if self.name != "processes":
            return [Batch(slot, [position]) for position, slot in enumerate(slots)]
        return [
            Batch(slot, [position for position in range(n_items) if slots[position] == slot])
            for slot in dict.fromkeys(slots)
        ]

    def _compute(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        batches: list[Batch],
        arguments: tuple,
        finished: Callable[[int, Any], None],
    ) -> None:
        """Run batches as one Dask graph."""
        tag = uuid.uuid4().hex[:8]
        keys = {f"gdm-{tag}-{batch.positions[0]}@{batch.slot}": batch for batch in batches}
        waiting = dict(keys)

        def posttask(key: Any, results: Any, *_: Any) -> None:
            if key in waiting:
                for position, result in zip(waiting.pop(key).positions, results, strict=True):
                    finished(position, result)

        call = dask.delayed(partial(call_all, function), pure=False, traverse=False)
        tasks = [
            call([items[position] for position in batch.positions], *arguments, dask_key_name=key)
            for key, batch in keys.items()
        ]
        options: dict[str, Any] = {"scheduler": _GET[self.name], "optimize_graph": False}
        if self._pool is not None:
            options |= {"pool": self._pool, "num_workers": self.n_workers, "chunksize": 1}
        with Callback(posttask=posttask):
            computed = dask.compute(*tasks, **options)
        for key, results in zip(keys, computed, strict=True):  # Dask loses callbacks where threads compute side by side
            posttask(key, results)

    def _recover(self, deaths: int, error: BrokenProcessPool) -> None:
        assert isinstance(self._pool, PlacedPool)
        self._pool.replace_dead()
        if deaths >= MAX_DEATHS:
            raise EngineError(
                f"worker processes died {deaths} times in a row, most likely for want of memory. "
                "Lower --memory-limit, use fewer workers, or use the threads scheduler."
            ) from error

    def tell_all(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Call a function in this process, where it does the work; processes end with the engine."""
        if self.name != "processes":
            function(argument)

    def close(self) -> None:
        """End the pool."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class PlacedPool(Executor):
    """Processes that can be chosen.

    A task whose key ends in ``@3`` runs in process 3, where its blocks are held; ``@any`` goes where the queue is
    shortest.
    """

    def __init__(self, n_workers: int) -> None:
        self._pools = [_new_process() for _ in range(n_workers)]
        self._queued = [0] * n_workers
        self._lock = threading.Lock()
        # Dask hands over so many tasks before the first one ends: each process works on one, another waits for it
        self._max_workers = 2 * n_workers

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run a batch of one Dask task where its key says."""
        place = args[0][0][0].rsplit("@", 1)[1]
        with self._lock:
            slot = self._queued.index(min(self._queued)) if place == "any" else int(place)
            self._queued[slot] += 1
        future = self._pools[slot].submit(function, *args, **kwargs)
        future.add_done_callback(lambda _: self._ended(slot))
        return future

    def _ended(self, slot: int) -> None:
        with self._lock:
            self._queued[slot] -= 1

    def replace_dead(self) -> None:
        """Start new processes in place of those that died."""
        for slot, pool in enumerate(self._pools):
            try:
                pool.submit(os.getpid).result()
            except BrokenProcessPool:
                pool.shutdown()
                self._pools[slot] = _new_process()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes."""
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)


_main_lock = threading.Lock()


def _new_process() -> ProcessPoolExecutor:
    """A pool of one process, which starts at once."""
    # spawn: a fork of a process with threads may hang, and would inherit locks
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_process)
    # A spawned process imports the main module of its parent. Ours need nothing of it, and a script that is not
    # written for that would start its fit again in every one of them.
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            pool.submit(os.getpid)
        finally:
            sys.modules["__main__"] = main
    return pool


def _begin_process() -> None:
    """Leave Ctrl-C to the driver, and end with it even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
