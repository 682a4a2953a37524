"""Passes over the blocks of a store: what runs on the workers, and the driver's side of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.engine import Engine
from gdm_dask.groups import Pairs, Supports, find_pairs, merge_pairs, prepare
from gdm_dask.leaders import Leaders, Wanted
from gdm_dask.ranking import Ranking, merge, top_of_block
from gdm_dask.scores import scores
from gdm_dask.store.block import Block, stack
from gdm_dask.work_space import work_space

#: Tasks for each worker and pass: enough to balance, few enough that scheduling is noise.
TASKS_PER_WORKER = 4


@dataclass(frozen=True)
class Reads:
    """What reading the blocks of a task took."""

    n_blocks: int
    n_bytes: int


@dataclass
class PassCounts:
    """What the passes of a fit took so far."""

    passes: int = 0
    tasks: int = 0
    blocks_used: int = 0
    blocks_read: int = 0
    bytes_read: int = 0
    rows_scanned: int = 0
    rows_skipped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ranked:
    """What a score task found: a ranking for every vector, and leaders with their rows."""

    rankings: list[Ranking]
    leaders: tuple[np.ndarray, Block | None]


def score_task(
    numbers: list[int], handle: Any, vectors: np.ndarray, wanted: Wanted, k: int
) -> tuple[Ranked, Reads]:  # fmt: skip
    """Top `k` of some blocks for every vector; and the leaders' rows, of blocks that had to be read."""
    found: list[list[Ranking]] = [[] for _ in vectors]
    leaders = Leaders(wanted)
    n_read = n_bytes = 0
    for block, read in handle.blocks(numbers):
        n_read, n_bytes = n_read + (read > 0), n_bytes + read
        room = work_space("scores", len(vectors) * block.n_rows, np.float64).reshape(len(vectors), block.n_rows)
        for rankings, row_scores in zip(found, scores(block, vectors, room), strict=True):
            rankings.append(top_of_block(block.start, row_scores, k))
            if read and wanted.n_rows:
                leaders.see(block, rankings[-1])
    return Ranked([merge(rankings, k) for rankings in found], leaders.found()), Reads(n_read, n_bytes)


def group_task(numbers: list[int], handle: Any, supports: Supports) -> tuple[Pairs, Reads]:
    """Features of some blocks that correlate with a support."""
    parts = []
    n_read = n_bytes = 0
    for block, read in handle.blocks(numbers):
        n_read, n_bytes = n_read + (read > 0), n_bytes + read
        parts.append(find_pairs(block, supports))
    return merge_pairs(parts), Reads(n_read, n_bytes)


def batches(sizes: list[int], n_batches: int) -> list[list[int]]:
    """Consecutive blocks in batches of about equal bytes.

    Examples
    --------
    >>> batches([4, 4, 1, 1, 1, 1], 3)
    [[0], [1], [2, 3, 4, 5]]
    """
    ends = np.cumsum(sizes)
    owner = np.minimum((ends - np.array(sizes) / 2) * n_batches // max(int(ends[-1]), 1), n_batches - 1)
    return [np.flatnonzero(owner == batch).tolist() for batch in np.unique(owner)]


def tasks_of(sizes: list[int], engine: Engine) -> list[list[int]]:
    """The blocks of each task of a pass."""
    return batches(sizes, min(len(sizes), engine.n_workers * TASKS_PER_WORKER))


def row_task(features: np.ndarray, handle: Any) -> Block:
    """Raw rows of some features, in this order."""
    return handle.rows(features)


class Passes:
    """The driver's view of the data: rank, fetch rows, find groups.

    Parameters
    ----------
    handle : StoreHandle or MemoryStore
        Gives blocks to tasks: ``blocks(numbers)`` and ``rows(features)``.
    sizes : list of int
        Decoded bytes of each block.
    engine : Engine
    """

    def __init__(self, handle: Any, sizes: list[int], engine: Engine) -> None:
        self.handle = handle
        self._engine = engine
        self._tasks = tasks_of(sizes, engine)
        self._last_read = 0  # bytes of the last pass
        self._leaders: list[tuple[np.ndarray, Block]] = []  # features and rows that came with the last ranking
        self.counts = PassCounts()

    def top(self, vectors: np.ndarray, k: int, spoken: np.ndarray | None = None) -> list[Ranking]:
        """One score pass: the global top `k` for every vector ``a = alpha * y``, (p, n_samples).

        Where rows of the best will be asked for next, but not those of the features `spoken`, they come with it.
        """
        n_tasks = len(self._tasks)
        wanted = Wanted(np.zeros(0, np.int64), 0, 0) if spoken is None else Wanted.of_pass(spoken, n_tasks)
        results = self._run("scores", partial(score_task, k=k), np.ascontiguousarray(vectors, float), wanted)
        self._leaders = [ranked.leaders for ranked, _ in results if ranked.leaders[1] is not None]
        return [merge([ranked.rankings[v] for ranked, _ in results], k) for v in range(len(vectors))]

    def groups(self, rows: Block, limit: float) -> Pairs:
        """One pass for the groups of all supports, given as raw rows."""
        results = self._run("groups", group_task, prepare(rows, limit))
        pairs = merge_pairs([part for part, _ in results])
        self.counts.rows_scanned += pairs.n_scanned
        self.counts.rows_skipped += pairs.n_skipped
        return pairs

    def rows(self, features: np.ndarray) -> Block:
        """Raw rows of some features: those of leaders are here, the others are read."""
        began = time.perf_counter()
        missing = np.ones(len(features), bool)
        parts, order = [], []
        for leading, led in self._leaders:
            _, positions, places = np.intersect1d(features, leading, return_indices=True)
            if len(positions):
                parts.append(led.rows(places))
                order.append(positions)
                missing[positions] = False
        if not parts:
            rows = self._read_rows(features)
        else:
            if missing.any():
                parts.append(self._read_rows(features[missing]))
                order.append(np.flatnonzero(missing))
            rows = stack(parts).rows(np.argsort(np.concatenate(order)))
        self._clock("rows", began)
        return rows

    def _read_rows(self, features: np.ndarray) -> Block:
        """Raw rows of some features, from the workers that hold their blocks, or in parallel where none does."""
        if (self._engine.shares_memory and self._last_read == 0) or not len(features):
            return self.handle.rows(features)
        starts = self.handle.block_starts[[numbers[0] for numbers in self._tasks]]
        owner = np.searchsorted(starts, features, side="right") - 1
        places = np.unique(owner)
        wanted = [np.flatnonzero(owner == place) for place in places]
        parts = self._engine.map(
            row_task, [features[positions] for positions in wanted], self.handle, places=places.tolist()
        )
        return stack(parts).rows(np.argsort(np.concatenate(wanted)))

    def _run(self, name: str, task: Callable[..., Any], *common: Any) -> list[Any]:
        began = time.perf_counter()
        self.handle.begin_pass()
        results = self._engine.map(task, self._tasks, self.handle, *common, places=range(len(self._tasks)))
        counts = self.counts
        counts.passes += 1
        counts.tasks += len(results)
        counts.blocks_used += sum(len(numbers) for numbers in self._tasks)
        counts.blocks_read += sum(reads.n_blocks for _, reads in results)
        self._last_read = sum(reads.n_bytes for _, reads in results)
        counts.bytes_read += self._last_read
        self._clock(name, began)
        return results

    def _clock(self, name: str, began: float) -> None:
        self.counts.seconds[name] = self.counts.seconds.get(name, 0.0) + time.perf_counter() - began
