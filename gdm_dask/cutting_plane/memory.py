"""Memory needed by a fit, on the driver and in each task, known before its first task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gdm_dask.cutting_plane.trade_off import n_problems_of
from gdm_dask.cutting_plane.working_set import POOL_VALUES
from gdm_dask.engine import Worker
from gdm_dask.errors import MemoryLimitTooLow
from gdm_dask.features.ranking import WORKING_FEATURES, WORKING_VALUES
from gdm_dask.settings.settings import Settings, expected_supports
from gdm_dask.system.resources import format_bytes, plural

#: The driver process with everything imported and compiled, before any data.
DRIVER_BYTES = 260 << 20
#: Per row of the current block: its score and the space to rank it.
ROW_BYTES = 48
#: Per task: encoded chunks in transit, and memory retained by the allocator.
TASK_BYTES = 16 << 20
#: Vectors of one float64 per sample: alpha and similar vectors of the master problem, and the vector of a pass per
#: worker.
DRIVER_VECTORS = 12
WORKER_VECTORS = 2
#: Copies of the rows of supports: as read, in the master problem, and during the choice of the best.
SUPPORT_COPIES = 5
#: Features in the pool per support, and the number of copies of their rows during the choice of the best.
POOL_PER_SUPPORT = 4
POOL_COPIES = 3
#: Bytes of a value in a sparse row, at most, and copies of a working set: in the parts of a pass, and joined.
VALUE_BYTES = 12
WORKING_COPIES = 2
#: A process of ours with everything imported and compiled, before any data, and a Dask worker.
PROCESS_BYTES = 130 << 20
WORKER_BYTES = 230 << 20
#: Parts of a Dask worker's own limit that tasks may use, and tasks with the drivers of jobs: a worker spills its Dask
#: results to disk from 60 %, takes no tasks from 80 %, and is killed by its nanny at 95 %.
WORKER_PART = 0.5
JOBS_PART = 0.75


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
        return worker.threads * self.task_bytes + (0 if self.in_driver else _own_bytes(worker))

    def fits(self, worker: Worker) -> bool:
        """Return whether the tasks of a worker fit into its own limit, beside the drivers of jobs."""
        if worker.memory is None:
            return True
        tasks = self.needed(worker)
        return tasks <= WORKER_PART * worker.memory and tasks + self._drivers(worker) <= JOBS_PART * worker.memory

    def _drivers(self, worker: Worker) -> int:
        """Bytes that drivers add to a worker, whose process is already counted."""
        return worker.drivers * max(0, self.driver_bytes - _own_bytes(worker))

    def usable(self, workers: list[Worker], known: Sequence[Worker] = ()) -> list[Worker]:
        """Return the workers that are large enough; if the limit has no room for all of them, those `known` before.

        Raises
        ------
        MemoryLimitTooLow
            If the limit is too low or no worker is large enough; the message has the numbers and the remedy.
        """
        host = max(workers, key=lambda worker: worker.drivers)
        alone = _own_bytes(host) + self._drivers(host)
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

    def choose(self, workers: list[Worker], known: Sequence[Worker] = ()) -> tuple[list[Worker], dict[Worker, str]]:
        """Return the `usable` workers, and why each of the others gets no tasks."""
        usable = self.usable(workers, known)
        small, late = "has too little memory for a task of this fit", "joined when the memory limit was used up"
        return usable, {worker: late if self.fits(worker) else small for worker in workers if worker not in usable}

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
            f"process {format_bytes(_own_bytes(workers[0]))}). {remedy}, or ingest with a smaller --block-size."
        )


def _own_bytes(worker: Worker) -> int:
    """Memory of a process without data; only Dask workers have a limit of their own."""
    return PROCESS_BYTES if worker.memory is None else WORKER_BYTES


@dataclass(frozen=True)
class FitWork:
    """Workload of a fit."""

    block_bytes: list[int]  # decoded size of each block
    block_rows: list[int]  # features of each block
    n_samples: int
    n_supports: int  # that the driver holds, an estimate
    n_passes: int  # over the data, an estimate
    support_bytes: int | None = None  # most bytes of the rows of `n_supports` supports; estimated if not given
    n_problems: int = 1  # that share the reads, each with its own vectors and supports
    n_outputs: int = 1  # of each problem, each with its own vectors
    constraint_bytes: int = 0  # of excluded features and of scores of features that enter together, for each problem
    bytes_ahead: int = 0  # that a task has requested from an object store ahead of the current block
    value_bytes: int = VALUE_BYTES  # of a value in a row

    @property
    def driver_bytes(self) -> int:
        """Bytes held by the driver: vectors, rows of supports, of a pool and of a working set, and the process."""
        guess = min(8 * self.n_samples, max(self.block_bytes, default=0)) // 4 * self.n_supports
        if self.support_bytes is None:
            rows, once = 2 * guess, guess
        else:
            rows, once = SUPPORT_COPIES * self.support_bytes, self.support_bytes
        pool = min(POOL_PER_SUPPORT * once, self.value_bytes * POOL_VALUES)
        most = self.value_bytes * WORKING_VALUES
        working = min(most, once // self.n_supports * WORKING_FEATURES, sum(self.block_bytes))
        vectors = 8 * self.n_samples * DRIVER_VECTORS * self.n_outputs + self.constraint_bytes
        shared = POOL_COPIES * pool + WORKING_COPIES * working  # one problem at a time chooses or takes cuts
        return DRIVER_BYTES + self.n_problems * (vectors + rows) + (self.n_problems - 1) * pool + shared

    @property
    def task_bytes(self) -> int:
        """Bytes held by one task while it works on a block."""
        blocks = zip(self.block_bytes, self.block_rows, strict=True)
        largest = max((size + ROW_BYTES * rows for size, rows in blocks), default=0)
        vectors = 8 * self.n_samples * WORKER_VECTORS * self.n_outputs + self.constraint_bytes
        return largest + vectors * self.n_problems + self.bytes_ahead + TASK_BYTES

    def plan(self, limit: int | None, in_driver: bool) -> FitPlan:
        """Plan how the processes share the memory; see `FitPlan`."""
        return FitPlan(
            self.block_bytes, self.task_bytes, self.driver_bytes, self.n_passes, limit, in_driver, self.n_problems
        )

    def fitted(
        self, workers: list[Worker], limit: int | None, in_driver: bool, largest_rows: Callable[[int], int]
    ) -> FitPlan:
        """Halve the number of problems until the plan fits; with one problem, return the plan even if it does not fit.

        `largest_rows` gives the most bytes of the rows of a number of supports; it is called if the estimate does not
        fit.
        """
        work, is_guess = self, self.support_bytes is None
        while True:
            plan = work.plan(limit, in_driver)
            try:
                plan.usable(workers)
                return plan
            except MemoryLimitTooLow:
                if is_guess:  # find out how much the rows need at most: often less, as features are rare
                    known = replace(work, support_bytes=largest_rows(work.n_supports))
                    work, is_guess = min(work, known, key=lambda one: one.driver_bytes), False
                elif work.n_problems > 1:
                    work = replace(work, n_problems=-(-work.n_problems // 2))
                else:
                    return plan


def planned_work(
    block_bytes: list[int],
    block_rows: list[int],
    n_samples: int,
    settings: Settings,
    support_bytes: int | None = None,
    n_problems: int | None = None,
    bytes_ahead: int = 0,
    value_bytes: int = VALUE_BYTES,
) -> FitWork:
    """Workload of a fit; by default with as many problems as choosing C needs. See `FitWork` for the parameters."""
    reads = [-(-expected_supports(one) // (one.cut_size * one.cuts_per_read)) for one in settings.candidates]
    return FitWork(
        block_bytes, block_rows, n_samples, expected_supports(settings), max(reads) + 1, support_bytes,
        n_problems or n_problems_of(settings), settings.n_outputs,
        0 if settings.constraints is None else settings.constraints.nbytes, bytes_ahead,
        value_bytes,
    )  # fmt: skip
