"""Python objects as sources: NumPy and scipy matrices, Dask arrays, DataFrames (samples x features)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.features.values import as_floats
from gdm_dask.ingestion.slab import Slab, dense_slab, row_slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import DENSE_FACTOR, CutSource, DenseSource, Source, SourceFacts, as_labels, check_dense

#: A byte of a sparse matrix needs this many times less memory during an ingest than a byte of the densest text.
_SPARSE_FACTOR = 2


def from_object(data: Any, y: Any) -> Source:
    """Return a source for an object in memory (or a Dask collection, read block by block)."""
    names = sample_ids = None
    if hasattr(data, "dtypes") and hasattr(data, "columns"):  # a pandas or Dask DataFrame
        names = [str(column) for column in data.columns]
        if hasattr(data, "to_dask_array"):
            data = data.astype(common_type(data)).to_dask_array(lengths=True)
        else:
            if not isinstance(data.index, sys.modules["pandas"].RangeIndex):
                sample_ids = [str(label) for label in data.index]
            data = frame_values(data)
    if hasattr(data, "dask"):
        source = _from_dask(data, y)
    elif sp.issparse(data):
        source = _from_scipy(data, y)
    else:
        source = _from_numpy(data, y)
    source.facts = replace(source.facts, feature_names=names, sample_ids=sample_ids)
    return source


def common_type(frame: Any) -> np.dtype:
    """Return the NumPy type that holds all columns of a DataFrame."""
    found = []
    for column, kind in frame.dtypes.items():
        plain = getattr(kind, "subtype", kind)
        if getattr(plain, "kind", "O") not in "biuf":
            raise BadInput(
                f"column {str(column)!r} of the DataFrame does not hold numbers: encode it first, or leave it out"
            )
        found.append(plain if isinstance(plain, np.dtype) else np.dtype(np.float64))  # nullable: NA becomes NaN
    return np.result_type(*found) if found else np.dtype(np.float64)


def frame_values(frame: Any) -> Any:
    """Return the values of a pandas DataFrame in one type that holds all of them; sparse columns stay sparse."""
    common = common_type(frame)
    if len(frame.columns) and all(hasattr(kind, "subtype") for kind in frame.dtypes):
        return frame.sparse.to_coo().tocsr()
    for position, kind in enumerate(frame.dtypes):
        if kind.kind in "iu" and common.kind == "f":
            as_floats(frame.iloc[:, position].dropna().to_numpy(kind.type))  # refuses values that a float cannot hold
    if common.kind == "f":
        return frame.to_numpy(dtype=common, na_value=np.nan)
    return frame.to_numpy(dtype=common)


def _from_scipy(data: Any, y: Any) -> Source:
    if data.ndim != 2 or data.dtype.kind not in "biuf":
        raise BadInput(f"expected a 2-D matrix of real numbers, got {data.dtype} of shape {data.shape}")
    matrix = sp.csr_array(data)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    n_samples, n_features = matrix.shape
    nbytes = matrix.data.nbytes + matrix.indices.nbytes

    def cut(max_bytes: int) -> list[MatrixRows]:
        target = max(1, _SPARSE_FACTOR * max_bytes * matrix.nnz // max(nbytes, 1))
        return [MatrixRows(matrix, start, stop) for start, stop in row_cuts(matrix.indptr, target)]

    facts = SourceFacts(
        "sparse", {"format": type(data).__name__}, _checksum(matrix.indptr, matrix.indices, matrix.data), nbytes,
        in_memory=True, n_samples=n_samples, n_features=n_features, labels=as_labels(y, n_samples, "the matrix"),
    )  # fmt: skip
    return CutSource(facts, cut)


def _from_numpy(data: Any, y: Any) -> Source:
    matrix = np.asarray(data)
    check_dense(matrix, "the input")
    return DenseSource(
        matrix, lambda start, stop: MatrixRows(matrix, start, stop), y, "the matrix", {"format": "ndarray"},
        _checksum(matrix), in_memory=True,
    )  # fmt: skip


def _from_dask(data: Any, y: Any) -> Source:
    if data.ndim != 2:
        raise BadInput(f"expected a Dask array with 2 dimensions (samples x features), got {data.ndim}")
    if any(np.isnan(size) for size in (*data.shape, *data.chunks[0])):
        raise BadInput("the Dask array has chunks of unknown size; call its compute_chunk_sizes() first")
    data = data.rechunk({1: -1})
    n_samples, n_features = data.shape
    if hasattr(y, "dask"):
        y = y.compute()
    is_sparse = sp.issparse(data._meta)

    def cut(max_bytes: int) -> list[DaskRows]:
        del max_bytes  # the array's own chunks are the units of work
        starts = np.concatenate([[0], np.cumsum(data.chunks[0])])
        blocks = [data.blocks[k] for k in range(len(data.chunks[0]))]
        return [
            DaskRows(block.compute, int(start), 0 if is_sparse else int(block.nbytes))
            for block, start in zip(blocks, starts, strict=False)
        ]

    facts = SourceFacts(
        "sparse" if is_sparse else "dense", {"format": "dask array"}, {"name": str(data.name)},
        None if is_sparse else int(data.nbytes), in_memory=True, n_samples=n_samples, n_features=n_features,
        labels=as_labels(y, n_samples, "the Dask array"),
        least_run_bytes=0 if is_sparse else int(data.nbytes) // n_samples * max(data.chunks[0]) // DENSE_FACTOR,
    )  # fmt: skip
    return CutSource(facts, cut)


def _checksum(*arrays: np.ndarray) -> dict[str, Any]:
    """Return the identity of arrays in memory, so that an ingest resumes only with the same content."""
    return {"crc32c": [crc32c(np.ascontiguousarray(array).data) for array in arrays]}


def row_cuts(indptr: np.ndarray, target: int) -> list[tuple[int, int]]:
    """Cut rows into ranges with about `target` nonzeros each.

    >>> row_cuts(np.array([0, 2, 4, 6]), 4)
    [(0, 2), (2, 3)]
    """
    wanted = np.arange(target, max(int(indptr[-1]), 1), target)
    inner = np.searchsorted(indptr, wanted)
    bounds = np.unique(np.concatenate([[0], inner, [len(indptr) - 1]]))
    return [(int(a), int(b)) for a, b in itertools.pairwise(bounds)]


def matrix_slab(rows: Any, first_sample: int) -> Slab:
    """Return a slab of dense or sparse rows of samples."""
    if not sp.issparse(rows):
        rows = np.asarray(rows)
        check_dense(rows, "the input")
        return dense_slab(rows, first_sample)
    rows = sp.csr_array(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    samples = samples_of(rows.indptr.astype(np.int64))
    return row_slab(rows.shape[0], rows.indices, samples, rows.data, first_sample)


@dataclass(frozen=True)
class MatrixRows:
    """Rows of a matrix in memory."""

    matrix: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        if sp.issparse(self.matrix):
            nnz = int(self.matrix.indptr[self.stop] - self.matrix.indptr[self.start])
            return nnz * int(self.matrix.data.itemsize + self.matrix.indices.itemsize)
        return (self.stop - self.start) * int(self.matrix.shape[1] * self.matrix.itemsize)

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""
        yield lambda: matrix_slab(self.matrix[self.start : self.stop], self.start)


@dataclass(frozen=True)
class DaskRows:
    """A block of rows of a Dask array, computed when it is loaded.

    It holds a method of the array instead of the array, which Dask would find in the task and compute beforehand.
    """

    compute: Callable[[], Any]
    start: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""
        yield lambda: matrix_slab(self.compute(), self.start)
