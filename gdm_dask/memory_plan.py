"""The memory that a fit will need, worked out and checked before its first task."""

from __future__ import annotations

from dataclasses import dataclass

from gdm_dask.errors import BadInput
from gdm_dask.resources import format_bytes

#: A process with everything imported and compiled, before any data.
PROCESS_BYTES = 260 << 20
#: A block that is being read takes its decoded size and a chunk's worth of buffers.
READ_FACTOR = 1.25
#: Vectors of one float64 per sample: alpha and its kin in the master problem, and the vector of a pass in each worker.
DRIVER_VECTORS = 12
WORKER_VECTORS = 2
#: Part of what is left that decoded blocks may fill; allocators and fragments take the rest.
CACHE_PART = 0.85


@dataclass(frozen=True)
class FitPlan:
    """What a fit will read and hold.

    Attributes
    ----------
    n_blocks, n_bytes : int
        Blocks of the store, and their decoded size.
    n_processes : int
        Processes that hold blocks.
    cache_bytes : int
        Decoded blocks that each of them may keep between passes.
    needed_bytes : int
        The least that the fit can do with.
    limit : int
    """

    n_blocks: int
    n_bytes: int
    n_processes: int
    cache_bytes: int
    needed_bytes: int
    limit: int

    @property
    def kept_part(self) -> float:
        """Part of the store that stays in memory between passes."""
        return min(1.0, self.n_processes * self.cache_bytes / max(1, self.n_bytes))

    def __str__(self) -> str:
        if self.kept_part == 1.0:
            reads = "all of it stays in memory after the first pass"
        else:
            read = format_bytes((1 - self.kept_part) * self.n_bytes)
            reads = f"{self.kept_part:.0%} stay in memory, each pass reads {read}"
        return (
            f"{self.n_blocks:,} blocks, {format_bytes(self.n_bytes)} decoded; limit {format_bytes(self.limit)}, "
            f"{self.n_processes} x {format_bytes(self.cache_bytes)} for blocks: {reads}"
        )


def plan_fit(
    block_bytes: list[int], n_samples: int, n_supports: int, n_workers: int, n_processes: int, limit: int
) -> FitPlan:
    """Share a memory limit among processes, or refuse it.

    Parameters
    ----------
    block_bytes : list of int
        Decoded size of each block.
    n_samples : int
    n_supports : int
        Supports that the driver will hold, as an estimate.
    n_workers : int
        Tasks that run at the same time.
    n_processes : int
        Worker processes beside the driver; 0 where the driver's own threads do the work.
    limit : int
        Memory of all processes together.

    Examples
    --------
    >>> plan = plan_fit([64 << 20] * 10, 10_000, 100, n_workers=2, n_processes=0, limit=4 << 30)
    >>> plan.kept_part
    1.0
    """
    largest = max(block_bytes, default=0)
    driver = PROCESS_BYTES + 8 * n_samples * DRIVER_VECTORS
    working = n_workers * (int(READ_FACTOR * largest) + 8 * n_samples * WORKER_VECTORS) + n_processes * PROCESS_BYTES
    supports = 2 * 8 * min(n_samples, largest // 8) * n_supports // 4
    needed = driver + working + supports
    if needed > limit:
        raise BadInput(
            f"a memory limit of {format_bytes(limit)} is too low: {format_bytes(needed)} are needed with {n_workers} "
            f"workers (the largest block takes {format_bytes(largest)}, each process {format_bytes(PROCESS_BYTES)}). "
            "Raise --memory-limit, use fewer workers or the threads scheduler, or ingest with a smaller --block-size."
        )
    holders = max(1, n_processes)
    cache = int(CACHE_PART * (limit - needed)) // holders
    return FitPlan(len(block_bytes), sum(block_bytes), holders, min(cache, sum(block_bytes)), needed, limit)
