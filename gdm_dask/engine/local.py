"""Dask's schedulers for one machine: synchronous, threads, and processes that keep no data."""

from __future__ import annotations

import sys
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from typing import Any

import cloudpickle
from dask.local import SynchronousExecutor, get_async

from gdm_dask.engine import Engine, Task, Worker
from gdm_dask.errors import EngineError
from gdm_dask.store.reader import READS, counted
from gdm_dask.system import interrupts
from gdm_dask.system.processes import call_with, kill_pool, start_pool, written

#: Consecutive deaths of worker processes, without a finished task in between, before giving up.
MAX_DEATHS = 5
#: Clients of object stores: each process would take about half a second to import one.
_CLIENTS = {"adlfs", "gcsfs", "s3fs"}


class LocalEngine(Engine):
    """Runs tasks in this process, or in its own processes, which keep nothing between tasks.

    Parameters
    ----------
    name : {"synchronous", "threads", "processes"}
    n_workers : int
    """

    def __init__(self, name: str, n_workers: int) -> None:
        self.name = name
        self.n_workers = 1 if name == "synchronous" else n_workers
        self.shares_memory = name != "processes"
        self.description = name if name == "synchronous" else f"{self.n_workers} {name}"
        self._pool: Executor | None = None  # from the first task on

    def workers(self) -> list[Worker]:
        """Return this process, or the processes that it started."""
        if self.shares_memory:
            return [Worker("this process", self.n_workers)]
        return [Worker(f"process {number}", 1) for number in range(self.n_workers)]

    def _map(
        self, name: str, function: Task, left: dict[int, Any], args: tuple[Any, ...], at_once: int, keep: Task
    ) -> None:
        def finished(position: Any, result: Any, *_: Any) -> None:
            if not self.shares_memory:
                result, reads = result
                READS.add(**reads)
            keep(position, result)

        deaths = 0
        with (
            interrupts.held_back(self._wake) as hold,
            nullcontext(None) if self.shares_memory else written(args) as path,
        ):

            def call(item: Any) -> Task:
                if path is not None:
                    return partial(counted, call_with, path, function, item)
                return partial(partial(hold.run, function) if self.name == "threads" else function, item, *args)

            while left:
                interrupts.check()
                n_before = len(left)
                try:
                    self._compute(
                        {n: (call(item),) for n, item in left.items()}, min(self.n_workers, at_once), finished
                    )
                except BrokenProcessPool as error:
                    interrupts.check()
                    deaths = deaths + 1 if len(left) == n_before else 1
                    if deaths >= MAX_DEATHS:
                        raise EngineError(
                            f"worker processes died {deaths} times in a row, probably out of memory. "
                            "Lower --memory-limit, use fewer workers, or use the threads scheduler."
                        ) from error

    def _compute(self, graph: dict[int, Any], at_once: int, finished: Task) -> None:
        """Run a graph with Dask's scheduler for pools."""
        if self._pool is None:
            self._pool = self._start()
        options: dict[str, Any] = {"callbacks": [(None, None, None, finished, None)], "chunksize": 1}
        if not self.shares_memory:  # cloudpickle also sends functions defined in a script
            options |= {"dumps": cloudpickle.dumps, "loads": cloudpickle.loads}
        try:
            get_async(self._pool.submit, at_once, graph, list(graph), **options)
        except BaseException:
            self.close()  # afterwards, no task writes to a file that another process may take over
            raise

    def _start(self) -> Executor:
        if self.name == "processes":
            clients = _CLIENTS & sys.modules.keys()  # of the store, which is open
            return start_pool(self.n_workers, preload=["gdm_dask.engine.preload", *sorted(clients)])
        return ThreadPoolExecutor(self.n_workers) if self.name == "threads" else SynchronousExecutor()

    def _wake(self) -> None:
        """End a wait for processes, which keep nothing and can be ended. Threads reach a safe point by themselves."""
        if isinstance(self._pool, ProcessPoolExecutor):
            kill_pool(self._pool)

    def close(self, wait: bool = True) -> None:
        """Shut down the pool; without `wait`, end its processes at once."""
        if not wait:
            self._wake()
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None
