"""Ingest: convert any source of samples to a feature store, out of core and safely.

There are three steps. Each of them can be killed and run again:

1. *partition*: every job reads its part of the source and writes runs, sorted by feature, to scratch disk;
2. *merge*: the nonzeros of every feature are now known, so the features are cut into blocks; each block is merged from
   its slice of every run, compressed, written, read back and compared;
3. *publish*: the targets and the manifest are written, and the store is renamed to its final name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.engine import Engine, open_engine
from gdm_dask.errors import BadInput, GdmError, MemoryLimitTooLow
from gdm_dask.ingestion import plan
from gdm_dask.ingestion import sample_weights as given_weights
from gdm_dask.ingestion.covariates import Covariates, drop_incomplete, read_covariates, with_covariates
from gdm_dask.ingestion.merge import make_blocks
from gdm_dask.ingestion.objects import is_dask, without_columns
from gdm_dask.ingestion.partition import Partition, announce_scratch, make_runs, summarise
from gdm_dask.ingestion.source import IngestOptions, SourceFacts
from gdm_dask.ingestion.sources import open_source
from gdm_dask.ingestion.staging import CUTS_VERSION, Staging
from gdm_dask.store import layout
from gdm_dask.store.arrays import ArrayEntry, write_array, write_group
from gdm_dask.store.feature_store import FeatureStore, open_store
from gdm_dask.store.folder import Folder, Url
from gdm_dask.store.memory import MemoryStore
from gdm_dask.store.sample_tables import Column
from gdm_dask.store.targets import infer_target
from gdm_dask.store.texts import write_text
from gdm_dask.system.progress import compile_seconds
from gdm_dask.system.resources import default_memory_limit, n_cores, parse_bytes
from gdm_dask.system.temporary import temporary_folder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IngestReport:
    """The store made by an ingest, and the work reused from an earlier attempt."""

    store: FeatureStore
    runs_written: int = 0
    runs_kept: int = 0
    blocks_written: int = 0
    blocks_kept: int = 0
    skipped_lines: int = 0
    dropped_samples: int = 0
    unseen_nonzeros: int = 0
    compiling: float = 0.0  #: Seconds spent compiling kernels in this process.


def ingest(source: Any, path: str | os.PathLike[str], y: Any = None, **options: Any) -> FeatureStore:
    """Convert samples to a feature store.

    Parameters
    ----------
    source : path, list of paths, or matrix
        svmlight/libsvm text (plain, .gz, .bz2, .xz; several files are one set), a table (``.csv``, ``.tsv``,
        ``.parquet``), a scipy ``.npz``, a Matrix Market ``.mtx``, a dense ``.npy`` or Zarr array; or a NumPy or scipy
        matrix, a Dask array, a DataFrame. Objects, tables and matrix files are samples x features.
    path : path or URL
        Destination of the store.
    y : array, path or name, optional
        Labels or numbers to predict, if the source does not contain them: an array, a file, or the name of a column of
        a DataFrame or table, which then is no feature. A store does not need any.
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
    ...     store.shape, store.nnz, store.classes, store.y.tolist()
    ((3, 3), 3, ['no', 'yes'], ['no', 'yes', 'no'])
    """
    return run_ingest(source, path, y, **options).store


def run_ingest(
    source: Any,
    path: str | os.PathLike[str],
    y: Any = None,
    *,
    n_features: int | None = None,
    like: FeatureStore | str | os.PathLike[str] | None = None,
    task: str | None = None,
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
    sample_weight: Any = None,
    covariates: Any = None,
    on_missing: str = "raise",
    drop: str | Sequence[str] = (),
) -> IngestReport:
    """Ingest a source and return a report. See `ingest`.

    Parameters
    ----------
    source, path, y
        As in `ingest`.
    n_features : int, optional
        Size of the feature space; nonzeros of later features are ignored and counted.
    like : store or path, optional
        Take the feature space, feature names and target of this store; for test sets.
    task : {None, "classification", "regression"}
        Whether the targets are classes or numbers. By default they are classes if they are text, booleans, any two
        values, or integers with at most 100 distinct values that occur twice on average.
    index_base : {1, 0}
        Number of the first feature in svmlight text.
    on_error : {"raise", "skip"}
        Whether a malformed line of text stops the ingest, or is skipped and counted.
    dtype : {"auto", "float32", "float64"}
        Type of stored values; "auto" is the narrowest type that holds all of them exactly.
    codec : {"lz4", "zstd", "none"}
        Compression of chunks.
    feature_names : list of str, optional
        One name per feature.
    block_bytes : int or str
        Decoded size of a block, such as ``"64MB"``.
    memory_limit : int or str, optional
        Peak memory of all processes; by default a quarter of the machine's memory.
    scheduler : str or Client
        See `gdm_dask.engine.Engine`. Workers on other machines need access to the source, the scratch folder and the
        store.
    n_workers : int, optional
        Parallel tasks; by default one per core, plus two with threads, because some wait for the disk.
    scratch : path, optional
        Folder for scratch files; by default beside the store, or in the user's cache folder if the store is a URL.
    overwrite : bool
        Replace an existing store.
    storage_options : dict, optional
        For a store, and sources, on URLs: see `gdm_dask.open_store`.
    run_bytes : int or str, optional
        Bytes of source to sort at a time; by default derived from the memory limit. The store does not depend on it.
    sample_weight : array, path or name, optional
        Nonnegative weights of the samples, which fits on the store use unless they are given others: an array, a file,
        or the name of a column of a DataFrame, of a table, or of the ``.csv`` file of the targets.
    covariates : path or DataFrame, optional
        A table of covariates, which become further features, behind those of the source: the path of a text with names
        of columns, all or some of which are used (``"people.cov:age,sex"``), names of columns of ``obs``
        (``"batch,age"``), or a pandas DataFrame. Samples are found by their ids. Text becomes zeros and ones. Fits on
        the store include them by default.
    on_missing : {"raise", "drop"}
        Whether a sample without a target, or without a covariate, stops the ingest, or is dropped and counted.
    drop : str or list of str
        Columns of a table or a DataFrame to leave out, such as identifiers and dates.
    """
    compiled = compile_seconds()
    if isinstance(like, (str, os.PathLike)):
        like = open_store(like, storage_options)
    if like is not None:
        if n_features not in (None, like.shape[0]):
            raise BadInput(f"n_features={n_features} conflicts with `like` ({like.shape[0]} features); pass only one")
        n_features = like.shape[0]
    drop = [drop] if isinstance(drop, str) else drop
    if hasattr(source, "collect") or hasattr(source, "columns"):
        source, drop = without_columns(source, drop), ()
    weight_column = sample_weight if isinstance(sample_weight, str) else None
    options = IngestOptions(
        n_features, index_base, on_error, dtype, codec, parse_bytes(block_bytes), task, weight_column, list(drop)
    )
    if on_missing not in ("raise", "drop"):
        raise BadInput(f"`on_missing` must be 'raise' or 'drop', got {on_missing!r}")
    y, sample_weight, covariates = (
        _reachable(one, storage_options) if isinstance(one, str) else one for one in (y, sample_weight, covariates)
    )
    if hasattr(source, "columns") or sample_weight is not None:
        source, y, sample_weight = given_weights.take_columns(source, y, sample_weight)
    given = open_source(_reachable(source, storage_options), y, options)
    if like is not None:
        given = given.like(like.feature_names or [])
    facts = given.facts
    if set(facts.dropped) != set(drop):
        raise BadInput(
            f"`drop` names columns of a table or a DataFrame, which the source is not: got {', '.join(drop)}"
        )
    sample_weight = sample_weight if facts.sample_weight is None else facts.sample_weight
    weights = _known_weights(sample_weight, facts.n_samples, facts.sample_ids)
    if feature_names is not None:
        size = n_features or facts.n_features
        if size is not None and len(feature_names) != size:
            raise BadInput(f"expected {size} feature names, one per feature, got {len(feature_names)}")
        given = given.with_facts(feature_names=[str(name) for name in feature_names])
    known = None if like is None else like.manifest.covariates
    beside = read_covariates(covariates, given.facts, n_features, known) if covariates is not None or known else None
    kept = None
    if beside is not None or isinstance(given.facts.labels, Column):
        given, beside, kept = drop_incomplete(given, beside, on_missing)
    if kept is not None:
        weights = None if weights is None else weights[kept]
        logger.warning("%d of %d samples without a target or a covariate were dropped", (~kept).sum(), len(kept))
    if beside is not None:
        given = with_covariates(given, beside, None if like is None else like.feature_names)
        options = options if n_features is None else replace(options, n_features=given.facts.n_features)
    facts = given.facts
    of_target = f"{facts.where}, target {os.fspath(y)}" if isinstance(y, (str, os.PathLike)) else facts.where
    targets = _known_targets(facts, like, task, of_target)
    names = _feature_names(facts, like, options.n_features)
    limit = default_memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    staging = Staging(Folder(path, storage_options), scratch)
    job = {
        "source": facts.description,
        "identity": facts.identity,
        "options": asdict(options),
        "names": hashlib.sha256(json.dumps(names).encode()).hexdigest(),
        "like": None if like is None else like.fingerprint,
        "targets": targets,
        "sample_weight": None if sample_weight is None else given_weights.identity_of(sample_weight),
        "covariates": None if beside is None else beside.identity,
        "kept": None if kept is None else crc32c(kept.tobytes()),
        "format_version": layout.FORMAT_VERSION,
        "cuts_version": CUTS_VERSION,
    }
    with staging:
        n_workers = n_workers or _n_workers(scheduler, limit, facts)
        with open_engine(scheduler, n_workers) as engine, facts.naming(names):
            processes = not engine.shares_memory
            most = plan.run_bytes(limit, engine.n_workers, processes, facts.nbytes or 0, facts.least_run_bytes)
            plan.check_block_size(limit, processes, options.block_bytes)
            size = staging.begin(job, most if run_bytes is None else min(most, parse_bytes(run_bytes)), overwrite)
            if size is None:
                logger.info("%s was finished by an earlier attempt", staging.target.url)
                return IngestReport(FeatureStore(staging.target))
            announce_scratch(facts, staging)
            runs, runs_kept = make_runs(given, staging, engine, size, options)
            parts = summarise(runs, facts, options, None if like is None else like.target)
            weights = _known_weights(sample_weight, parts.n_samples) if weights is None else weights
            entries, blocks_kept = make_blocks(parts, staging, engine, options, names, limit)
        n_dropped = 0 if kept is None else int((~kept).sum())
        store = _publish(parts, entries, facts, staging, options, weights, beside, n_dropped)
    if parts.skipped:
        logger.warning("%d malformed lines were skipped", parts.skipped)
    if parts.unseen:
        logger.warning("%d nonzeros of features beyond the %d known ones were ignored", parts.unseen, parts.n_features)
    return IngestReport(
        store, len(runs) - runs_kept, runs_kept, len(entries) - blocks_kept, blocks_kept, parts.skipped, n_dropped,
        parts.unseen, compile_seconds() - compiled,
    )  # fmt: skip


def _publish(
    parts: Partition, entries: list[layout.BlockEntry], facts: SourceFacts, staging: Staging, options: IngestOptions,
    weights: np.ndarray | None, beside: Covariates | None, n_dropped: int,
) -> FeatureStore:  # fmt: skip
    """Finish the store and open it."""
    if sum(entry.nnz for entry in entries) != parts.nnz or entries[-1].stop != parts.n_features:
        raise GdmError(
            "the blocks do not hold all nonzeros that were read. This is a bug in gdm_dask: please report it."
        )
    with staging.store.behind() as folder:
        arrays = _write_root(parts, facts, weights, folder, options.codec)
    provenance = {
        "source": facts.description,
        "files": facts.identity.get("files", []),
        "parameters": asdict(options),
        "skipped_lines": parts.skipped,
        "dropped_samples": n_dropped,
        "unseen_nonzeros": parts.unseen,
        "versions": {name: version(name) for name in ("gdm_dask", "numpy", "numcodecs")}
        | {"python": platform.python_version()},
    }
    manifest = layout.Manifest(
        parts.kind, (parts.n_features, parts.n_samples), parts.nnz, parts.value_type, options.codec,
        None if parts.target is None else parts.target.to_json(), entries, arrays, provenance,
        covariates=[] if beside is None else beside.entries,
    )  # fmt: skip
    staging.mark_finished(manifest.fingerprint)
    layout.write_manifest(staging.store, manifest)
    staging.publish()
    return FeatureStore(staging.target)


def _write_root(
    parts: Partition, facts: SourceFacts, weights: np.ndarray | None, folder: Folder, codec: str
) -> dict[str, ArrayEntry]:
    """Write the arrays that belong to no block."""
    write_group(folder, "blocks")
    arrays = {}
    if parts.packed_targets is not None:
        arrays["targets"] = write_array(folder, "targets", parts.packed_targets, codec)
    if weights is not None:
        arrays["sample_weight"] = write_array(folder, "sample_weight", weights, codec)
    if facts.sample_ids is not None:
        ids = write_text(folder, "sample_ids", facts.sample_ids, codec)
        arrays |= {f"sample_ids/{key}": entry for key, entry in ids.items()}
    if facts.vocabulary is not None:
        arrays["vocabulary"] = write_array(folder, "vocabulary", facts.vocabulary.packed(), codec)
    return arrays


@contextmanager
def as_blocks(X: Any, engine: Engine, memory_limit: int | None) -> Iterator[FeatureStore | MemoryStore]:
    """Present a matrix (samples x features) as blocks, for an engine.

    A matrix in memory stays there if the engine runs in this process. For other engines, and for Dask collections, it
    is ingested into a temporary store.
    """
    if engine.shares_memory and not is_dask(X):
        yield MemoryStore(X)
        return
    with temporary_folder("gdm-fit-") as folder:
        yield ingest(X, folder / "data.zarr", memory_limit=memory_limit)


def _reachable(source: Any, storage_options: dict[str, Any] | None) -> Any:
    """Attach storage options to the paths or URLs of a source."""
    if isinstance(source, str):
        return Url(source, storage_options)
    if isinstance(source, (list, tuple)) and all(isinstance(path, str) for path in source):
        return [Url(path, storage_options) for path in source]
    return source


def _n_workers(scheduler: Any, limit: int, facts: SourceFacts) -> int | None:
    """Return the default number of workers: two threads more than there are cores, if the memory suffices."""
    if scheduler != "threads":
        return None
    for more in (2, 1):
        with suppress(MemoryLimitTooLow):
            plan.run_bytes(limit, n_cores() + more, False, facts.nbytes or 0, facts.least_run_bytes)
            return n_cores() + more
    return None


def _known_weights(sample_weight: Any, n_samples: int | None, ids: list[str] | None = None) -> np.ndarray | None:
    """Return the sample weights if there are any and the number of samples is known; refuse wrong ones."""
    if sample_weight is None or n_samples is None:
        return None
    return given_weights.load_weights(sample_weight, n_samples, ids)


def _known_targets(facts: SourceFacts, like: FeatureStore | None, task: str | None, where: str) -> list[Any] | None:
    """Return the identity of targets that are known before the work; refuse wrong ones."""
    if facts.labels is None:
        return None
    known = None if like is None else like.target
    target = infer_target(facts.labels, task, where) if known is None else known
    return [target.to_json(), crc32c(target.pack(facts.labels, where))]  # type: ignore[arg-type]


def _feature_names(facts: SourceFacts, like: FeatureStore | None, n_features: int | None) -> list[str] | None:
    """Return the names of the stored features: from the source or the user, else from `like`."""
    names = facts.feature_names
    known = None if like is None else like.feature_names
    size = n_features or facts.n_features
    if names is None:
        return known
    for number, (name, expected) in enumerate(zip(names, known or [], strict=False)):
        if name != expected:
            raise BadInput(
                f"feature {number} is named {name!r}, but {expected!r} in the store given as `like`. Bring the columns "
                "into the same order."
            )
    if known is not None or size is None:
        return known or names
    return names[:size] + [str(number) for number in range(len(names), size)]
