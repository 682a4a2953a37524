"""Write and check the blocks of a store: each is a Zarr group with one array for each part of its rows."""

from __future__ import annotations

import numpy as np

from gdm_dask.errors import DamagedStore
from gdm_dask.features.block import Block
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.values import fewest_decimals, shorten
from gdm_dask.store.arrays import REMEDY, check_metadata, read_array, write_array, write_group
from gdm_dask.store.folder import Folder
from gdm_dask.store.layout import BLOCK, BlockEntry
from gdm_dask.store.reader import read_block
from gdm_dask.store.texts import write_text
from gdm_dask.system.jit import kernel


def write_block(folder: Folder, number: int, block: Block, codec: str, names: list[str] | None = None) -> BlockEntry:
    """Write the arrays of a block, compare each with its bytes on disk, and return the manifest entry.

    Integers over a power of ten are shortened in place if possible: do not use the block afterwards.
    """
    path = BLOCK.format(number)
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


@kernel
def rows_increase(indptr, indices):  # type: ignore[no-untyped-def]
    """Return whether the samples of every row increase."""
    for row in range(len(indptr) - 1):
        for position in range(np.uint64(indptr[row]) + np.uint64(1), np.uint64(indptr[row + 1])):
            if indices[position] <= indices[position - np.uint64(1)]:
                return False
    return True


def check_block(folder: Folder, number: int, entry: BlockEntry, n_samples: int) -> None:
    """Read everything that belongs to a block, including names and metadata; raise `DamagedStore` at the first fault.

    This also finds faults that pass the checksums and the checks of ordinary reads.
    """
    for name, array in entry.arrays.items():
        path = f"{BLOCK.format(number)}/{name}"
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
