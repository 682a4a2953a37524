"""Second step of an ingest: cut the features into blocks; merge, compress, write and read back each of them."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gdm_dask.engine import LOCAL_SCHEDULERS, Engine
from gdm_dask.errors import DamagedStore
from gdm_dask.ingestion import plan
from gdm_dask.ingestion.assemble import assemble_dense, assemble_sparse
from gdm_dask.ingestion.options import IngestOptions
from gdm_dask.ingestion.partition import Partition
from gdm_dask.ingestion.runs import Run
from gdm_dask.ingestion.slices import Slices, feature_counts, find_slices
from gdm_dask.ingestion.workspace import Workspace, finished_block, save_block
from gdm_dask.progress import report
from gdm_dask.store import layout
from gdm_dask.store.folder import Folder
from gdm_dask.values import dtype_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlockTask:
    """A block to be made: its number, its features, and for a sparse one their counts and places in the runs."""

    number: int
    start: int
    stop: int
    nbytes: int
    counts: np.ndarray | None
    slices: Slices | None
    names: list[str] | None


@dataclass(frozen=True)
class MergeCommon:
    """What all block tasks need, and no more: it travels with each of them."""

    runs: list[Run]
    first_samples: list[int]
    n_samples: int
    value_type: str
    codec: str
    store: Folder
    entries: Path
    pieces_bytes: int
    places: int | None


def make_blocks(
    parts: Partition, workspace: Workspace, engine: Engine, options: IngestOptions, names: list[str] | None,
    memory_limit: int,
) -> tuple[list[layout.BlockEntry], int]:  # fmt: skip
    """All blocks, in order, and how many of them an earlier attempt had made."""
    tasks = _plan_blocks(parts, options.block_bytes, names, memory_limit)
    largest = max(task.nbytes + _largest_slice(task, parts) for task in tasks)
    at_once = plan.merge_workers(
        memory_limit, engine.n_workers, not engine.shares_memory, parts.n_features, largest
    )  # fmt: skip
    common = MergeCommon(
        parts.runs, parts.first_samples, parts.n_samples, parts.value_type, options.codec, workspace.store,
        workspace.entries,
        plan.pieces_bytes(memory_limit, at_once, not engine.shares_memory, parts.n_features, largest),
        parts.runs[0].decimal_places if len({run.decimal_places for run in parts.runs}) == 1 else None,
    )  # fmt: skip
    task = partial(block_task, common=common)
    with report("merge", sum(task.nbytes for task in tasks)) as progress:

        def on_done(result: tuple[layout.BlockEntry, bool, int]) -> None:
            progress(result[2])

        if at_once < engine.n_workers and engine.name in LOCAL_SCHEDULERS:
            logger.info("the memory limit allows for %d blocks at a time", at_once)
            with Engine(engine.name, at_once) as fewer:
                results = fewer.map(task, tasks, on_done=on_done)
        else:
            if at_once < engine.n_workers:
                logger.warning("%d blocks at a time need more than the memory limit", engine.n_workers)
            results = engine.map(task, tasks, on_done=on_done)
    kept = sum(kept for _, kept, _ in results)
    if kept:
        logger.info("%d finished blocks of an earlier attempt were kept", kept)
    return [entry for entry, _, _ in results], kept


def _largest_slice(task: BlockTask, parts: Partition) -> int:
    """Bytes of the largest piece that a run holds of a block."""
    if task.slices is None:
        return (task.stop - task.start) * max(run.n_samples for run in parts.runs) * dtype_of(parts.value_type).itemsize
    rows, nonzeros = (int(np.diff(bounds).max()) for bounds in (task.slices.rows, task.slices.nonzeros))
    return rows * 8 + nonzeros * 12


def _plan_blocks(
    parts: Partition, block_bytes: int, names: list[str] | None, memory_limit: int
) -> list[BlockTask]:  # fmt: skip
    itemsize = 0 if parts.value_type == "one" else dtype_of(parts.value_type).itemsize
    if parts.kind == "sparse":
        plan.check_feature_space(parts.n_features, memory_limit)
        counts = feature_counts(parts.runs, parts.n_features)
        bounds = plan.cut_blocks(counts, 4 + itemsize, block_bytes)
        slices: list[Slices | None] = [*find_slices(parts.runs, bounds)]
    else:
        counts = None
        bounds = plan.cut_dense_blocks(parts.n_features, parts.n_samples * max(itemsize, 1), block_bytes)
        slices = [None] * (len(bounds) - 1)
    tasks = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        own = None if counts is None else counts[start:stop]
        size = (stop - start) * plan.ROW_BYTES
        size += (stop - start) * parts.n_samples * max(itemsize, 1) if own is None else int(own.sum()) * (4 + itemsize)
        own_names = None if names is None else names[start:stop]
        tasks.append(BlockTask(number, start, stop, size, own, slices[number], own_names))
    return tasks


def block_task(task: BlockTask, common: MergeCommon) -> tuple[layout.BlockEntry, bool, int]:
    """Make one block, or keep it where an earlier attempt has; returns (manifest entry, whether kept, bytes)."""
    entry = finished_block(common.entries, task.number)
    if entry is not None:
        try:
            layout.check_block(common.store, task.number, entry, common.n_samples)
            return entry, True, task.nbytes
        except DamagedStore as error:
            logger.warning("making block %d anew: %s", task.number, error)
    if task.counts is not None and task.slices is not None:
        block = assemble_sparse(
            common.runs, task.slices, common.first_samples, common.n_samples, task.start, task.counts,
            common.value_type, common.pieces_bytes, common.places,
        )  # fmt: skip
    else:
        block = assemble_dense(common.runs, common.n_samples, task.start, task.stop, common.value_type)
    entry = layout.write_block(common.store, task.number, block, common.codec, task.names)
    save_block(common.entries, task.number, entry)
    return entry, False, task.nbytes
