"""Memory plan of a fit, computed and checked before its first task, and the blocks of each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gdm_dask.errors import MemoryLimitTooLow
from gdm_dask.system.resources import format_bytes, plural

#: A process of ours with everything imported and compiled, before any data, and a Dask worker.
PROCESS_BYTES = 130 << 20
WORKER_BYTES = 230 << 20
#: Parts of a Dask worker's own limit that tasks may use, and tasks with the drivers of jobs: a worker spills its Dask
#: results to disk from 60 %, takes no tasks from 80 %, and is killed by its nanny at 95 %.
WORKER_PART = 0.5
JOBS_PART = 0.75
#: Tasks per thread, which balance the load; beyond so many tasks, which take a scheduler about a second, the threads
#: get fewer, down to one. Large data gets more tasks, so that an elastic cluster has work for more workers.
TASKS_PER_THREAD = 4
MANY_TASKS = 1024
BYTES_PER_TASK = 256 << 20
MAX_TASKS = 4096
#: Parts that one task merges on a cluster.
FAN_IN = 16


@dataclass(frozen=True)
class Worker:
    """A process that runs tasks."""

    name: str  # its address
    threads: int  # number of tasks that it runs at the same time
    memory: int | None = None  # its own limit
    beat: float = field(default=0.0, compare=False)  # time of its last heartbeat
    drivers: int = 0  # number of jobs whose drivers may run in it, beside the tasks

    @property
    def own_bytes(self) -> int:
        """Memory of the process without data; only Dask workers have a limit of their own."""
        return PROCESS_BYTES if self.memory is None else WORKER_BYTES


@dataclass(frozen=True)
class FitPlan:
    """How a fit shares memory among its processes."""

    block_bytes: list[int]  # decoded size of each block
    task_bytes: int  # of a task while it works on a block
    driver_bytes: int  # of the driver, for everything but blocks
    n_passes: int  # over the data, an estimate
    limit: int | None  # memory of all processes together; None if only the workers' own limits apply
    in_driver: bool  # the driver's own threads do the work
    n_problems: int = 1  # that may share a read

    def needed(self, worker: Worker) -> int:
        """Bytes that a worker needs to run its tasks."""
        return worker.threads * self.task_bytes + (0 if self.in_driver else worker.own_bytes)

    def fits(self, worker: Worker) -> bool:
        """Return whether the tasks of a worker fit into its own limit, beside the drivers of jobs."""
        if worker.memory is None:
            return True
        tasks = self.needed(worker)
        return tasks <= WORKER_PART * worker.memory and tasks + self._drivers(worker) <= JOBS_PART * worker.memory

    def _drivers(self, worker: Worker) -> int:
        """Bytes that drivers add to a worker, whose process is already counted."""
        return worker.drivers * max(0, self.driver_bytes - worker.own_bytes)

    def usable(self, workers: list[Worker], known: Sequence[Worker] = ()) -> list[Worker]:
        """Return the workers that are large enough; if the limit has no room for all of them, those `known` before.

        Raises
        ------
        MemoryLimitTooLow
            If the limit is too low or no worker is large enough; the message has the numbers and the remedy.
        """
        host = max(workers, key=lambda worker: worker.drivers)
        alone = host.own_bytes + self._drivers(host)
        if host.drivers and host.memory and alone > JOBS_PART * host.memory:
            raise self._refusal(alone, [host], JOBS_PART)
        fitting = [worker for worker in workers if self.fits(worker)]
        if not fitting:
            largest = max(workers, key=lambda worker: worker.memory or 0)
            part = JOBS_PART if largest.drivers else WORKER_PART
            raise self._refusal(self.needed(largest) + self._drivers(largest), [largest], part)
        needed = self.driver_bytes + sum(self.needed(worker) for worker in fitting)
        if self.limit is not None and needed > self.limit:
            before = [worker for worker in fitting if worker in known]
            if not 0 < len(before) < len(fitting):
                raise self._refusal(needed, fitting)
            return self.usable(before)
        return fitting

    def describe(self) -> str:
        """Describe in one line the bytes to read."""
        n_bytes, limit = sum(self.block_bytes), "" if self.limit is None else f"limit {format_bytes(self.limit)}, "
        return (
            f"{plural(len(self.block_bytes), 'block')}, {format_bytes(n_bytes)} decoded; {limit}"
            f"about {self.n_passes:,} passes read {format_bytes(n_bytes * self.n_passes)}"
        )

    def _refusal(self, needed: int, workers: list[Worker], part: float = 0.0) -> MemoryLimitTooLow:
        """Refuse the memory limit, or the `part` of a worker's own that is for us."""
        n_tasks, own = sum(worker.threads for worker in workers), workers[0].memory or 0
        limit = f"a worker's memory limit of {format_bytes(own)} ({format_bytes(part * own)} for us)"
        limit = limit if part else f"a memory limit of {format_bytes(self.limit or 0)}"
        remedy = "Raise --memory-limit, use fewer workers or the threads scheduler"
        if part:
            remedy = "Start workers with a higher --memory-limit or fewer threads"
        return MemoryLimitTooLow(
            f"{limit} is too low: {format_bytes(needed)} are needed for {n_tasks} tasks at once (the largest block "
            f"takes {format_bytes(max(self.block_bytes))}, the driver {format_bytes(self.driver_bytes)}, a worker "
            f"process {format_bytes(workers[0].own_bytes)}). {remedy}, or ingest with a smaller --block-size."
        )


def share_out(sizes: list[int], n_threads: int) -> list[range]:
    """Split the blocks into tasks of consecutive blocks with about equal bytes.

    Examples
    --------
    >>> share_out([4, 4, 1, 1, 1, 1, 1, 1, 1, 1], 1)
    [range(0, 1), range(1, 2), range(2, 6), range(6, 10)]
    """
    wanted = min(MAX_TASKS, -(-sum(sizes) // BYTES_PER_TASK))
    balanced = min(TASKS_PER_THREAD * n_threads, max(MANY_TASKS, n_threads))
    n_tasks = min(len(sizes), max(balanced, wanted))
    ends = np.cumsum(sizes)
    owner = (ends - np.array(sizes) / 2) * n_tasks // max(int(ends[-1]), 1)
    bounds = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(sizes)]
    return [range(first, last) for first, last in pairwise(bounds)]
