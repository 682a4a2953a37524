"""First step of an ingest: every job reads its part of the source and writes runs, sorted by feature, to disk."""

from __future__ import annotations

import logging
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gdm_dask.engine import Engine, open_engine
from gdm_dask.errors import BadInput
from gdm_dask.features.values import widest
from gdm_dask.ingestion.runs import Run, finished_run, write_run
from gdm_dask.ingestion.source import MAX_COUNT, IngestOptions, Source, SourceFacts, SourcePart
from gdm_dask.ingestion.staging import Staging
from gdm_dask.store.numbers import Numbers
from gdm_dask.store.targets import Target, are_numbers, as_values, infer_target, target_of_classes
from gdm_dask.system.progress import report
from gdm_dask.system.resources import format_bytes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partition:
    """All runs of a source, with their totals.

    The runs are in the order of their samples; the packed targets are in stored form, see `Target.pack`.
    """

    kind: str
    runs: list[Run]
    first_samples: list[int]
    n_samples: int
    n_features: int
    value_type: str
    target: Target | None
    packed_targets: np.ndarray | None
    n_matrix: int  # features before the covariates, which have blocks of their own
    matrix_type: str  # of their values

    def type_of(self, start: int) -> str:
        """Return the type of the values of a block that begins with this feature."""
        return self.matrix_type if start < self.n_matrix else self.value_type

    @property
    def nnz(self) -> int:
        """Number of nonzeros."""
        return sum(run.nnz for run in self.runs)

    @property
    def decimals(self) -> int | None:
        """Decimals of the values, if all runs have the same number; None otherwise."""
        found = {run.decimals for run in self.runs}
        return found.pop() if len(found) == 1 else None

    @property
    def skipped(self) -> int:
        """Number of malformed lines that were skipped."""
        return sum(run.skipped for run in self.runs)

    @property
    def unseen(self) -> int:
        """Number of nonzeros that were dropped because their feature is beyond the feature space."""
        return sum(run.unseen for run in self.runs)


def announce_scratch(facts: SourceFacts, staging: Staging) -> None:
    """Log how much scratch space is needed before any is used."""
    free = shutil.disk_usage(staging.runs).free
    if facts.nbytes is None:
        logger.info("scratch files in %s (%s free), removed at the end", staging.runs, format_bytes(free))
        return
    needed = facts.scratch_factor * facts.nbytes
    logger.info(
        "scratch files: up to about %s in %s (%s free), removed at the end",
        format_bytes(needed), staging.runs, format_bytes(free),
    )  # fmt: skip
    if needed > free:
        logger.warning("the scratch files may not fit: choose a larger disk with --scratch")


def make_runs(
    source: Source, staging: Staging, engine: Engine, run_bytes: int, options: IngestOptions
) -> tuple[list[Run], int]:
    """Make all runs; return them in order, and the number reused from an earlier attempt."""
    parts = list(enumerate(source.parts(run_bytes)))
    task = partial(partition_part, folder=staging.runs, options=options)
    with (
        report("partition", source.facts.nbytes) as progress,
        open_engine("threads") if source.facts.in_memory and not engine.shares_memory else nullcontext(engine) as used,
    ):
        results = used.map(task, parts, on_done=lambda result: progress(result[2]), name="ingest-partition")
    kept = sum(kept for _, kept, _ in results)
    if kept:
        logger.info("%d finished runs of an earlier attempt were kept", kept)
    return [run for runs, _, _ in results for run in runs], kept


def partition_part(
    numbered: tuple[int, SourcePart], folder: Path, options: IngestOptions
) -> tuple[list[Run], int, int]:
    """Read one part and write its runs; existing runs are reused. Return (runs, reused, bytes read)."""
    number, part = numbered
    runs, kept = [], 0
    for sequence, load in enumerate(part.slabs()):
        path = folder / f"{number:06d}-{sequence:06d}"
        run = finished_run(path)
        if run is not None:
            kept += 1
        else:
            slab = load()
            if options.n_features is not None:
                slab = slab.within(options.n_features)
            run = write_run(path, slab, options.value_limit)
        runs.append(run)
    return runs, kept, part.nbytes


def summarise(runs: list[Run], facts: SourceFacts, options: IngestOptions, target: Target | None) -> Partition:
    """Compute the totals of the runs, and check them together; `target` is given if another store defines it."""
    where = facts.where
    n_samples = facts.n_samples if facts.n_samples is not None else sum(run.n_samples for run in runs)
    n_features = options.n_features or facts.n_features or max((run.n_features for run in runs), default=0)
    entries = sum(run.entries for run in runs)
    if facts.n_entries is not None and entries != facts.n_entries:
        raise BadInput(
            f"{where}: the file declares {facts.n_entries:,} entries, but has {entries:,}. Fetch or write it again."
        )
    if n_samples == 0:
        raise BadInput(f"{where}: there are no samples")
    if n_features == 0:
        raise BadInput(f"{where}: there are no features")
    if n_samples > MAX_COUNT:  # the samples of text were not counted before
        raise BadInput(f"{where}: a store can hold at most {MAX_COUNT} samples, got {n_samples}")
    first_samples = np.concatenate([[0], np.cumsum([run.n_samples for run in runs])])[:-1].tolist()
    target, packed = _targets(runs, first_samples, n_samples, facts, options.task, target)
    value_type = widest([run.value_type for run in runs])
    matrix_type = widest([run.value_type for run in runs[1 if facts.n_beside else 0 :]])
    if matrix_type == "one" != value_type:
        matrix_type = "uint8"
    return Partition(
        facts.kind, runs, first_samples, n_samples, n_features, value_type, target, packed, n_features - facts.n_beside,
        matrix_type,
    )  # fmt: skip


def _targets(
    runs: list[Run], first_samples: list[int], n_samples: int, facts: SourceFacts, task: str | None,
    target: Target | None,
) -> tuple[Target | None, np.ndarray | None]:  # fmt: skip
    """Return the target of the samples, and the targets in stored form."""
    where = facts.where
    if facts.labels is not None:
        target = infer_target(facts.labels, task, where) if target is None else target
        return target, target.pack(facts.labels, where)
    if not all("labels" in run.arrays for run in runs):
        return None, None
    # Run by run: all class labels at once, in their original form, would take eight times as much memory.
    if target is None:
        parts = zip(runs, first_samples, strict=True)
        found = [np.unique(as_values(run.read("labels"), where, first)) for run, first in parts]
        distinct = np.unique(np.concatenate(found))
        shape = (n_samples, *runs[0].arrays["labels"].shape[1:])
        if are_numbers(distinct, shape, task, where):
            target = Numbers.of(np.concatenate([run.read("labels") for run in runs]), where)
        else:
            target = target_of_classes(distinct, n_samples, where)
    parts = zip(runs, first_samples, strict=True)
    return target, np.concatenate([target.pack(run.read("labels"), where, first) for run, first in parts])
