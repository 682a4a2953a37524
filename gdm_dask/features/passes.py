"""A pass visits every block of the data once: a reduction that knows neither Dask nor Zarr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from gdm_dask.features.block import Block

Part = TypeVar("Part")
Result = TypeVar("Result", covariant=True)

#: Tasks per thread, which balance the load; beyond so many tasks, which take a scheduler about a second, the threads
#: get fewer, down to one. Large data gets more tasks, so that an elastic cluster has work for more workers.
TASKS_PER_THREAD = 4
MANY_TASKS = 1024
BYTES_PER_TASK = 256 << 20
MAX_TASKS = 4096


class Pass(Protocol[Part, Result]):
    """A reduction over blocks. It is sent to the workers, and partial results are sent back.

    The result must not depend on how the blocks are shared out, nor on the order of the parts.
    """

    @property
    def name(self) -> str:
        """Name under which its time is counted."""

    def begin(self) -> Part:
        """Return the part before any block was seen."""

    def see(self, part: Part, block: Block) -> None:
        """Add a block to a part. The block is valid until the next call."""

    def merge(self, parts: Sequence[Part]) -> Part:
        """Merge several parts into one."""

    def finish(self, part: Part) -> Result:
        """Turn the merged part into the result, on the driver."""


@dataclass(frozen=True)
class Together:
    """Several passes in one read of the data; the result is the list of their results."""

    passes: Sequence[Pass[Any, Any]]
    name: str

    def begin(self) -> list[Any]:
        """Return the initial part of each pass."""
        return [one.begin() for one in self.passes]

    def see(self, part: list[Any], block: Block) -> None:
        """Show a block to each pass."""
        for one, its_part in zip(self.passes, part, strict=True):
            one.see(its_part, block)

    def merge(self, parts: Sequence[list[Any]]) -> list[Any]:
        """Merge the parts of each pass."""
        return [one.merge(its_parts) for one, its_parts in zip(self.passes, zip(*parts, strict=True), strict=True)]

    def finish(self, part: list[Any]) -> list[Any]:
        """Return the result of each pass."""
        return [one.finish(its_part) for one, its_part in zip(self.passes, part, strict=True)]


@dataclass
class PassCounts:
    """Work of the passes of a fit so far."""

    passes: int = 0
    tasks: int = 0
    blocks_used: int = 0
    blocks_read: int = 0
    bytes_read: int = 0
    rows_scanned: int = 0
    rows_skipped: int = 0


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
