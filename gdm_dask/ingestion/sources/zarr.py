"""Dense 2-D Zarr arrays (samples x features)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import (
    IngestOptions,
    OneSlab,
    Source,
    dense_facts,
    only_file,
    reading,
    row_ranges,
)
from gdm_dask.store.folder import Folder, client_options, version_of


class ZarrMatrix(Source):
    """A dense 2-D Zarr array."""

    suffixes = (".zarr",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> ZarrMatrix:
        """Open a folder."""
        path = only_file(paths)
        with reading(path, "a Zarr array", "Give one dense 2-D array; write AnnData as .h5ad"):
            matrix = _opened(path)

        def cut(max_bytes: int) -> list[OneSlab]:
            row_bytes = matrix.shape[1] * matrix.dtype.itemsize
            ranges = row_ranges(matrix, max_bytes, matrix.chunks[0])
            return [OneSlab((stop - start) * row_bytes, partial(_read, path, start, stop)) for start, stop in ranges]

        description, identity = {"format": "zarr", "files": [path]}, {"files": [_tree_info(path)]}
        return cls(dense_facts(matrix, y, path, description, identity, matrix.chunks[0]), cut)


def _opened(path: str) -> Any:
    import zarr

    return zarr.open_array(path, mode="r", storage_options=client_options(path) or None)


def _read(path: str, start: int, stop: int) -> Slab:
    with reading(path, "a complete Zarr array"):
        return dense_slab(np.asarray(_opened(path)[start:stop]), start)


def _tree_info(path: str) -> dict[str, Any]:
    """Return the size of the files below, and a checksum of their names, sizes and versions."""
    found = Folder(path).find()
    files = sorted((name, info["size"], version_of(info)) for name, info in found.items())
    return {"size": sum(info["size"] for info in found.values()), "changed": f"{crc32c(repr(files).encode()):08x}"}
