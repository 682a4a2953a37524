"""The memory that a fit will need, worked out and checked before its first task, and the blocks of each task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.errors import MemoryLimitTooLow
from gdm_dask.features.ranking import WORKING_FEATURES, WORKING_VALUES
from gdm_dask.system.resources import format_bytes

#: A process with everything imported and compiled, before any data: the driver, and a worker process.
DRIVER_BYTES = 260 << 20
PROCESS_BYTES = 130 << 20
#: For each row of a block that is worked on: its score, and what ranking it takes.
ROW_BYTES = 48
#: Encoded chunks on their way, and what the allocator keeps, for each task.
TASK_BYTES = 16 << 20
#: Vectors of one float64 per sample: alpha and its kin in the master problem, and the vector of a pass in each worker.
DRIVER_VECTORS = 12
WORKER_VECTORS = 2
#: How often the rows of supports are there: as they were read, in the master problem, and while the best are chosen.
SUPPORT_COPIES = 5
#: Features in the pool for each support, the most bytes of their rows, and how often these are there while the best are
#: chosen.
POOL_PER_SUPPORT = 4
MAX_POOL_BYTES = 256 << 20
POOL_COPIES = 3
#: Bytes of a value in a sparse row, and how often the rows of a working set are there: in parts of a pass, and joined.
VALUE_BYTES = 12
WORKING_COPIES = 2
#: Part of the remaining memory that decoded blocks may fill; fragments take the rest.
CACHE_PART = 0.85
#: Part of a Dask worker's own limit that tasks may take: from 60 % on it spills to disk, from 80 % on it takes no
#: tasks, at 95 % its nanny ends it.
WORKER_PART = 0.5
#: Tasks for each thread: enough to balance, few enough that scheduling is noise. Large data makes more of them, so that
#: an elastic cluster has work for more workers.
TASKS_PER_THREAD = 4
BYTES_PER_TASK = 256 << 20


@dataclass(frozen=True)
class Work:
    """What a fit works on.

    Attributes
    ----------
    block_bytes, block_rows : list of int
        Decoded size and features of each block.
    n_samples : int
    n_supports, n_passes : int
        Supports that the driver will hold and passes over the data, as estimates.
    support_bytes : int, optional
        What the rows of so many supports take at most; a guess otherwise.
    n_problems : int
        Problems that share the reads, each with vectors and supports of its own.
    """

    block_bytes: list[int]
    block_rows: list[int]
    n_samples: int
    n_supports: int
    n_passes: int
    support_bytes: int | None = None
    n_problems: int = 1

    @property
    def driver_bytes(self) -> int:
        """What the driver holds: vectors, rows of supports, of a pool and of a working set, and itself."""
        guess = min(8 * self.n_samples, max(self.block_bytes, default=0)) // 4 * self.n_supports
        if self.support_bytes is None:
            rows, once = 2 * guess, guess
        else:
            rows, once = SUPPORT_COPIES * self.support_bytes, self.support_bytes
        pool = min(POOL_PER_SUPPORT * once, MAX_POOL_BYTES)
        working = min(VALUE_BYTES * WORKING_VALUES, once // self.n_supports * WORKING_FEATURES, sum(self.block_bytes))
        vectors = 8 * self.n_samples * DRIVER_VECTORS
        shared = POOL_COPIES * pool + WORKING_COPIES * working  # one problem at a time chooses, or takes cuts
        return DRIVER_BYTES + self.n_problems * (vectors + rows) + (self.n_problems - 1) * pool + shared

    @property
    def task_bytes(self) -> int:
        """What one task holds while it works on a block."""
        blocks = zip(self.block_bytes, self.block_rows, strict=True)
        largest = max((size + ROW_BYTES * rows for size, rows in blocks), default=0)
        return largest + 8 * self.n_samples * WORKER_VECTORS * self.n_problems + TASK_BYTES


@dataclass(frozen=True)
class Worker:
    """A process that runs tasks: its address, how many at once, its memory limit, and when it was last heard of."""

    name: str
    threads: int
    memory: int | None = None
    beat: float = 0.0


@dataclass(frozen=True)
class FitPlan:
    """How a fit shares memory among its processes.

    Attributes
    ----------
    work : Work
    limit : int or None
        Memory of all processes together; None where the workers' own limits are all there is.
    in_driver : bool
        Whether the driver's own threads do the work. They keep decoded blocks; other processes keep nothing.
    """

    work: Work
    limit: int | None
    in_driver: bool

    def needed(self, worker: Worker) -> int:
        """Bytes that a worker needs to run its tasks."""
        return worker.threads * self.work.task_bytes + (0 if self.in_driver else PROCESS_BYTES)

    def fits(self, worker: Worker) -> bool:
        """Whether the tasks of a worker fit into its own limit."""
        return worker.memory is None or self.needed(worker) <= WORKER_PART * worker.memory

    def room(self, workers: list[Worker]) -> int:
        """Bytes of decoded blocks that the driver may keep.

        Raises
        ------
        MemoryLimitTooLow
            Where the limit is too low, or no worker is large enough, with the numbers and the remedy.
        """
        fitting = [worker for worker in workers if self.fits(worker)]
        if not fitting:
            largest = max(workers, key=lambda worker: worker.memory or 0)
            usable = format_bytes(WORKER_PART * (largest.memory or 0))
            whose = f"a worker's memory limit of {format_bytes(largest.memory or 0)} ({usable} for us)"
            raise MemoryLimitTooLow(self._refusal(whose, self.needed(largest), largest.threads))
        if self.limit is None:
            return 0
        needed = self.work.driver_bytes + sum(self.needed(worker) for worker in fitting)
        if needed > self.limit:
            whose = f"a memory limit of {format_bytes(self.limit)}"
            raise MemoryLimitTooLow(self._refusal(whose, needed, sum(worker.threads for worker in fitting)))
        return int(CACHE_PART * (self.limit - needed)) if self.in_driver else 0

    def describe(self, workers: list[Worker]) -> str:
        """One line: the bytes that are read and the share that stays in memory."""
        n_bytes, n_passes = sum(self.work.block_bytes), self.work.n_passes
        kept = min(1.0, self.room(workers) / max(1, n_bytes))
        stays = f"{kept:.0%} of it stays in memory"
        if kept in (0, 1):
            stays = "all of it stays in memory after the first pass" if kept else "each pass reads all of it"
        limit = "" if self.limit is None else f"limit {format_bytes(self.limit)}, "
        read = format_bytes(n_bytes * (1 + (n_passes - 1) * (1 - kept)))
        return (
            f"{len(self.work.block_bytes):,} blocks, {format_bytes(n_bytes)} decoded; {limit}{stays}, "
            f"about {n_passes:,} passes read {read}"
        )

    def _refusal(self, what: str, needed: int, n_tasks: int) -> str:
        return (
            f"{what} is too low: {format_bytes(needed)} are needed for {n_tasks} tasks at once (the largest block "
            f"takes {format_bytes(max(self.work.block_bytes))}, the driver {format_bytes(self.work.driver_bytes)}, a "
            f"worker process {format_bytes(PROCESS_BYTES)}). Raise --memory-limit, use fewer workers or the threads "
            "scheduler, or ingest with a smaller --block-size."
        )


def share_out(sizes: list[int], n_threads: int) -> list[list[int]]:
    """Consecutive blocks for each task, of about equal bytes.

    Examples
    --------
    >>> share_out([4, 4, 1, 1, 1, 1, 1, 1, 1, 1], 1)
    [[0], [1], [2, 3, 4, 5], [6, 7, 8, 9]]
    """
    n_tasks = min(len(sizes), max(TASKS_PER_THREAD * n_threads, -(-sum(sizes) // BYTES_PER_TASK)))
    ends = np.cumsum(sizes)
    owner = (ends - np.array(sizes) / 2) * n_tasks // max(int(ends[-1]), 1)
    parts = np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(owner)) + 1)
    return [numbers.tolist() for numbers in parts]
