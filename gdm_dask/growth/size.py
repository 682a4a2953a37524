"""Size of the data of a forecast, a store or a lookalike at any scale, and the limits that it exceeds."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gdm_dask.cutting_plane.memory import VALUE_BYTES, WORKER_PART
from gdm_dask.ingestion import run_ingest
from gdm_dask.ingestion.sources.lookalikes import Lookalike, lookalike_source, scaled_lookalike
from gdm_dask.settings.tasks import task_of
from gdm_dask.store import FeatureStore
from gdm_dask.store.layout import BLOCK_BYTES, MAX_BLOCK_BYTES
from gdm_dask.system.resources import format_bytes, plural

#: Nonzeros of the small lookalike that represents a large one: a second of work, and enough to measure on.
SMALL_NONZEROS = 8_000_000
#: Minimum number of its samples and features: the driver's work is measured on them.
LEAST_SAMPLES = 20_000
LEAST_FEATURES = 20_000
#: Minimum number of blocks of a small store, so that all cores have work.
LEAST_BLOCKS = 16
#: Number of bits of the indices of features and samples.
NUMBER_BITS = 32
#: Part of a process's memory that the list of blocks may take, and its size in memory relative to its text.
MANIFEST_PART = 0.1
MANIFEST_OBJECTS = 8


@dataclass(frozen=True)
class Size:
    """Shape and size of data."""

    name: str
    n_features: int
    n_samples: int
    nnz: int
    task: str  # kind of the target
    n_outputs: int  # of the target
    class_counts: Sequence[float]  # samples of each class; numbers form a single class
    block_bytes: list[int]  # decoded size of each block
    block_rows: list[int]  # features of each block
    stored_bytes: int  # of all files of the store
    manifest_bytes: int  # of the list of blocks and checksums, which every process loads
    is_sparse: bool
    largest_rows: Callable[[int], int]  # most bytes of the rows of so many features
    bytes_ahead: int = 0  # that a task requests from an object store ahead of the current block
    value_bytes: int = VALUE_BYTES  # of a value in a row

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all blocks in memory."""
        return sum(self.block_bytes)


def size_of(store: FeatureStore) -> Size:
    """Return the size of a store with targets."""
    blocks, kind, outputs = store.manifest.blocks, store.own_target().kind, store.outputs()
    return Size(
        name=store.url,
        n_features=store.shape[0],
        n_samples=store.shape[1],
        nnz=store.nnz,
        task=kind,
        n_outputs=len(outputs),
        class_counts=task_of(kind).class_weights(outputs, None),
        block_bytes=[entry.nbytes for entry in blocks],
        block_rows=[entry.stop - entry.start for entry in blocks],
        stored_bytes=store.size_on_disk(),
        manifest_bytes=sum(len(json.dumps(asdict(entry))) for entry in blocks),
        is_sparse=store.is_sparse,
        largest_rows=store.largest_rows,
        bytes_ahead=store.bytes_ahead,
        value_bytes=store.value_bytes,
    )


@contextmanager
def small_lookalike(name: str, scale: float) -> Iterator[tuple[FeatureStore, Size]]:
    """Yield a small lookalike as a temporary store, and the size of the lookalike at `scale`."""
    wanted = scaled_lookalike(name, scale)
    small = thinned(wanted)
    with tempfile.TemporaryDirectory(prefix="gdm-plan-") as folder:
        with _without_news():
            store = run_ingest(lookalike_source(name, small, 0), Path(folder) / "small.zarr").store
        yield store, grown(size_of(store), small, wanted, f"lookalike of {name}, scale {scale:g}")


@contextmanager
def _without_news() -> Iterator[None]:
    """Log warnings only: the user did not ask for the ingest of a small lookalike."""
    package = logging.getLogger("gdm_dask")
    level = package.level
    package.setLevel(logging.WARNING)
    try:
        yield
    finally:
        package.setLevel(level)


def thinned(lookalike: Lookalike) -> Lookalike:
    """Return a lookalike with few nonzeros: fewer samples, and if the samples are long, fewer features per sample.

    The mean number of nonzeros of a feature, which determines the speed of a pass, stays the same.
    """
    n_samples = min(lookalike.n_samples, max(LEAST_SAMPLES, int(SMALL_NONZEROS / lookalike.row_length)))
    length = min(lookalike.row_length, SMALL_NONZEROS / n_samples)
    part = n_samples * length / (lookalike.n_samples * lookalike.row_length)
    n_features = max(LEAST_FEATURES, round(part * lookalike.n_features))
    return replace(lookalike, n_samples=n_samples, n_features=min(n_features, lookalike.n_features), row_length=length)


def grown(small: Size, shape: Lookalike, wanted: Lookalike, name: str) -> Size:
    """Return the size of a larger lookalike: bytes grow with the nonzeros, in blocks of the usual size.

    Rows are never split: the block of a feature that occurs in all samples is as large as its row.
    """
    nnz = round(small.nnz * wanted.n_samples * wanted.row_length / (shape.n_samples * shape.row_length))
    factor, longer = nnz / small.nnz, wanted.n_samples / small.n_samples
    decoded = round(small.decoded_bytes * factor)
    n_blocks = max(LEAST_BLOCKS, -(-decoded // BLOCK_BYTES))
    longest = wanted.n_samples * small.decoded_bytes // small.nnz
    blocks = shares(decoded, n_blocks)
    return Size(
        name=name,
        n_features=wanted.n_features,
        n_samples=wanted.n_samples,
        nnz=nnz,
        task=small.task,
        n_outputs=small.n_outputs,
        class_counts=[longer * count for count in small.class_counts],
        block_bytes=[max(longest, blocks[0]), *blocks[1:]],
        block_rows=shares(wanted.n_features, n_blocks),
        stored_bytes=round(small.stored_bytes * factor),
        manifest_bytes=n_blocks * small.manifest_bytes // len(small.block_bytes),
        is_sparse=True,
        largest_rows=lambda n_rows: round(longer * small.largest_rows(n_rows)),
        value_bytes=small.value_bytes,
    )


def shares(total: int, n_parts: int) -> list[int]:
    """Split `total` into integers that differ by at most one.

    >>> shares(10, 4)
    [3, 3, 2, 2]
    """
    each, left = divmod(total, n_parts)
    return [each + (part < left) for part in range(n_parts)]


def limits(size: Size, memory: int, needed: dict[str, int], in_driver: bool) -> list[str]:
    """Return the limits that are exceeded, each with its remedy, most basic first.

    Each process has `memory` bytes; a worker, the scheduler and the driver need those in `needed`. With `in_driver`,
    the driver's own threads do the work.
    """
    found = []
    for what, count in (("features", size.n_features), ("samples", size.n_samples)):
        if count >= 2**NUMBER_BITS:
            found.append(
                f"{count:,} {what}: stores number them with {NUMBER_BITS} bits. Hash or filter features, or split "
                f"{what} into several stores."
            )
    longest = max(size.block_bytes, default=0)
    if longest > MAX_BLOCK_BYTES:
        found.append(
            f"the row of a feature that all samples have takes {format_bytes(longest)}, and a block at most "
            f"{format_bytes(MAX_BLOCK_BYTES)}. Leave out features that occur in nearly all samples, or cut rows."
        )
    usable = {"worker": WORKER_PART * memory, "scheduler": memory, "driver": memory}
    for process in ["driver"] if in_driver else usable:
        n_bytes = sum(needed.values()) if in_driver else needed[process]
        if n_bytes > usable[process]:
            found.append(
                f"the {process} needs {format_bytes(n_bytes)} and may take {format_bytes(usable[process])}. Give it "
                f"more memory, or {'fewer threads or smaller blocks' if process == 'worker' else 'fewer samples'}."
            )
    objects = MANIFEST_OBJECTS * size.manifest_bytes
    if objects > MANIFEST_PART * memory:
        found.append(
            f"the manifest lists {plural(len(size.block_bytes), 'block')}, {format_bytes(size.manifest_bytes)} of text "
            f"that each process loads into about {format_bytes(objects)}. Ingest with a larger --block-size."
        )
    return found
