"""A block on disk: a Zarr group with one array for each part of its rows, written once and checked on every read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.errors import DamagedStore
from gdm_dask.features.block import Block
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.values import fewest_decimals, shorten
from gdm_dask.store.arrays import (
    REMEDY,
    ArrayEntry,
    check_metadata,
    chunk_files,
    read_array,
    read_ranges,
    write_array,
    write_group,
    write_text,
)
from gdm_dask.store.folder import Folder
from gdm_dask.system.jit import kernel
from gdm_dask.system.scratch import Buffers

#: Arrays of a block that a pass reads, in this order.
_PASS_ARRAYS = ("values", "means", "norms", "indptr", "indices", "counts")


@dataclass(frozen=True)
class BlockEntry:
    """Manifest entry of one block: its features, its nonzeros, its arrays."""

    start: int
    stop: int
    nnz: int
    arrays: dict[str, ArrayEntry]

    @property
    def nbytes(self) -> int:
        """Bytes in memory of the arrays that a pass reads."""
        return self.nbytes_of(as_stored=self.is_sparse)

    def nbytes_of(self, as_stored: bool) -> int:
        """Return the decoded bytes of these arrays: stored integers, or the numbers they stand for."""
        return sum(entry.nbytes_of(as_stored) for name, entry in self.arrays.items() if not name.startswith("names/"))

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are compressed; only then do integers over a power of ten stay integers in memory."""
        return "indptr" in self.arrays

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> BlockEntry:
        """Build an entry from the output of ``asdict``."""
        arrays = {name: ArrayEntry(**entry) for name, entry in document["arrays"].items()}
        return cls(document["start"], document["stop"], document["nnz"], arrays)


def block_path(number: int) -> str:
    """Return the folder of a block within the store.

    >>> block_path(12)
    'blocks/00012'
    """
    return f"blocks/{number:05d}"


def write_block(folder: Folder, number: int, block: Block, codec: str, names: list[str] | None = None) -> BlockEntry:
    """Write the arrays of a block, compare each with its bytes on disk, and return the manifest entry.

    Integers over a power of ten are shortened in place if possible: do not use the block afterwards.
    """
    path = block_path(number)
    write_group(folder, path)
    parts = {"means": block.means, "norms": block.norms}
    if block.indptr is not None and block.indices is not None:
        parts |= {"indptr": block.indptr, "indices": block.indices}
    else:
        parts["counts"] = block.counts().astype(np.uint32)
    decimals = None
    if block.values is not None:
        parts["values"] = block.values
        if block.decimals is not None:
            decimals = shorten(block.values, block.decimals)
        elif block.values.dtype == np.float64:
            decimals = fewest_decimals(block.values)
    arrays = {
        name: write_array(folder, f"{path}/{name}", array, codec, decimals if name == "values" else None)
        for name, array in sorted(parts.items())
    }
    if names is not None:
        text = write_text(folder, f"{path}/names", names, codec)
        arrays |= {f"names/{key}": entry for key, entry in text.items()}
    return BlockEntry(block.start, block.stop, int(block.counts().sum()), arrays)


def block_files(number: int, entry: BlockEntry) -> Iterator[tuple[str, int]]:
    """Yield the key of each file that `read_block` reads, in that order, and its decoded bytes."""
    for name in _PASS_ARRAYS:
        if name in entry.arrays:
            yield from chunk_files(f"{block_path(number)}/{name}", entry.arrays[name])


def read_block(
    folder: Folder,
    number: int,
    entry: BlockEntry,
    n_samples: int,
    buffers: Buffers | None = None,
    below: int | None = None,
    once: bool = False,
) -> Block:
    """Read and check a whole block, into `buffers` if given; refuse samples that are not `below`.

    With `once`, the read bypasses the page cache.
    """
    buffers = buffers or Buffers()  # a block that is kept needs memory of its own
    sparse = entry.is_sparse
    found = {
        name: read_array(
            folder,
            f"{block_path(number)}/{name}",
            entry.arrays[name],
            buffers=buffers,
            once=once,
            as_stored=sparse,
            below=below if name == "indices" else None,
        )
        for name in _PASS_ARRAYS
        if name in entry.arrays
    }
    _check_rows(folder, number, entry, found["means"], found["norms"], found.get("indptr"))
    decimals = entry.arrays["values"].places if sparse and "values" in found else None
    return Block(
        entry.start, entry.stop, n_samples, found.get("values"), found["means"], found["norms"],
        found.get("indptr"), found.get("indices"), found.get("counts"), decimals,
    )  # fmt: skip


@kernel
def rows_increase(indptr, indices):  # type: ignore[no-untyped-def]
    """Return whether the samples of every row increase."""
    for row in range(len(indptr) - 1):
        for position in range(np.uint64(indptr[row]) + np.uint64(1), np.uint64(indptr[row + 1])):
            if indices[position] <= indices[position - np.uint64(1)]:
                return False
    return True


def _check_rows(
    folder: Folder, number: int, entry: BlockEntry, means: np.ndarray, norms: np.ndarray, indptr: np.ndarray | None
) -> None:
    """Refuse moments that would turn scores into NaN, and pointers beyond the nonzeros, whatever the checksums say."""
    if not (np.isfinite(means).all() and np.isfinite(norms).all()):
        raise DamagedStore(f"{folder.url}: block {number}: a moment is not finite. {REMEDY}")
    if indptr is not None and (indptr[0] != 0 or indptr[-1] != entry.nnz or (indptr[1:] < indptr[:-1]).any()):
        raise DamagedStore(f"{folder.url}: block {number}: its pointers do not fit its indices. {REMEDY}")


def check_block(folder: Folder, number: int, entry: BlockEntry, n_samples: int) -> None:
    """Read everything that belongs to a block, including names and metadata; raise `DamagedStore` at the first fault.

    This also finds faults that pass the checksums and the checks of ordinary reads.
    """
    for name, array in entry.arrays.items():
        path = f"{block_path(number)}/{name}"
        check_metadata(folder, path, array)
        if name.startswith("names/"):
            read_array(folder, path, array)
    block = read_block(folder, number, entry, n_samples, below=n_samples, once=True)
    problem = None
    if block.counts().sum() != entry.nnz:
        problem = "it does not hold as many nonzeros as were written"
    elif block.values is not None and not np.isfinite(block.values).all():
        problem = "a value is not finite"
    elif block.indices is not None and not rows_increase(block.indptr, block.indices):
        problem = "the sample indices of a row do not increase"
    else:
        values = block.as_numbers().values
        is_dense = block.indptr is None
        moments = dense_moments(values) if is_dense else sparse_moments(block.indptr, values, n_samples)  # type: ignore[arg-type]
        if not np.allclose(moments, [block.means, block.norms], rtol=1e-6, atol=1e-12):
            problem = "its moments do not match its values"
    if problem is not None:
        raise DamagedStore(f"{folder.url}: block {number}: {problem}. {REMEDY}")


def read_block_rows(folder: Folder, number: int, entry: BlockEntry, n_samples: int, local: np.ndarray) -> Block:
    """Read some rows of a block (positions within it, increasing); decode only the chunks that hold them."""
    path = block_path(number)

    def whole(name: str) -> np.ndarray:
        return read_array(folder, f"{path}/{name}", entry.arrays[name])

    def ranges(name: str, starts: np.ndarray, stops: np.ndarray) -> np.ndarray | None:
        if name not in entry.arrays:
            return None
        below = n_samples if name == "indices" else None
        return read_ranges(folder, f"{path}/{name}", entry.arrays[name], starts, stops, below)

    means, norms = whole("means")[local], whole("norms")[local]
    pointers = whole("indptr").astype(np.int64) if entry.is_sparse else None
    _check_rows(folder, number, entry, means, norms, pointers)
    if pointers is None:
        counts = whole("counts")[local]
        return Block(0, len(local), n_samples, ranges("values", local, local + 1), means, norms, nonzeros=counts)
    starts, stops = pointers[local], pointers[local + 1]
    indptr = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.uint32)
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    indices = ranges("indices", starts, stops)
    return Block(0, len(local), n_samples, ranges("values", starts, stops), means, norms, indptr, indices)
