"""The data of a fit: features in blocks, which tasks read and hand to passes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

import dask
import numpy as np

from gdm_dask.engine import Engine, Worker
from gdm_dask.features.block import Block, stack
from gdm_dask.features.passes import Part, Pass, PassCounts, share_out
from gdm_dask.store.memory import MemoryStore
from gdm_dask.store.reader import StoredBlocks, StoreReader
from gdm_dask.system import interrupts
from gdm_dask.system.resources import parse_bytes

Result = TypeVar("Result")
#: Gives tasks their blocks; it is sent to them.
Reader: TypeAlias = MemoryStore | StoreReader


class Plan(Protocol):
    """Decides how many problems share a read, and which workers take part."""

    @property
    def n_problems(self) -> int:
        """Problems that may share a read."""

    def choose(self, workers: list[Worker], known: Sequence[Worker] = ()) -> tuple[list[Worker], dict[Worker, str]]:
        """Return the workers to use, preferably those `known` before, and why each of the others gets no tasks."""


class Data:
    """Features in blocks: `run` a pass over all of them, or fetch some `rows`.

    Parameters
    ----------
    engine : Engine
    shape : tuple
        Number of features and samples.
    starts : ndarray of shape (blocks + 1,)
        First feature of each block, and the number of features.
    reader : Reader
        Gives tasks their blocks.
    sizes : list of int
        Decoded bytes of each block.
    plan : Plan, optional
        Not needed for a matrix in memory.

    Attributes
    ----------
    counts : PassCounts
    n_problems : int
        Problems that may share a read.
    """

    def __init__(
        self,
        engine: Engine,
        shape: tuple[int, int],
        starts: np.ndarray,
        reader: Reader,
        sizes: list[int],
        plan: Plan | None = None,
    ) -> None:
        self.shape = shape
        self.counts = PassCounts()
        self.n_problems = sys.maxsize if plan is None else plan.n_problems
        self._engine = engine
        self._starts = starts
        self._reader = reader
        self._sizes = sizes
        self._plan = plan
        self._workers: list[Worker] = []
        self._shared: list[range] = []

    @classmethod
    def in_memory(cls, memory: MemoryStore, engine: Engine) -> Data:
        """Wrap a matrix in memory: nothing is read."""
        return cls(engine, memory.shape, memory.block_starts, memory, memory.sizes)

    @classmethod
    @contextmanager
    def stored(cls, store: StoredBlocks, engine: Engine, plan: Plan) -> Iterator[Data]:
        """Open a store."""
        folder, limit, attempts = (
            dask.config.get(f"gdm_dask.{name}") for name in ("scratch", "scratch-limit", "read-attempts")
        )
        with store.reader(int(attempts), folder, parse_bytes(limit) if limit else 0) as reader:
            sizes = [entry.nbytes for entry in store.manifest.blocks]
            yield cls(engine, store.shape, store.block_starts, reader, sizes, plan)

    def run(self, pass_: Pass[Part, Result]) -> Result:
        """Run a pass over all blocks."""
        parts = self._parts()
        part = self._engine.reduce(look, merge_parts, parts, self._reader, pass_, name=pass_.name)
        self.counts.passes += 1
        self.counts.tasks += len(parts)
        self.counts.blocks_used += len(self._sizes)
        if self._plan is not None:  # a matrix in memory is not read
            self.counts.blocks_read += len(self._sizes)
            self.counts.bytes_read += sum(self._sizes)
        return pass_.finish(part)

    def rows(self, features: np.ndarray) -> Block:
        """Return the raw rows of features, in the given order."""
        first = self._starts[[numbers[0] for numbers in self._parts()]]
        owner = np.searchsorted(first, features, side="right")
        places = [np.flatnonzero(owner == number) for number in np.unique(owner)] or [np.arange(0)]
        found = self._engine.map(take_rows, [features[some] for some in places], self._reader, name="rows")
        return stack(found).rows(np.argsort(np.concatenate(places)))

    @property
    def is_read(self) -> bool:
        """Whether a pass reads from a store; False for a matrix in memory."""
        return self._plan is not None

    @property
    def n_parts(self) -> int:
        """Number of tasks of a pass."""
        return len(self._parts())

    def _parts(self) -> Sequence[Sequence[int]]:
        """Return the block numbers of each task, shared out anew when workers have come or gone."""
        workers = self._engine.workers()
        if workers != self._workers:
            if self._plan is not None:
                workers, others = self._plan.choose(workers, self._workers)
                for worker, why in others.items():
                    self._engine.leave_out(worker, why)
            self._workers, self._shared = workers, share_out(self._sizes, sum(worker.threads for worker in workers))
        return self._shared


def look(numbers: Sequence[int], reader: Reader, pass_: Pass[Part, Any]) -> Part:
    """Run a pass over some blocks, as a task."""
    part = pass_.begin()
    for block in reader.blocks(numbers):
        interrupts.check()
        pass_.see(part, block)
    return pass_.merge([part])


def merge_parts(parts: Sequence[Part], reader: Reader, pass_: Pass[Part, Any]) -> Part:
    """Merge several parts into one, as a task."""
    return pass_.merge(parts)


def take_rows(features: np.ndarray, reader: Reader) -> Block:
    """Return the raw rows of features, as a task."""
    return reader.rows(features)
