"""Plan an ingest: integers in, integers out."""

from __future__ import annotations

import itertools

import numpy as np

from gdm_dask.errors import BadValue, MemoryLimitTooLow
from gdm_dask.system.jit import kernel
from gdm_dask.system.resources import format_bytes

#: Memory of this process before any data: the interpreter with NumPy, numba, Dask and the compiled kernels.
BASE_BYTES = 300 << 20
#: Memory of each further worker process.
PROCESS_BYTES = 220 << 20
#: Bytes needed to parse and sort one byte of source, for the densest text (``1:1`` pairs).
PARSE_FACTOR = 14
#: Bytes needed to make a block besides the block and its largest piece: a few chunks, encoded and decoded.
CHUNKS_BYTES = 24 << 20
#: Bytes of the pieces of runs that are appended to a block together, if the memory limit allows it: with all runs at
#: once, the growing rows stay in the caches.
PIECES_BYTES = 48 << 20

MIN_RUN_BYTES = 256 << 10
#: Runs are small enough that the allocator reuses the memory of their arrays,
RUN_BYTES = 32 << 20
#: but a large source is not cut into more runs than this: each block is assembled from a piece of every run.
MAX_RUNS = 512

#: Bytes per feature in a block besides its nonzeros: pointer, mean, norm.
ROW_BYTES = 4 + 8 + 8
#: Minimum number of blocks of a set, as long as they do not get smaller than this.
LEAST_BLOCKS = 16
LEAST_BLOCK_BYTES = 4 << 20


def run_bytes(memory_limit: int, n_workers: int, processes: bool, source_bytes: int, least: int = 0) -> int:
    """Return the bytes of source one task may hold, at least `least`, so that all tasks stay within the memory limit.

    Examples
    --------
    >>> run_bytes(6 << 30, n_workers=2, processes=False, source_bytes=10**9) >> 20
    32
    >>> run_bytes(6 << 30, n_workers=2, processes=False, source_bytes=24 * 10**9) >> 20
    44
    """
    base = _base(n_workers, processes)
    size = (memory_limit - base) // (n_workers * PARSE_FACTOR)
    least = max(least, MIN_RUN_BYTES)
    if size < least:
        needed = base + n_workers * PARSE_FACTOR * least
        raise MemoryLimitTooLow(
            f"a memory limit of {format_bytes(memory_limit)} is too low for this source and {n_workers} workers: "
            f"at least {format_bytes(needed)} is needed. Raise --memory-limit or use fewer --workers."
        )
    return min(size, max(RUN_BYTES, source_bytes // MAX_RUNS, least))


def check_block_size(memory_limit: int, processes: bool, block_bytes: int) -> None:
    """Refuse blocks that cannot be made within the limit, before the work starts."""
    needed = _base(1, processes) + block_bytes + CHUNKS_BYTES
    if needed > memory_limit:
        raise MemoryLimitTooLow(
            f"making a block of {format_bytes(block_bytes)} needs {format_bytes(needed)}, more than the memory limit "
            f"of {format_bytes(memory_limit)}. Raise --memory-limit or lower --block-size."
        )


def merge_plan(
    memory_limit: int, n_workers: int, processes: bool, n_features: int, block_bytes: int, behind: int = 0
) -> tuple[int, int]:
    """Return how many blocks may be merged at a time, and the bytes of pieces of runs that each task may then hold.

    `block_bytes` is the size of the largest block, which holds at least one whole feature, plus its largest piece of a
    run; `behind` are the bytes that a task has on their way to an object store.

    Examples
    --------
    >>> workers, pieces = merge_plan(500 << 20, n_workers=4, processes=False, n_features=1000, block_bytes=70 << 20)
    >>> workers, pieces >> 20
    (2, 5)
    """
    base = BASE_BYTES + 4 * n_features
    each = block_bytes + behind + CHUNKS_BYTES + (PROCESS_BYTES if processes else 0)
    fitting = min((memory_limit - base) // each, n_workers)
    if fitting < 1:
        raise MemoryLimitTooLow(
            f"the largest feature makes a block of {format_bytes(block_bytes)}; it needs {format_bytes(base + each)}, "
            f"more than the memory limit of {format_bytes(memory_limit)}. Run the same command again with a higher "
            "--memory-limit: it resumes where it stopped."
        )
    return fitting, min(PIECES_BYTES, (memory_limit - base) // fitting - each)


def check_feature_space(n_features: int, memory_limit: int) -> None:
    """Refuse a feature space whose counts alone exceed the limit."""
    needed = BASE_BYTES + 4 * n_features
    if needed > memory_limit:
        raise BadValue(
            f"{n_features:,} features (the largest index) need {format_bytes(needed)} of memory, more than the limit "
            f"of {format_bytes(memory_limit)}. If the index is right, raise --memory-limit; if not, pass "
            "--n-features to ignore larger ones."
        )


def _base(n_workers: int, processes: bool) -> int:
    return BASE_BYTES + (n_workers * PROCESS_BYTES if processes else 0)


def byte_ranges(size: int, target: int) -> list[tuple[int, int]]:
    """Cut a file into equal ranges of at most `target` bytes.

    Examples
    --------
    >>> byte_ranges(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    n_ranges = max(1, -(-size // target))
    bounds = [size * k // n_ranges for k in range(n_ranges + 1)]
    return list(itertools.pairwise(bounds))


def shared_out(in_all: int, block_bytes: int) -> int:
    """Return the size of a block: as requested, or less if a small set would have too few blocks for all workers.

    Examples
    --------
    >>> shared_out(160 << 20, 64 << 20) >> 20, shared_out(8 << 20, 64 << 20) >> 20, shared_out(4 << 30, 64 << 20) >> 20
    (10, 4, 64)
    """
    return min(block_bytes, max(LEAST_BLOCK_BYTES, in_all // LEAST_BLOCKS))


def cut_blocks(counts: np.ndarray, nonzero_bytes: int, block_bytes: int) -> list[int]:
    """Return the first feature of each block, and the end: as many whole rows as fit `block_bytes`, at least one.

    `counts` are the nonzeros of each feature.

    Examples
    --------
    >>> cut_blocks(np.array([1, 1, 100, 1, 1], np.uint32), nonzero_bytes=8, block_bytes=100)
    [0, 2, 3, 5]
    """
    in_all = ROW_BYTES * len(counts) + int(counts.sum(dtype=np.int64)) * nonzero_bytes
    block_bytes = shared_out(in_all, block_bytes)
    starts = np.zeros(2 + 2 * in_all // block_bytes, np.int64)  # two neighbouring blocks together exceed `block_bytes`
    n_blocks = _cut_blocks(counts, nonzero_bytes, block_bytes, starts)
    return [*starts[:n_blocks].tolist(), len(counts)]


@kernel
def _cut_blocks(counts, nonzero_bytes, block_bytes, starts):  # type: ignore[no-untyped-def]
    """Write the first feature of each block; return the number of blocks."""
    n_blocks, size = 1, 0
    for feature in range(len(counts)):
        row = ROW_BYTES + np.int64(counts[feature]) * nonzero_bytes
        if size > 0 and size + row > block_bytes:
            starts[n_blocks] = feature
            n_blocks += 1
            size = 0
        size += row
    return n_blocks


def cut_dense_blocks(n_features: int, row_bytes: int, block_bytes: int) -> list[int]:
    """Return the first feature of each dense block, and the end.

    >>> cut_dense_blocks(5, row_bytes=10, block_bytes=25)
    [0, 2, 4, 5]
    """
    rows = max(1, shared_out(n_features * row_bytes, block_bytes) // max(1, row_bytes))
    return [*range(0, n_features, rows), n_features]
