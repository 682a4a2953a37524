"""Dense 2-D Zarr arrays (samples x features)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import DenseSource, IngestOptions, check_dense, only_file
from gdm_dask.store.folder import client_options


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
    """Return size and latest change of a local folder's files."""
    stats = [os.stat(os.path.join(place, name)) for place, _, names in os.walk(path) for name in names]
    return {"size": sum(s.st_size for s in stats), "changed": str(max((s.st_mtime for s in stats), default=0))}


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
