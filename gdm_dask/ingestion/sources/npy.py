"""Dense ``.npy`` matrices (samples x features)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import DenseSource, IngestOptions, only_file
from gdm_dask.ingestion.sources.lines import read_into
from gdm_dask.store.folder import file_info, open_file
from gdm_dask.system.resources import BAD_ARRAYS, read_header

#: Columns that are requested at the same time.
READERS = 16


class NpyMatrix(DenseSource):
    """A dense ``.npy`` matrix, read slab by slab."""

    suffixes = (".npy",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> NpyMatrix:
        """Open a file."""
        path = only_file(paths)
        info = file_info(path)
        try:
            with open_file(path) as file:
                shape, by_columns, dtype = read_header(file)
                offset = file.tell()
            if offset + math.prod(shape) * dtype.itemsize > info["size"]:
                raise EOFError("the file ends too early")
            matrix = np.broadcast_to(np.zeros((), dtype), shape)
        except (ValueError, *BAD_ARRAYS) as error:
            raise BadInput(f"{path}: not a complete .npy matrix of numbers: {error}") from error

        def rows(start: int, stop: int) -> NpyRows:
            return NpyRows(path, offset, dtype, matrix.shape, by_columns, start, stop)

        return cls(matrix, rows, y, path, {"format": "npy", "files": [path]}, {"files": [info]})


@dataclass(frozen=True)
class NpyRows:
    """Rows of a matrix in a ``.npy`` file; read, not mapped, to keep the memory use as planned."""

    path: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, int]
    by_columns: bool
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return (self.stop - self.start) * self.shape[1] * self.dtype.itemsize

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""
        yield self._load

    def _load(self) -> Slab:
        n_samples, n_features = self.shape
        n_rows, itemsize = self.stop - self.start, self.dtype.itemsize
        if not self.by_columns:
            rows = np.empty((n_rows, n_features), self.dtype)
            read_into(self.path, self.offset + self.start * n_features * itemsize, rows)
            return dense_slab(rows.astype(self.dtype.newbyteorder("="), copy=False), self.start)
        columns = np.empty((n_features, n_rows), self.dtype)
        starts = [self.offset + (feature * n_samples + self.start) * itemsize for feature in range(n_features)]
        with ThreadPoolExecutor(READERS) as readers:
            list(readers.map(partial(read_into, self.path), starts, columns))
        return dense_slab(columns.astype(self.dtype.newbyteorder("="), copy=False).T, self.start)
