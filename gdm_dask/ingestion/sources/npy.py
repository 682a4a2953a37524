"""Dense ``.npy`` matrices (samples x features)."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import IngestOptions, OneSlab, Source, dense_facts, only_file, reading, row_ranges
from gdm_dask.ingestion.sources.lines import read_into
from gdm_dask.store.folder import file_info, open_file
from gdm_dask.system.resources import read_header

#: Columns that are requested at the same time.
READERS = 16


class NpyMatrix(Source):
    """A dense ``.npy`` matrix, read slab by slab."""

    suffixes = (".npy",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> NpyMatrix:
        """Open a file."""
        path = only_file(paths)
        info = file_info(path)
        with reading(path, "a complete .npy matrix of numbers"):
            with open_file(path) as file:
                shape, by_columns, dtype = read_header(file)
                offset = file.tell()
            if offset + math.prod(shape) * dtype.itemsize > info["size"]:
                raise EOFError("the file ends too early")
            matrix = np.broadcast_to(np.zeros((), dtype), shape)

        def cut(max_bytes: int) -> list[OneSlab]:
            read = partial(_read_rows, path, offset, matrix.shape, dtype, by_columns)
            ranges = row_ranges(matrix, max_bytes)
            return [OneSlab(matrix[start:stop].nbytes, partial(read, start, stop)) for start, stop in ranges]

        return cls(dense_facts(matrix, y, path, {"format": "npy", "files": [path]}, {"files": [info]}), cut)


def _read_rows(
    path: str, offset: int, shape: tuple[int, int], dtype: np.dtype, by_columns: bool, start: int, stop: int
) -> Slab:
    """Read rows of the matrix that begins at `offset`; they are not mapped, to keep the memory use as planned."""
    n_samples, n_features = shape
    if by_columns:
        columns = np.empty((n_features, stop - start), dtype)
        places = [offset + (feature * n_samples + start) * dtype.itemsize for feature in range(n_features)]
        with ThreadPoolExecutor(READERS) as readers:
            list(readers.map(partial(read_into, path), places, columns))
        rows = columns.T
    else:
        rows = np.empty((stop - start, n_features), dtype)
        read_into(path, offset + start * n_features * dtype.itemsize, rows)
    return dense_slab(rows.astype(dtype.newbyteorder("="), copy=False), start)
