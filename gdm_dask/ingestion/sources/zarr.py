"""Dense 2-D Zarr arrays (samples x features)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import DenseSource, IngestOptions, check_dense, only_file
from gdm_dask.store.folder import Folder, client_options, version_of


class ZarrMatrix(DenseSource):
    """A dense 2-D Zarr array."""

    suffixes = (".zarr",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> ZarrMatrix:
        """Open a folder."""
        import zarr

        path = only_file(paths)
        try:
            matrix = zarr.open_array(path, mode="r", storage_options=client_options(path) or None)
        except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError) as error:
            raise BadInput(f"{path}: not a Zarr array: {error}") from error
        check_dense(matrix, path)

        def rows(start: int, stop: int) -> ZarrRows:
            return ZarrRows(path, start, stop, (stop - start) * matrix.shape[1] * matrix.dtype.itemsize)

        identity = {"files": [_tree_info(path)]}
        return cls(matrix, rows, y, path, {"format": "zarr", "files": [path]}, identity, matrix.chunks[0])


def _tree_info(path: str) -> dict[str, Any]:
    """Return the size of the files below, and a checksum of their names, sizes and versions."""
    found = Folder(path).find()
    files = sorted((name, info["size"], version_of(info)) for name, info in found.items())
    return {"size": sum(info["size"] for info in found.values()), "changed": f"{crc32c(repr(files).encode()):08x}"}


@dataclass(frozen=True)
class ZarrRows:
    """Rows of a Zarr array."""

    path: str
    start: int
    stop: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""
        import zarr

        matrix = zarr.open_array(self.path, mode="r", storage_options=client_options(self.path) or None)
        yield lambda: dense_slab(np.asarray(matrix[self.start : self.stop]), self.start)
