"""Ingest: any source of samples becomes a feature store, out of core, safely.

Three steps, each of which can be killed and run again:

1. *partition*: every job reads its part of the source and leaves runs, sorted by feature, on scratch disk;
2. *merge*: the nonzeros of every feature are known now, blocks are cut, and each is merged from its slice of every
   run, compressed, written, read back and compared;
3. *publish*: labels and manifest are written and the store takes its name.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import shutil
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.engine import Engine
from gdm_dask.errors import BadInput, GdmError
from gdm_dask.ingestion import plan as planning
from gdm_dask.ingestion.labels import encode, find_classes
from gdm_dask.ingestion.merge import feature_counts, merge_dense, merge_sparse
from gdm_dask.ingestion.runs import Run, read_run, write_run
from gdm_dask.ingestion.source import Job, Source, TextOptions, make_source
from gdm_dask.ingestion.workspace import Workspace, save_block
from gdm_dask.progress import report
from gdm_dask.resources import default_memory_limit, format_bytes, parse_bytes
from gdm_dask.store import layout
from gdm_dask.store.arrays import write_array
from gdm_dask.store.block import Block
from gdm_dask.store.chunks import check_codec
from gdm_dask.store.feature_store import FeatureStore, open_store
from gdm_dask.store.folder import Folder
from gdm_dask.values import dtype_of, widest

logger = logging.getLogger(__name__)

MAX_COUNT = 2**32 - 1


@dataclass
class IngestReport:
    """What an ingest did: the store, and how much of an earlier attempt it could keep."""

    store: FeatureStore
    runs_written: int = 0
    runs_kept: int = 0
    blocks_written: int = 0
    blocks_kept: int = 0
    skipped_lines: int = 0
    unseen_nonzeros: int = 0


@dataclass
class _Partition:
    """Outcome of the first step."""

    runs: list[Run]
    source: Source
    n_samples: int
    n_features: int
    value_type: str
    labels: np.ndarray
    classes: list
    first_samples: list[int] = field(default_factory=list)


def ingest(source: Any, path: str | os.PathLike[str], y: Any = None, **options: Any) -> FeatureStore:
    """Turn samples into a feature store.

    Parameters
    ----------
    source : path, list of paths, or matrix
        svmlight/libsvm text (plain, .gz, .bz2, .xz; several files are one set), a scipy ``.npz``, a Matrix Market
        ``.mtx``, a dense ``.npy`` or Zarr array; or a NumPy or scipy matrix, a Dask array, a DataFrame. Objects and
        matrix files are samples x features.
    path : path or URL
        Where the store goes.
    y : array or path, optional
        Labels, where the source does not carry them.
    **options
        See `run_ingest`.

    Returns
    -------
    FeatureStore

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = ingest(np.eye(3), folder.name + "/eye.zarr", y=["no", "yes", "no"])
    >>> store.shape, store.nnz, store.classes, store.labels.tolist()
    ((3, 3), 3, ['no', 'yes'], [-1, 1, -1])
    """
    return run_ingest(source, path, y, **options).store


def run_ingest(
    source: Any,
    path: str | os.PathLike[str],
    y: Any = None,
    *,
    n_features: int | None = None,
    like: FeatureStore | str | os.PathLike[str] | None = None,
    index_base: int = 1,
    on_error: str = "raise",
    dtype: str = "auto",
    codec: str = "lz4",
    feature_names: list[str] | None = None,
    block_bytes: int | str = layout.BLOCK_BYTES,
    memory_limit: int | str | None = None,
    scheduler: Any = "threads",
    n_workers: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> IngestReport:
    """`ingest`, with a report of what was done.

    Parameters
    ----------
    source, path, y
        As in `ingest`.
    n_features : int, optional
        Size of the feature space; nonzeros of features beyond it are left out and counted.
    like : store or path, optional
        Take the feature space, feature names and classes of this store: for test sets.
    index_base : {1, 0}
        Whether the features of svmlight text are counted from 1 or from 0.
    on_error : {"raise", "skip"}
        Whether a malformed line of text ends the ingest, or is left out and counted.
    dtype : {"auto", "float32", "float64"}
        Type of stored values; "auto" is the narrowest that holds all of them exactly.
    codec : {"lz4", "zstd", "none"}
        Compression of chunks.
    feature_names : list of str, optional
        One for each feature.
    block_bytes : int or str
        Decoded size of a block, such as ``"64MB"``.
    memory_limit : int or str, optional
        Peak memory of all processes; a quarter of the machine's by default.
    scheduler : str or Client
        See `gdm_dask.engine.Engine`. Workers on other machines need to see the source, the scratch folder and the store.
    n_workers : int, optional
        Parallel tasks; one per core by default.
    scratch : path, optional
        Folder for scratch files; beside the store by default.
    overwrite : bool
        Replace a store that is there.
    storage_options : dict, optional
        Passed to fsspec for a store on a URL.
    """
    _check_options(index_base, on_error, dtype, n_features)
    check_codec(codec)
    if isinstance(like, (str, os.PathLike)):
        like = open_store(like, storage_options)
    if like is not None:
        n_features = like.shape[0]
    given = make_source(source, y, TextOptions(index_base, on_error, n_features))
    given.feature_names = _names(feature_names, given, like)
    limit = default_memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    target = Folder(path, storage_options)
    workspace = Workspace(target, scratch)
    with Engine(scheduler, n_workers) as engine:
        plan = {
            "source": given.description,
            "identity": given.identity,
            "options": [n_features, index_base, on_error, dtype, codec, parse_bytes(block_bytes)],
            "like": like.fingerprint if like is not None else None,
            "format_version": layout.FORMAT_VERSION,
            "run_bytes": planning.run_bytes(limit, engine.n_workers, not engine.shares_memory),
        }
        plan = workspace.begin(plan, overwrite)
        with workspace.lock:
            try:
                return _run(given, workspace, engine, plan, like, dtype, codec, limit)
            except BadInput:
                workspace.clear()  # the same input will fail again: nothing is worth keeping
                raise
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise GdmError(
                    f"{workspace.path}: the disk is full. Free some space, or choose another place with --scratch, "
                    "and run the same command again: it goes on where it stopped."
                ) from error


def _check_options(index_base: int, on_error: str, dtype: str, n_features: int | None) -> None:
    if index_base not in (0, 1):
        raise BadInput(f"index_base is 0 or 1, not {index_base!r}")
    if on_error not in ("raise", "skip"):
        raise BadInput(f"on_error is 'raise' or 'skip', not {on_error!r}")
    if dtype not in ("auto", "float32", "float64"):
        raise BadInput(f"dtype is auto, float32 or float64, not {dtype!r}")
    if n_features is not None and not 1 <= n_features <= MAX_COUNT:
        raise BadInput(f"n_features is a number from 1 to {MAX_COUNT}, not {n_features!r}")


def _names(names: list[str] | None, source: Source, like: FeatureStore | None) -> list[str] | None:
    if names is not None:
        return [str(name) for name in names]
    if source.feature_names is not None:
        return source.feature_names
    return like.feature_names if like is not None else None


def _run(
    source: Source, workspace: Workspace, engine: Engine, plan: dict, like: FeatureStore | None, dtype: str,
    codec: str, memory_limit: int,
) -> IngestReport:  # fmt: skip
    value_type = None if dtype == "auto" else dtype
    _announce_scratch(source, workspace)
    runs, kept = _partition(source, workspace, engine, plan["run_bytes"], value_type)
    parts = _summarise(runs, source, like)
    entries, blocks_kept = _merge(parts, workspace, engine, codec, plan["options"][-1], memory_limit)
    store = _publish(parts, entries, workspace, codec, plan)
    done = IngestReport(
        store, len(runs) - kept, kept, len(entries) - blocks_kept, blocks_kept,
        sum(run.skipped for run in runs), sum(run.unseen for run in runs),
    )  # fmt: skip
    if done.skipped_lines:
        logger.warning("%d malformed lines were skipped", done.skipped_lines)
    if done.unseen_nonzeros:
        logger.warning("%d nonzeros of features beyond %d were left out", done.unseen_nonzeros, parts.n_features)
    return done


def _announce_scratch(source: Source, workspace: Workspace) -> None:
    factor = 4 if source.description["format"] != "ndarray" and _is_packed(source) else 1
    needed = factor * source.nbytes
    free = shutil.disk_usage(workspace.path).free
    logger.info(
        "scratch files: about %s in %s (%s free), removed at the end",
        format_bytes(needed), workspace.path, format_bytes(free),
    )  # fmt: skip
    if needed > free:
        logger.warning("the scratch files may not fit: choose a larger disk with --scratch")


def _is_packed(source: Source) -> bool:
    return any(str(name).endswith((".gz", ".bz2", ".xz", ".npz")) for name in source.description.get("files", []))


def _partition(
    source: Source, workspace: Workspace, engine: Engine, run_bytes: int, value_type: str | None
) -> tuple[list[Run], int]:
    """First step: all runs, in order, and how many of them were there already."""
    jobs = list(enumerate(source.jobs(run_bytes)))
    kept = len(workspace.finished_runs())
    if kept:
        logger.info("going on with %d finished runs of an earlier attempt", kept)
    task = partial(partition_job, folder=workspace.runs, value_type=value_type)
    with report("partition", source.nbytes) as progress:

        def on_done(result: tuple[int, list[Run]]) -> None:
            progress(result[0])

        if source.in_memory and not engine.shares_memory:
            with Engine("threads") as local:
                results = local.map(task, jobs, on_done=on_done)
        else:
            results = engine.map(task, jobs, on_done=on_done)
    return [run for _, runs in results for run in runs], kept


def partition_job(numbered: tuple[int, Job], folder: Path, value_type: str | None) -> tuple[int, list[Run]]:
    """Read one job and leave its runs; those that are there already are not made again."""
    number, job = numbered
    runs = []
    for sequence, load in enumerate(job.slabs()):
        path = folder / f"{number:06d}-{sequence:06d}"
        run = read_run(path)
        runs.append(run if run is not None else write_run(path, load(), value_type))
    return job.nbytes, runs


def _summarise(runs: list[Run], source: Source, like: FeatureStore | None) -> _Partition:
    """What the runs add up to; the checks that need all of them."""
    where = ", ".join(map(str, source.description.get("files", ["the input"])))
    counted = sum(run.n_samples for run in runs)
    n_samples = source.n_samples if source.n_samples is not None else counted
    n_features = source.n_features or max((run.n_features for run in runs), default=0)
    if n_samples == 0:
        raise BadInput(f"{where}: there are no samples in it")
    if n_features == 0:
        raise BadInput(f"{where}: there are no features in it")
    if n_samples > MAX_COUNT:
        raise BadInput(f"{where}: {n_samples} samples are more than a store can hold ({MAX_COUNT})")
    if source.feature_names is not None and len(source.feature_names) != n_features:
        raise BadInput(f"{where}: {len(source.feature_names)} feature names for {n_features} features")
    labels = source.labels
    if labels is None:
        labels = np.concatenate([run.load("labels") for run in runs])
    classes = like.classes if like is not None else find_classes(labels, where)
    first_samples = np.concatenate([[0], np.cumsum([run.n_samples for run in runs])])[: len(runs)]
    return _Partition(
        runs, source, n_samples, n_features, widest([run.value_type for run in runs]),
        encode(labels, classes, where), classes, [int(first) for first in first_samples],
    )  # fmt: skip


def _merge(
    parts: _Partition, workspace: Workspace, engine: Engine, codec: str, block_bytes: int, memory_limit: int
) -> tuple[list[layout.BlockEntry], int]:
    """Second step: all blocks, in order, and how many of them were there already."""
    itemsize = 0 if parts.value_type == "one" else dtype_of(parts.value_type).itemsize
    counts = None
    if parts.source.kind == "sparse":
        counts = feature_counts(parts.runs, parts.n_features)
        bounds = planning.cut_blocks(counts, 4 + itemsize, block_bytes)
        largest = int(counts.max()) * (4 + itemsize)
    else:
        bounds = planning.cut_dense_blocks(parts.n_features, parts.n_samples * max(itemsize, 1), block_bytes)
        largest = parts.n_samples * max(itemsize, 1)
    planning.check_largest_row(largest, memory_limit, engine.n_workers)
    finished = workspace.finished_blocks()
    names = parts.source.feature_names
    tasks = [
        MergeTask(
            number, start, stop, None if counts is None else counts[start:stop],
            None if names is None else names[start:stop],
        )
        for number, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True))
        if number not in finished
    ]  # fmt: skip
    common = MergeCommon(
        parts.runs, parts.first_samples, parts.n_samples, parts.value_type, codec, workspace.store, workspace.entries
    )
    total = sum(task.stop - task.start if counts is None else int(task.counts.sum()) for task in tasks)  # type: ignore[union-attr]
    unit = parts.n_samples * max(itemsize, 1) if counts is None else 4 + itemsize
    with report("merge", total * unit) as progress:
        done = engine.map(partial(merge_task, common=common), tasks, on_done=lambda result: progress(result[2]))
    entries = finished | {number: entry for number, entry, _ in done}
    return [entries[number] for number in sorted(entries)], len(finished)


@dataclass(frozen=True)
class MergeTask:
    """A block to be made."""

    number: int
    start: int
    stop: int
    counts: np.ndarray | None
    names: list[str] | None


@dataclass(frozen=True)
class MergeCommon:
    """What all merge tasks need."""

    runs: list[Run]
    first_samples: list[int]
    n_samples: int
    value_type: str
    codec: str
    store: Folder
    entries: Path


def merge_task(task: MergeTask, common: MergeCommon) -> tuple[int, layout.BlockEntry, int]:
    """Make one block: merge, write, read back, compare, and record that it is done."""
    if task.counts is not None:
        block = merge_sparse(
            common.runs, common.first_samples, common.n_samples, task.start, task.counts, common.value_type
        )
    else:
        block = merge_dense(common.runs, common.n_samples, task.start, task.stop, common.value_type)
    folder = common.store
    entry = layout.write_block(folder, task.number, block, common.codec, task.names)
    _compare(layout.read_block(folder, task.number, entry, common.n_samples), block, task.number)
    save_block(common.entries, task.number, entry)
    return task.number, entry, block.nbytes


def _compare(written: Block, block: Block, number: int) -> None:
    for name in ("values", "means", "norms", "indptr", "indices"):
        there, here = getattr(written, name), getattr(block, name)
        if (there is None) != (here is None) or (here is not None and not np.array_equal(there, here)):
            raise GdmError(f"block {number}: {name} read back differ from what was written; check the disk")


def _publish(
    parts: _Partition, entries: list[layout.BlockEntry], workspace: Workspace, codec: str, plan: dict
) -> FeatureStore:
    """Third step: labels, ids and manifest, and the store takes its name."""
    nnz = sum(entry.nnz for entry in entries)
    if nnz != sum(run.nnz for run in parts.runs) or entries[-1].stop != parts.n_features:
        raise GdmError("the blocks do not hold all that was read; run the same command with --overwrite")
    folder = workspace.store
    arrays = {"labels": write_array(folder, "labels", parts.labels, codec)}
    if parts.source.sample_ids is not None:
        for key, array in layout.pack_text(parts.source.sample_ids).items():
            arrays[f"sample_ids/{key}"] = write_array(folder, f"sample_ids/{key}", array, codec)
    provenance = {
        "source": plan["source"],
        "files": plan["identity"].get("files", []),
        "skipped_lines": sum(run.skipped for run in parts.runs),
        "unseen_nonzeros": sum(run.unseen for run in parts.runs),
        "block_bytes": plan["options"][-1],
        "versions": {name: version(name) for name in ("gdm_dask", "numpy", "numcodecs")}
        | {"python": platform.python_version()},
    }
    manifest = layout.Manifest(
        parts.source.kind, (parts.n_features, parts.n_samples), nnz, parts.value_type, codec, parts.classes, entries,
        arrays, provenance,
    )  # fmt: skip
    layout.write_manifest(folder, manifest)
    workspace.publish()
    workspace.clear()
    return FeatureStore(workspace.target)
