"""Python objects as sources: NumPy and scipy matrices, Dask arrays, DataFrames (samples x features)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import Source, as_labels

#: scipy and NumPy slabs hold bare arrays, which need less work space than text of the same size.
_OBJECT_FACTOR = 2


def from_object(data: Any, y: Any) -> Source:
    """A source for an object in memory (or a Dask collection, read block by block)."""
    names = sample_ids = None
    if hasattr(data, "dask") and hasattr(data, "to_dask_array"):  # dask DataFrame
        names = [str(column) for column in data.columns]
        data = data.to_dask_array(lengths=True)
    elif isinstance(data, pd.DataFrame):
        names = [str(column) for column in data.columns]
        if not isinstance(data.index, pd.RangeIndex):
            sample_ids = [str(label) for label in data.index]
        data = _frame_values(data)
    if hasattr(data, "dask"):
        source = _from_dask(data, y)
    elif sp.issparse(data):
        source = _from_scipy(data, y)
    else:
        source = _from_numpy(data, y)
    source.feature_names, source.sample_ids = names, sample_ids
    return source


def _frame_values(frame: pd.DataFrame) -> Any:
    wrong = [str(column) for column, kind in frame.dtypes.items() if getattr(kind, "subtype", kind).kind not in "biuf"]
    if wrong:
        raise BadInput(f"column {wrong[0]!r} of the DataFrame does not hold numbers: encode it first, or leave it out")
    if len(frame.columns) and all(isinstance(kind, pd.SparseDtype) for kind in frame.dtypes):
        return frame.sparse.to_coo().tocsr()
    return frame.to_numpy()


def _from_scipy(data: Any, y: Any) -> Source:
    matrix = sp.csr_array(data)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    n_samples, n_features = matrix.shape
    nbytes = matrix.data.nbytes + matrix.indices.nbytes

    def jobs(run_bytes: int) -> list[Any]:
        cuts = _row_cuts(matrix.indptr, max(1, _OBJECT_FACTOR * run_bytes * matrix.nnz // max(nbytes, 1)))
        return [MatrixRows(matrix, start, stop) for start, stop in cuts]

    return Source(
        "sparse", jobs, nbytes, {"format": type(data).__name__}, _checksum(matrix.indptr, matrix.indices, matrix.data),
        in_memory=True, n_samples=n_samples,
        n_features=n_features, labels=as_labels(y, n_samples, "the matrix"),
    )  # fmt: skip


def _from_numpy(data: Any, y: Any) -> Source:
    matrix = np.asarray(data)
    if matrix.ndim != 2:
        raise BadInput(f"a matrix of samples x features is needed, not an array of shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise BadInput(f"a matrix of numbers is needed, not one of {matrix.dtype}")
    n_samples, n_features = matrix.shape

    def jobs(run_bytes: int) -> list[Any]:
        step = max(1, _OBJECT_FACTOR * run_bytes // max(1, matrix.itemsize * n_features))
        return [MatrixRows(matrix, k, min(k + step, n_samples)) for k in range(0, n_samples, step)]

    return Source(
        "dense", jobs, matrix.nbytes, {"format": "ndarray"}, _checksum(matrix), in_memory=True, n_samples=n_samples,
        n_features=n_features, labels=as_labels(y, n_samples, "the matrix"),
    )  # fmt: skip


def _from_dask(data: Any, y: Any) -> Source:
    if data.ndim != 2:
        raise BadInput(f"a matrix of samples x features is needed, not a Dask array of {data.ndim} dimensions")
    if any(np.isnan(size) for size in (*data.shape, *data.chunks[0])):
        raise BadInput("the Dask array has chunks of unknown size: call its compute_chunk_sizes() first")
    data = data.rechunk({1: -1})
    n_samples, n_features = data.shape
    if hasattr(y, "dask"):
        y = y.compute()
    meta_sparse = sp.issparse(data._meta)

    def jobs(run_bytes: int) -> list[Any]:
        del run_bytes  # the array's own chunks are the units of work
        return [DaskRows(data.blocks[k], size) for k, size in enumerate(data.chunks[0])]

    return Source(
        "sparse" if meta_sparse else "dense", jobs, int(data.nbytes), {"format": "dask array"},
        {"name": str(data.name)}, in_memory=True,
        n_samples=n_samples, n_features=n_features, labels=as_labels(y, n_samples, "the Dask array"),
    )  # fmt: skip


def _checksum(*arrays: np.ndarray) -> dict[str, Any]:
    """Identity of arrays in memory, so that an ingest goes on only with the same content."""
    return {"crc32c": [crc32c(np.ascontiguousarray(array)) for array in arrays]}


def _row_cuts(indptr: np.ndarray, target: int) -> list[tuple[int, int]]:
    """Ranges of rows with about `target` nonzeros each."""
    wanted = np.arange(target, max(int(indptr[-1]), 1), target)
    inner = np.searchsorted(indptr, wanted)
    bounds = np.unique(np.concatenate([[0], inner, [len(indptr) - 1]]))
    return [(int(a), int(b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)] or [(0, 0)]


def matrix_slab(rows: Any, first_sample: int = 0) -> Slab:
    """A slab of rows of samples, dense or CSR; refuses NaN and infinity by name."""
    if not sp.issparse(rows):
        check_finite(rows, first_sample)
        return Slab(rows.shape[0], dense=rows)
    rows = sp.csr_array(rows)
    samples = samples_of(rows.indptr.astype(np.int64))
    check_finite(rows.data, first_sample, samples, rows.indices)
    return nonzero_slab(rows.shape[0], rows.indices.astype(np.uint32), samples, rows.data)


def nonzero_slab(n_samples: int, features: np.ndarray, samples: np.ndarray, values: np.ndarray) -> Slab:
    """A slab of nonzeros, without those that are zero after all."""
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if not np.all(values):
        kept = values != 0
        features, samples, values = features[kept], samples[kept], values[kept]
    return Slab(n_samples, None, features, samples, values)


def check_finite(
    values: np.ndarray, first_sample: int, samples: np.ndarray | None = None, features: np.ndarray | None = None
) -> None:
    """Raise `BadInput` that names the sample and the feature of the first NaN or infinity."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    if samples is None or features is None:
        sample, feature = np.argwhere(~np.isfinite(values))[0]
    else:
        bad = np.flatnonzero(~np.isfinite(values))[0]
        sample, feature = samples[bad], features[bad]
    raise BadInput(
        f"sample {first_sample + int(sample)}, feature {int(feature)} is NaN or infinity: "
        "replace or remove such values first"
    )


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
            return nnz * (self.matrix.data.itemsize + self.matrix.indices.itemsize)
        return (self.stop - self.start) * self.matrix.shape[1] * self.matrix.itemsize

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""
        yield lambda: matrix_slab(self.matrix[self.start : self.stop], self.start)


@dataclass(frozen=True)
class DaskRows:
    """A block of rows of a Dask array, computed when it is loaded."""

    rows: Any
    n_samples: int

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return int(self.rows.nbytes)

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""
        yield lambda: matrix_slab(self.rows.compute())
