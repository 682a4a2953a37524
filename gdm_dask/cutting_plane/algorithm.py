"""Algorithm 1: add the most violated cut, solve the master problem, repeat; with valid bounds at every read.

With the duals of the master problem over the cuts so far,

- its optimum is a *lower* bound on (4), because it has fewer constraints;
- its objective at these duals, with a valid bound on (6) in place of the cuts, is an *upper* bound.

Both are about (4) over the features that no support covers. All cuts lie in that set; as supports are found the set
shrinks, the optimum of (4) over it can only fall, and bounds from above that were found earlier stay valid. Cuts that
are taken from a working set between two reads raise the lower bound; the upper bound waits for the next read, which
knows the scores of all features.

The memory that it takes is known before it begins: see `FitWork`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.working_set import read
from gdm_dask.engine.data import Data
from gdm_dask.engine.plan import FitPlan
from gdm_dask.features.ranking import WORKING_FEATURES, WORKING_VALUES
from gdm_dask.system.progress import work_clock

#: The driver's process with everything imported and compiled, before any data.
DRIVER_BYTES = 260 << 20
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


def solve(problems: Sequence[Problem], data: Data, on_cut: Callable[[Problem], None]) -> None:
    """Find cuts until each problem's bounds meet, its cuts repeat, or there are enough. All share every read.

    Parameters
    ----------
    problems : list of Problem
        New ones, or some that were stopped.
    data : Data
    on_cut : callable
        Gets a problem after each of its cuts.
    """
    for problem in problems:
        problem.advance(on_cut)  # with the working set that it was stopped with
    while waiting := [problem for problem in problems if not problem.stopped]:
        clock, bytes_before = work_clock(), data.counts.bytes_read
        seen = read(data, [problem.question() for problem in waiting], [problem.fold for problem in waiting])
        seconds, n_bytes = work_clock() - clock, data.counts.bytes_read - bytes_before
        for problem, found in zip(waiting, seen, strict=True):
            problem.see(found, seconds, n_bytes)
            problem.advance(on_cut)
    for problem in problems:
        if problem.settings.n_supports is None and problem.cuts:
            problem.finish()


@dataclass(frozen=True)
class FitWork:
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

    def plan(self, limit: int | None, in_driver: bool) -> FitPlan:
        """How its processes share the memory; see `FitPlan`."""
        return FitPlan(self.block_bytes, self.task_bytes, self.driver_bytes, self.n_passes, limit, in_driver)
