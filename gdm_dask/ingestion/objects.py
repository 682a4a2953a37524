"""Python objects as sources: NumPy and scipy matrices, Dask arrays, DataFrames (samples x features)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.features.values import as_array, as_floats
from gdm_dask.ingestion.slab import Slab, dense_slab, sparse_slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import (
    OneSlab,
    Source,
    SourceFacts,
    as_labels,
    check_dense,
    dense_facts,
    droppable,
    row_ranges,
)

#: A byte of a sparse matrix needs this many times less memory during an ingest than a byte of the densest text.
_SPARSE_FACTOR = 2


def is_dask(data: Any) -> bool:
    """Return whether an object is a Dask collection."""
    return hasattr(data, "dask") and hasattr(data, "compute")


def computed(values: Any) -> Any:
    """Return a Dask collection in memory; anything else unchanged."""
    return values.compute() if is_dask(values) else values


def as_pandas(data: Any) -> Any:
    """Return a table of Polars, Arrow or another library as a pandas DataFrame; anything else unchanged."""
    if hasattr(data, "collect"):
        raise BadInput(f"the {type(data).__name__} is not computed yet: pass the result of its `collect` method")
    if not hasattr(data, "to_pandas"):
        return data
    try:
        return data.to_pandas()
    except ModuleNotFoundError:  # Polars converts by Arrow's Python package, which need not be installed
        from pandas import DataFrame

        return DataFrame({name: data[name].to_numpy() for name in data.columns})


def without_columns(table: Any, drop: Sequence[str]) -> Any:
    """Return a table as a pandas or Dask DataFrame, without some columns."""
    frame = as_pandas(table)
    return frame.drop(columns=list(droppable(drop, frame.columns, "the DataFrame")))


def as_dask_matrix(X: Any) -> Any:
    """Return a samples x features collection as an array of known shape."""
    if hasattr(X, "to_dask_array"):
        X = (X.astype(common_type(X)) if hasattr(X, "columns") else X).to_dask_array(lengths=True)
    X = X.copy().compute_chunk_sizes() if any(np.isnan(size) for size in X.shape) else X
    if X.ndim != 2:
        raise BadInput(f"expected a matrix of samples x features, got a Dask array of shape {X.shape}")
    return X


def from_object(data: Any, y: Any) -> Source:
    """Return a source for an object in memory (or a Dask collection, read block by block)."""
    names = sample_ids = None
    if hasattr(data, "dtypes") and hasattr(data, "columns"):  # a pandas or Dask DataFrame
        names = [str(column) for column in data.columns]
        if hasattr(data, "to_dask_array"):
            data = as_dask_matrix(data)
        else:
            if not isinstance(data.index, sys.modules["pandas"].RangeIndex):
                sample_ids = [str(label) for label in data.index]
            data = frame_values(data)
    if is_dask(data):
        source = _from_dask(data, y)
    elif sp.issparse(data):
        source = _from_scipy(data, y)
    else:
        source = _from_numpy(data, y)
    source.facts = replace(source.facts, feature_names=names, sample_ids=sample_ids)
    return source


def common_type(frame: Any, where: str = "the DataFrame") -> np.dtype:
    """Return the NumPy type that holds all columns of a DataFrame."""
    found = []
    for column, kind in frame.dtypes.items():
        if getattr(kind, "kind", "O") not in "biuf":
            raise BadInput(
                f"column {str(column)!r} of {where} does not hold numbers: encode it, drop it, or name it as the target"
            )
        plain = getattr(kind, "subtype", kind)  # of sparse columns
        found.append(plain if isinstance(plain, np.dtype) else np.dtype(np.float64))  # nullable: NA becomes NaN
    return np.result_type(*found) if found else np.dtype(np.float64)


def frame_values(frame: Any, where: str = "the DataFrame") -> Any:
    """Return the values of a pandas DataFrame in one type that holds all of them; sparse ones stay sparse."""
    common = common_type(frame, where)
    if len(frame.columns) and all(getattr(kind, "fill_value", None) == 0 for kind in frame.dtypes):
        return frame.sparse.to_coo().tocsr()
    if common.kind == "f":
        refuse_rounded(frame, where)
        return frame.to_numpy(dtype=common, na_value=np.nan)
    return frame.to_numpy(dtype=common)


def refuse_rounded(frame: Any, where: str = "the DataFrame") -> None:
    """Refuse integers of a pandas DataFrame that would change in a matrix of floating-point numbers."""
    for position, kind in enumerate(frame.dtypes):
        if kind.kind in "iu":
            try:
                as_floats(frame.iloc[:, position].dropna().to_numpy(kind.type))
            except BadInput as error:
                raise BadInput(f"column {str(frame.columns[position])!r} of {where}: {error}") from error


def _from_scipy(data: Any, y: Any) -> Source:
    check_dense(data, "the input")
    matrix = _canonical(data)
    n_samples, n_features = matrix.shape
    nonzero_bytes = matrix.data.itemsize + matrix.indices.itemsize

    def cut(max_bytes: int) -> list[OneSlab]:
        cuts = row_cuts(matrix.indptr, max(1, _SPARSE_FACTOR * max_bytes // nonzero_bytes))
        sizes = [int(matrix.indptr[stop] - matrix.indptr[start]) * nonzero_bytes for start, stop in cuts]
        return [OneSlab(size, partial(_rows, matrix, *cut)) for cut, size in zip(cuts, sizes, strict=True)]

    facts = SourceFacts(
        "sparse", {"format": type(data).__name__}, _checksum(matrix.indptr, matrix.indices, matrix.data),
        matrix.nnz * nonzero_bytes, in_memory=True, n_samples=n_samples, n_features=n_features,
        labels=as_labels(y, n_samples, "the matrix"),
    )  # fmt: skip
    return Source(facts, cut)


def _from_numpy(data: Any, y: Any) -> Source:
    matrix = as_array(data, "the input")
    check_dense(matrix, "the input")
    facts = dense_facts(matrix, y, "the matrix", {"format": "ndarray"}, _checksum(matrix))

    def cut(max_bytes: int) -> list[OneSlab]:
        cuts = row_ranges(matrix, max_bytes)
        return [OneSlab(matrix[start:stop].nbytes, partial(_rows, matrix, start, stop)) for start, stop in cuts]

    return Source(replace(facts, in_memory=True), cut)


def _from_dask(data: Any, y: Any) -> Source:
    check_dense(data, "the Dask array")
    if any(np.isnan(size) for size in (*data.shape, *data.chunks[0])):
        raise BadInput("the Dask array has chunks of unknown size; call its compute_chunk_sizes() first")
    data = data.rechunk({1: -1})
    facts = dense_facts(
        data, computed(y), "the Dask array", {"format": "dask array"}, {"name": str(data.name)}, max(data.chunks[0])
    )
    is_sparse = sp.issparse(data._meta)
    if is_sparse:
        facts = replace(facts, kind="sparse", nbytes=None, least_run_bytes=0)

    def cut(max_bytes: int) -> list[OneSlab]:
        del max_bytes  # the array's own chunks are the units of work
        starts = np.concatenate([[0], np.cumsum(data.chunks[0])]).tolist()
        blocks = [data.blocks[k] for k in range(len(data.chunks[0]))]
        # A method of each block: Dask would find the block itself in the task, and compute it beforehand.
        return [
            OneSlab(0 if is_sparse else int(block.nbytes), partial(_computed_rows, block.compute, start))
            for block, start in zip(blocks, starts, strict=False)
        ]

    return Source(replace(facts, in_memory=True), cut)


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
        rows = as_array(rows, "the input")
        check_dense(rows, "the input")
        return dense_slab(rows, first_sample)
    rows = _canonical(rows)
    samples = samples_of(rows.indptr.astype(np.int64))
    return sparse_slab(rows.indices, samples, rows.data, rows.shape[0], first_sample)


def _canonical(rows: Any) -> sp.csr_array:
    """Return sparse rows without duplicates, their features in increasing order."""
    matrix = sp.csr_array(rows)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _rows(matrix: Any, start: int, stop: int) -> Slab:
    return matrix_slab(matrix[start:stop], start)


def _computed_rows(compute: Callable[[], Any], start: int) -> Slab:
    return matrix_slab(compute(), start)
