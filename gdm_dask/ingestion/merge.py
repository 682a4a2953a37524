"""Second step of an ingest: cut the features into blocks; merge, compress, write and read back each block.

The rows of all runs give the number of nonzeros of each feature. From these follow the bounds of the blocks, and the
slices of each run that belong to each block. A block is assembled from the pieces read there, one group of runs at a
time.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gdm_dask.engine import Engine
from gdm_dask.errors import BadValue, DamagedStore
from gdm_dask.features.block import Block
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.values import dtype_of
from gdm_dask.ingestion import plan
from gdm_dask.ingestion.partition import Partition
from gdm_dask.ingestion.runs import Run, add_counts, append_runs, find_bounds
from gdm_dask.ingestion.sorting import sort_rows
from gdm_dask.ingestion.source import IngestOptions
from gdm_dask.ingestion.staging import Staging, finished_block, save_block
from gdm_dask.store.blocks import check_block, rows_increase, write_block
from gdm_dask.store.folder import Folder
from gdm_dask.store.layout import BlockEntry
from gdm_dask.store.reader import block_files
from gdm_dask.system.progress import report
from gdm_dask.system.scratch import PAGE, whole_pages, work_space

logger = logging.getLogger(__name__)

#: Threads that read the rows of runs, each into memory of its own: they mostly wait for the disk.
READERS = 4
#: Slices are read into arrays that this thread used for making runs: that memory is already allocated.
_SPACES = {"rows": "parsed features", "samples": "samples", "values": "parsed samples"}


@dataclass(frozen=True)
class Slices:
    """Position of a block in every run."""

    rows: np.ndarray  # start and end of its rows in each run, (n_runs, 2) int64
    nonzeros: np.ndarray  # start and end of its nonzeros
    before: np.ndarray  # last feature before the block, to which its first row is relative, (n_runs,) int64


@dataclass(frozen=True)
class BlockTask:
    """A block to make: its number, its features and, if sparse, their counts and slices of the runs."""

    number: int
    start: int
    stop: int
    nbytes: int
    counts: np.ndarray | None
    slices: Slices | None
    names: list[str] | None


@dataclass(frozen=True)
class Merge:
    """Arguments shared by all block tasks; they are sent with each task, so they are small."""

    parts: Partition  # without its target
    codec: str
    store: Folder
    entries: Path
    pieces_bytes: int  # of runs that a task holds at a time, unless a single piece takes more


def make_blocks(
    parts: Partition, staging: Staging, engine: Engine, options: IngestOptions, names: list[str] | None,
    memory_limit: int,
) -> tuple[list[BlockEntry], int]:  # fmt: skip
    """Make all blocks; return their entries in order, and the number of blocks reused from an earlier attempt."""
    tasks = _plan_blocks(parts, options.block_bytes, names, memory_limit)
    largest = max(task.nbytes + _largest_slice(task, parts) for task in tasks)
    at_once, pieces_bytes = plan.merge_plan(
        memory_limit, engine.n_workers, not engine.shares_memory, parts.n_features, largest, staging.store.bytes_behind
    )
    if at_once < engine.n_workers:
        logger.info("the memory limit allows %d blocks at a time", at_once)
    merge = Merge(
        replace(parts, target=None, packed_targets=None), options.codec, staging.store, staging.entries, pieces_bytes
    )
    with report("merge", sum(task.nbytes for task in tasks)) as progress:
        results = engine.map(
            partial(block_task, merge=merge), tasks, at_once=at_once, on_done=lambda result: progress(result[2]),
            name="ingest-merge",
        )  # fmt: skip
    kept = sum(kept for _, kept, _ in results)
    if kept:
        logger.info("%d finished blocks of an earlier attempt were kept", kept)
    return [entry for entry, _, _ in results], kept


def _largest_slice(task: BlockTask, parts: Partition) -> int:
    """Return the bytes of the largest piece of a block in any run."""
    if task.slices is None:
        return (task.stop - task.start) * max(run.n_samples for run in parts.runs) * dtype_of(parts.value_type).itemsize
    rows, nonzeros = (int(np.diff(bounds).max()) for bounds in (task.slices.rows, task.slices.nonzeros))
    return rows * 8 + nonzeros * 12


def _itemsize(value_type: str) -> int:
    return 0 if value_type == "one" else dtype_of(value_type).itemsize


def _plan_blocks(
    parts: Partition, block_bytes: int, names: list[str] | None, memory_limit: int
) -> list[BlockTask]:  # fmt: skip
    itemsize = _itemsize(parts.matrix_type)
    if parts.kind == "sparse":
        plan.check_feature_space(parts.n_features, memory_limit)
        counts = feature_counts(parts.runs, parts.n_features)
        bounds = plan.cut_blocks(counts[: parts.n_matrix], 4 + itemsize, block_bytes)
        bounds += [] if parts.n_matrix == parts.n_features else [parts.n_features]
        slices: list[Slices | None] = [*find_slices(parts.runs, bounds)]
    else:
        counts = None
        bounds = plan.cut_dense_blocks(parts.n_features, parts.n_samples * max(itemsize, 1), block_bytes)
        slices = [None] * (len(bounds) - 1)
    tasks = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        own = None if counts is None else counts[start:stop]
        size, itemsize = (stop - start) * plan.ROW_BYTES, _itemsize(parts.type_of(start))
        size += (stop - start) * parts.n_samples * max(itemsize, 1) if own is None else int(own.sum()) * (4 + itemsize)
        own_names = None if names is None else names[start:stop]
        tasks.append(BlockTask(number, start, stop, size, own, slices[number], own_names))
    return tasks


def block_task(task: BlockTask, merge: Merge) -> tuple[BlockEntry, bool, int]:
    """Make one block, or reuse it from an earlier attempt; return (manifest entry, whether reused, bytes)."""
    entry = finished_block(merge.entries, task.number)
    if entry is not None:
        try:
            with merge.store.ahead(block_files(task.number, entry)) as folder:
                check_block(folder, task.number, entry, merge.parts.n_samples)
            return entry, True, task.nbytes
        except DamagedStore as error:
            logger.warning("building block %d again: %s", task.number, error)
    if task.counts is not None and task.slices is not None:
        block = assemble_sparse(merge.parts, task.slices, task.start, task.counts, merge.pieces_bytes)
    else:
        block = assemble_dense(merge.parts, task.start, task.stop)
    with merge.store.behind() as folder:
        entry = write_block(folder, task.number, block, merge.codec, task.names)
    save_block(merge.entries, task.number, entry)
    return entry, False, task.nbytes


def assemble_sparse(parts: Partition, slices: Slices, start: int, counts: np.ndarray, most_bytes: int) -> Block:
    """Assemble the features from `start` on, with these `counts` of nonzeros, of all runs as a block.

    Pieces of runs are held up to `most_bytes` at a time, unless a single piece takes more. The indices and values of
    the block are work space of this thread, valid until the next call.
    """
    runs, decimals = parts.runs, parts.decimals
    indptr = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, dtype=np.uint32, out=indptr[1:])
    # Use work space left over from making the runs; the pieces are read into other work space.
    indices = work_space("keys 0", indptr[-1], np.uint32)
    value_type = parts.type_of(start)
    dtype = dtype_of(value_type) if decimals is None else np.dtype(np.int32)
    values = work_space("parsed values", 0 if value_type == "one" else indptr[-1], dtype)
    cursors = indptr[:-1].copy()
    first_samples = np.array(parts.first_samples, np.uint32)
    for group in groups(runs, slices, most_bytes):
        run = runs[group[0]]
        # Of each run: start and end of its rows, start of its samples and of its values, and the feature before.
        places = np.zeros((len(group), 5), np.uint64)
        rows, places[:, 0] = _read_piece(runs, group, "rows", slices.rows)
        places[:, 1] = places[:, 0] + 2 * np.diff(slices.rows[group])[:, 0].astype(np.uint64)
        samples, places[:, 2] = _read_piece(runs, group, "samples", slices.nonzeros)
        run_values = values[:0]
        if len(values) and "values" in run.arrays:
            run_values, places[:, 3] = _read_piece(runs, group, "values", slices.nonzeros)
        places[:, 4] = slices.before[group]
        power = None if decimals is not None or run.decimals is None else 10.0**run.decimals
        append_runs(
            rows, samples, run_values, places, power, np.uint32(start), first_samples[group], cursors, indices, values
        )
    is_loose = any(run.n_samples == 0 for run in runs)  # entries in any order
    if is_loose and not rows_increase(indptr, indices):
        twice = sort_rows(indptr, indices, values)
        if twice >= 0:
            raise BadValue(
                f"feature {start + twice} has two values for one sample: sum or remove duplicate entries first",
                start + twice,
            )
    stored = None if value_type == "one" else values
    means, norms = sparse_moments(indptr, stored, parts.n_samples, None if decimals is None else 10.0**decimals)
    check_moments(means, norms, start)
    return Block(start, start + len(counts), parts.n_samples, stored, means, norms, indptr, indices, decimals=decimals)


def assemble_dense(parts: Partition, start: int, stop: int) -> Block:
    """Assemble features `start` to `stop` of dense runs as a dense block."""
    values = np.empty((stop - start, parts.n_samples), dtype_of(parts.value_type))
    for run, first in zip(parts.runs, parts.first_samples, strict=True):
        values[:, first : first + run.n_samples] = run.read("values", start, stop)
    means, norms = dense_moments(values)
    check_moments(means, norms, start)
    nonzeros = np.array([np.count_nonzero(row) for row in values], np.uint32)
    return Block(start, stop, parts.n_samples, values, means, norms, nonzeros=nonzeros)


def check_moments(means: np.ndarray, norms: np.ndarray, start: int) -> None:
    """Refuse a feature whose values are so large that its mean or norm overflows float64."""
    wrong = np.flatnonzero(~(np.isfinite(means) & np.isfinite(norms)))
    if len(wrong):
        feature = start + int(wrong[0])
        raise BadValue(f"feature {feature} has values so large that its norm is infinite: scale them first", feature)


def feature_counts(runs: list[Run], n_features: int) -> np.ndarray:
    """Count the nonzeros of each feature over all sparse runs, uint32 (a feature has fewer than 2**32 samples)."""
    counts = np.zeros(n_features, np.uint32)
    lock = threading.Lock()

    def add(run: Run) -> None:
        rows = _read_rows(run)
        with lock:
            add_counts(rows, counts)

    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(add, runs))
    return counts


def find_slices(runs: list[Run], bounds: list[int]) -> list[Slices]:
    """Find the position of the blocks with these bounds in the runs."""

    def find(run: Run) -> np.ndarray:
        found = np.empty((len(bounds), 3), np.int64)
        find_bounds(_read_rows(run), np.array(bounds, np.uint64), found)
        return found

    with ThreadPoolExecutor(READERS) as readers:
        rows, nonzeros, before = np.moveaxis(np.array(list(readers.map(find, runs))), 2, 0)
    return [
        Slices(rows[:, k : k + 2].copy(), nonzeros[:, k : k + 2].copy(), before[:, k].copy())
        for k in range(len(bounds) - 1)
    ]


def _read_rows(run: Run) -> np.ndarray:
    """Read the rows of a run into work space of this thread."""
    return run.read("rows", room=lambda nbytes: work_space("run rows", nbytes, np.uint8))


def groups(runs: list[Run], slices: Slices, most_bytes: int) -> Iterator[list[int]]:
    """Yield the numbers of the runs that contain part of a block, in groups of equal types that fit `most_bytes`."""
    group: list[int] = []
    size, types = 0, None
    lengths = np.hstack([np.diff(slices.rows), np.diff(slices.nonzeros)])
    for number in np.flatnonzero(lengths[:, 0]).tolist():
        run, (rows, nonzeros) = runs[number], lengths[number].tolist()
        counts = {"rows": 2 * rows, "samples": nonzeros, "values": nonzeros}
        own = {name: np.dtype(run.arrays[name].dtype) for name in counts if name in run.arrays}
        more = sum(counts[name] * own[name].itemsize + 2 * PAGE for name in own)  # partial pages at both ends
        if group and (size + more > most_bytes or types != (run.decimals, own)):
            yield group
            group, size = [], 0
        group.append(number)
        size, types = size + more, (run.decimals, own)
    if group:
        yield group


def _read_piece(runs: list[Run], group: list[int], name: str, bounds: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Read a piece of an array from each run, one after the other at page boundaries; return the start of each."""
    dtype = np.dtype(runs[group[0]].arrays[name].dtype)
    row_bytes = dtype.itemsize * (2 if name == "rows" else 1)
    sizes = [whole_pages(int(stop - start) * row_bytes) + PAGE for start, stop in bounds[group]]
    room = work_space(_SPACES[name], sum(sizes), np.uint8)
    begins = []
    for number, begin in zip(group, itertools.accumulate(sizes, initial=0), strict=False):
        start, stop = bounds[number].tolist()
        runs[number].read(name, start, stop, lambda nbytes, begin=begin: room[begin : begin + nbytes])  # type: ignore[misc]
        begins.append((begin + start * row_bytes % PAGE) // dtype.itemsize)
    return room.view(dtype), begins
