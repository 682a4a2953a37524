"""Planning of an ingest: integers in, integers out."""

from __future__ import annotations

import numpy as np
from numba import njit

from gdm_dask.errors import BadInput
from gdm_dask.resources import format_bytes

#: Memory of this process before any data: the interpreter with NumPy, numba, Dask and zarr.
BASE_BYTES = 300 << 20
#: Memory of each further worker process.
PROCESS_BYTES = 250 << 20
#: Bytes that parsing and sorting one byte of source need at the worst of ordinary text (``1:1`` pairs).
PARSE_FACTOR = 8
MAX_RUN_BYTES = 48 << 20
MIN_RUN_BYTES = 1 << 20

#: Bytes of a feature in a block beside its nonzeros: pointer, mean, norm.
ROW_BYTES = 4 + 8 + 8


def run_bytes(memory_limit: int, n_workers: int, processes: bool) -> int:
    """Bytes of source that one task may hold, so that all tasks together stay below the limit.

    Examples
    --------
    >>> run_bytes(6 << 30, n_workers=2, processes=False) >> 20
    48
    """
    base = BASE_BYTES + (n_workers * PROCESS_BYTES if processes else 0)
    size = (memory_limit - base) // (n_workers * PARSE_FACTOR)
    if size < MIN_RUN_BYTES:
        least = base + n_workers * PARSE_FACTOR * MIN_RUN_BYTES
        raise BadInput(
            f"a memory limit of {format_bytes(memory_limit)} is too low for {n_workers} workers: "
            f"at least {format_bytes(least)} is needed. Raise --memory-limit or use fewer workers."
        )
    return min(size, MAX_RUN_BYTES)


def check_largest_row(row_bytes: int, memory_limit: int, n_workers: int) -> None:
    """Refuse a feature that workers could not merge within the limit: a block holds at least one whole row."""
    needed = BASE_BYTES + 3 * n_workers * row_bytes
    if needed > memory_limit:
        raise BadInput(
            f"the largest feature takes {format_bytes(row_bytes)}; merging it with {n_workers} workers needs "
            f"{format_bytes(needed)}, more than the memory limit of {format_bytes(memory_limit)}. "
            "Raise --memory-limit or use fewer workers."
        )


def byte_ranges(size: int, target: int) -> list[tuple[int, int]]:
    """Cut a file into equal ranges of at most `target` bytes.

    Examples
    --------
    >>> byte_ranges(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    n_ranges = max(1, -(-size // target))
    bounds = [size * k // n_ranges for k in range(n_ranges + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def cut_blocks(counts: np.ndarray, nonzero_bytes: int, block_bytes: int) -> list[int]:
    """First feature of each block, and the end: as many whole rows as fit into `block_bytes`, at least one.

    Parameters
    ----------
    counts : ndarray of shape (n_features,)
        Nonzeros of each feature.
    nonzero_bytes : int
        Bytes of a nonzero.
    block_bytes : int
        Wanted size of a block.

    Examples
    --------
    >>> cut_blocks(np.array([1, 1, 100, 1, 1], np.uint32), nonzero_bytes=8, block_bytes=100)
    [0, 2, 3, 5]
    """
    if len(counts) == 0:
        return [0]
    starts = _cut_blocks(counts, nonzero_bytes, block_bytes)
    return [*(int(start) for start in starts), len(counts)]


@njit(cache=True, nogil=True)
def _cut_blocks(counts, nonzero_bytes, block_bytes):  # type: ignore[no-untyped-def]
    starts = [0]
    size = 0
    for feature in range(len(counts)):
        row = ROW_BYTES + np.int64(counts[feature]) * nonzero_bytes
        if size > 0 and size + row > block_bytes:
            starts.append(feature)
            size = 0
        size += row
    return starts


def cut_dense_blocks(n_features: int, row_bytes: int, block_bytes: int) -> list[int]:
    """First feature of each dense block, and the end.

    >>> cut_dense_blocks(5, row_bytes=10, block_bytes=25)
    [0, 2, 4, 5]
    """
    rows = max(1, block_bytes // max(1, row_bytes))
    return [*range(0, n_features, rows), n_features]
