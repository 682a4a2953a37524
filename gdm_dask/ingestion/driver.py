"""Ingest: any source of samples becomes a feature store, out of core, safely.

Three steps, each of which can be killed and run again:

1. *partition*: every job reads its part of the source and leaves runs, sorted by feature, on scratch disk;
2. *merge*: the nonzeros of every feature are known now, blocks are cut, and each is merged from its slice of every
   run, compressed, written, read back and compared;
3. *publish*: labels and manifest are written and the store takes its name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from gdm_dask.engine import Engine
from gdm_dask.errors import BadInput, MemoryLimitTooLow
from gdm_dask.ingestion import plan
from gdm_dask.ingestion.labels import encode, find_classes
from gdm_dask.ingestion.merge import make_blocks
from gdm_dask.ingestion.options import IngestOptions
from gdm_dask.ingestion.partition import announce_scratch, make_runs, summarise
from gdm_dask.ingestion.publish import publish
from gdm_dask.ingestion.source import Source, make_source
from gdm_dask.ingestion.workspace import Workspace
from gdm_dask.resources import default_memory_limit, n_cores, parse_bytes
from gdm_dask.store import layout
from gdm_dask.store.feature_store import FeatureStore, open_store
from gdm_dask.store.folder import Folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did: the store, and how much of an earlier attempt it could keep."""

    store: FeatureStore
    runs_written: int = 0
    runs_kept: int = 0
    blocks_written: int = 0
    blocks_kept: int = 0
    skipped_lines: int = 0
    unseen_nonzeros: int = 0


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
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ingest(np.eye(3), folder + "/eye.zarr", y=["no", "yes", "no"])
    ...     store.shape, store.nnz, store.classes, store.labels.tolist()
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
    run_bytes: int | str | None = None,
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
        See `gdm_dask.engine.Engine`. Workers on other machines need to see the source, the scratch and the store.
    n_workers : int, optional
        Parallel tasks; by default one per core, and of threads two more, for some of them wait for the disk.
    scratch : path, optional
        Folder for scratch files; beside the store by default.
    overwrite : bool
        Replace a store that is there.
    storage_options : dict, optional
        Passed to fsspec for a store on a URL.
    run_bytes : int or str, optional
        Bytes of source that are sorted at a time; as many as the memory limit allows for, up to a good size, by
        default. The store does not depend on it.
    """
    if isinstance(like, (str, os.PathLike)):
        like = open_store(like, storage_options)
    if like is not None:
        if n_features not in (None, like.shape[0]):
            raise BadInput(f"n_features={n_features}, but the store to be like has {like.shape[0]}: give one of them")
        n_features = like.shape[0]
    options = IngestOptions(n_features, index_base, on_error, dtype, codec, parse_bytes(block_bytes))
    given = make_source(source, y, options)
    _check_labels(given, like)
    names = _feature_names(feature_names, given, like, n_features)
    limit = default_memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    workspace = Workspace(Folder(path, storage_options), scratch)
    job = {
        "source": given.description,
        "identity": given.identity,
        "options": asdict(options),
        "names": hashlib.sha256(json.dumps(names).encode()).hexdigest(),
        "like": None if like is None else like.fingerprint,
        "format_version": layout.FORMAT_VERSION,
    }
    with workspace:
        with Engine(scheduler, n_workers or _n_workers(scheduler, limit, given)) as engine:
            processes = not engine.shares_memory
            most = plan.run_bytes(limit, engine.n_workers, processes, given.nbytes or 0, given.least_run_bytes)
            plan.check_block_size(limit, processes, options.block_bytes)
            size = workspace.begin(job, most if run_bytes is None else min(most, parse_bytes(run_bytes)), overwrite)
            if size is None:
                logger.info("%s was finished by an earlier attempt", workspace.target.url)
                return IngestReport(FeatureStore(workspace.target))
            announce_scratch(given, workspace)
            runs, runs_kept = make_runs(given, workspace, engine, size, options)
            parts = summarise(runs, given, options, None if like is None else like.classes)
            entries, blocks_kept = make_blocks(parts, workspace, engine, options, names, limit)
        store = publish(parts, entries, given, workspace, options)
    if parts.skipped:
        logger.warning("%d malformed lines were skipped", parts.skipped)
    if parts.unseen:
        logger.warning("%d nonzeros of features beyond the %d known were left out", parts.unseen, parts.n_features)
    return IngestReport(
        store, len(runs) - runs_kept, runs_kept, len(entries) - blocks_kept, blocks_kept, parts.skipped, parts.unseen
    )


def _n_workers(scheduler: Any, limit: int, source: Source) -> int | None:
    """Workers where their number is not given: two threads more than there are cores, if the memory suffices."""
    if scheduler != "threads":
        return None
    for more in (2, 1):
        with suppress(MemoryLimitTooLow):
            plan.run_bytes(limit, n_cores() + more, False, source.nbytes or 0, source.least_run_bytes)
            return n_cores() + more
    return None


def _check_labels(source: Source, like: FeatureStore | None) -> None:
    """Refuse wrong labels before the work where they are known already."""
    if source.labels is not None:
        classes = find_classes(source.labels, source.where) if like is None else like.classes
        encode(source.labels, classes, source.where)


def _feature_names(
    given: list[str] | None, source: Source, like: FeatureStore | None, n_features: int | None
) -> list[str] | None:
    """Names of the stored features: those given, else the source's, else those of the store to be like."""
    names = source.feature_names if given is None else [str(name) for name in given]
    known = None if like is None else like.feature_names
    size = n_features or source.n_features
    if names is None:
        return known
    if given is not None and size is not None and len(names) != size:
        raise BadInput(f"{len(names)} feature names for {size} features")
    for number, (name, expected) in enumerate(zip(names, known or [], strict=False)):
        if name != expected:
            raise BadInput(
                f"feature {number} is named {name!r}, but {expected!r} in the store to be like: bring the columns into "
                "the same order first"
            )
    if known is not None or size is None:
        return known or names
    return names[:size] + [str(number) for number in range(len(names), size)]
