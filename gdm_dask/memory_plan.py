"""The memory that a fit will need, worked out and checked before its first task."""

from __future__ import annotations

from dataclasses import dataclass

from gdm_dask.errors import MemoryLimitTooLow
from gdm_dask.leaders import MAX_BYTES as MAX_LEADER_BYTES
from gdm_dask.pool import MAX_BYTES as MAX_POOL_BYTES
from gdm_dask.resources import format_bytes

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
#: Features in the pool for each support, and how often their rows are there while the best are chosen.
POOL_PER_SUPPORT = 4
POOL_COPIES = 3
#: Part of what is left that decoded blocks may fill; fragments take the rest.
CACHE_PART = 0.85
#: Part of a Dask worker's own limit that we use: from 80 % on it stops taking tasks, at 95 % its nanny ends it.
WORKER_PART = 0.7


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
    shares : list of list of int
        The blocks that belong to each process, by number.
    support_bytes : int, optional
        What the rows of so many supports take at most; a guess otherwise.
    """

    block_bytes: list[int]
    block_rows: list[int]
    n_samples: int
    n_supports: int
    n_passes: int
    shares: list[list[int]]
    support_bytes: int | None = None

    @property
    def driver_bytes(self) -> int:
        """What the driver holds: vectors, rows of supports, of those to choose among and of leaders, and itself."""
        guess = min(8 * self.n_samples, max(self.block_bytes, default=0)) // 4 * self.n_supports
        if self.support_bytes is None:
            rows, once = 2 * guess, guess
        else:
            rows, once = SUPPORT_COPIES * self.support_bytes, self.support_bytes
        pool = min(POOL_PER_SUPPORT * once, MAX_POOL_BYTES)
        leaders = min(MAX_LEADER_BYTES, sum(self.block_bytes))
        return DRIVER_BYTES + 8 * self.n_samples * DRIVER_VECTORS + rows + POOL_COPIES * pool + leaders

    @property
    def task_bytes(self) -> int:
        """What one task holds while it works on a block."""
        blocks = zip(self.block_bytes, self.block_rows, strict=True)
        largest = max((size + ROW_BYTES * rows for size, rows in blocks), default=0)
        return largest + 8 * self.n_samples * WORKER_VECTORS + TASK_BYTES


@dataclass(frozen=True)
class FitPlan:
    """What a fit will read and hold.

    Attributes
    ----------
    work : Work
    n_processes : int
        Processes that hold blocks.
    cache_bytes : int
        Decoded blocks that each of them may keep between passes.
    limit : int
        Memory of all processes together.
    """

    work: Work
    n_processes: int
    cache_bytes: int
    limit: int

    @property
    def n_bytes(self) -> int:
        """Decoded size of all blocks."""
        return sum(self.work.block_bytes)

    @property
    def kept_bytes(self) -> int:
        """Decoded size of the blocks that stay in memory between passes: each process keeps what comes first."""
        kept = 0
        for share in self.work.shares:
            room = self.cache_bytes
            for number in share:
                if self.work.block_bytes[number] <= room:
                    room -= self.work.block_bytes[number]
            kept += self.cache_bytes - room
        return kept

    @property
    def read_bytes(self) -> int:
        """Decoded bytes that all passes will read: everything once, and then what is not kept."""
        return self.n_bytes + (self.work.n_passes - 1) * (self.n_bytes - self.kept_bytes)

    def __str__(self) -> str:
        passes = f"about {self.work.n_passes:,} passes read {format_bytes(self.read_bytes)}"
        kept = self.kept_bytes / max(1, self.n_bytes)
        reads = "all of it stays in memory after the first pass" if kept == 1 else f"{kept:.0%} of it stay in memory"
        return (
            f"{len(self.work.block_bytes):,} blocks, {format_bytes(self.n_bytes)} decoded; "
            f"limit {format_bytes(self.limit)}, {self.n_processes} x {format_bytes(self.cache_bytes)} for blocks: "
            f"{reads}, {passes}"
        )


def plan_fit(work: Work, n_workers: int, n_processes: int, limit: int | None, worker_limit: int | None) -> FitPlan:
    """Share memory among processes, or refuse.

    Parameters
    ----------
    work : Work
    n_workers : int
        Tasks that run at the same time.
    n_processes : int
        Worker processes beside the driver; 0 where the driver's own threads do the work.
    limit : int or None
        Memory of all processes together; None where the workers' own limits are all there is.
    worker_limit : int or None
        Memory of each worker process.

    Raises
    ------
    MemoryLimitTooLow
        With the numbers and the remedy.

    Examples
    --------
    >>> work = Work([64 << 20] * 10, [100_000] * 10, 10_000, n_supports=100, n_passes=21, shares=[list(range(10))])
    >>> plan_fit(work, n_workers=2, n_processes=0, limit=4 << 30, worker_limit=None).kept_bytes == 640 << 20
    True
    """
    holders = max(1, n_processes)
    tasks_at_once = -(-n_workers // holders)
    needed_each = tasks_at_once * work.task_bytes + (PROCESS_BYTES if n_processes else 0)
    room = []
    if limit is not None:
        needed = work.driver_bytes + holders * needed_each
        if needed > limit:
            raise MemoryLimitTooLow(_refusal(work, f"a memory limit of {format_bytes(limit)}", needed, n_workers))
        room.append((limit - needed) // holders)
    if worker_limit is not None:
        usable = int(WORKER_PART * worker_limit)
        if needed_each > usable:
            whose = f"a worker's memory limit of {format_bytes(worker_limit)} ({format_bytes(usable)} for us)"
            raise MemoryLimitTooLow(_refusal(work, whose, needed_each, tasks_at_once))
        room.append(usable - needed_each)
    cache = min(int(CACHE_PART * min(room)), sum(work.block_bytes))
    in_all = limit if limit is not None else work.driver_bytes + holders * int(WORKER_PART * (worker_limit or 0))
    return FitPlan(work, holders, cache, in_all)


def _refusal(work: Work, what: str, needed: int, n_tasks: int) -> str:
    return (
        f"{what} is too low: {format_bytes(needed)} are needed for {n_tasks} tasks at once (the largest block takes "
        f"{format_bytes(max(work.block_bytes))}, the driver {format_bytes(work.driver_bytes)}, a worker process "
        f"{format_bytes(PROCESS_BYTES)}). Raise --memory-limit, use fewer workers or the threads scheduler, or ingest "
        "with a smaller --block-size."
    )
