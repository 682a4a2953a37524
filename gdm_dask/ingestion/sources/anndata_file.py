"""AnnData's ``.h5ad`` files (cells x genes or peaks), sparse or dense, some rows at a time; needs h5py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import row_cuts
from gdm_dask.ingestion.slab import Slab, dense_slab, sparse_slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import (
    IngestOptions,
    OneSlab,
    Source,
    SourceFacts,
    as_labels,
    only_file,
    reading,
    row_ranges,
)
from gdm_dask.ingestion.sources.table_columns import check_named
from gdm_dask.store.folder import file_info, open_file
from gdm_dask.store.sample_tables import Column, numbered
from gdm_dask.store.target_files import missing_in

#: Bytes of a nonzero in memory: value and index.
_NONZERO_BYTES = 8
_LAYOUTS = {"csr_matrix": "csr", "csc_matrix": "csc", "array": "dense"}


class AnnDataFile(Source):
    """The matrix ``X`` of an ``.h5ad`` file; targets and weights are columns of its ``obs``."""

    suffixes = (".h5ad",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> AnnDataFile:
        """Open a file; `y` is the name of a column of ``obs``, an array, or the path of a file."""
        path = only_file(paths)
        info = file_info(path)
        with _opened(path) as file:
            if "X" not in file:
                raise BadInput(f"{path}: there is no matrix X: store the layer to use there")
            matrix = file["X"]
            # Before version 0.8, anndata wrote a dense matrix without its type.
            layout = _LAYOUTS.get(matrix.attrs.get("encoding-type", "array" if hasattr(matrix, "dtype") else ""))
            if layout is None:
                raise BadInput(f"{path}: X is not a matrix that can be read: write the file again with anndata")
            n_samples, n_features = map(int, matrix.shape if layout == "dense" else matrix.attrs["shape"])
            n_values = n_samples * n_features if layout == "dense" else len(matrix["data"])
            ids, names = (_column(file[table], file[table].attrs["_index"], path).refuse() for table in ("obs", "var"))
            obs = file["obs"]
            check_named(y, [str(name) for name in obs.attrs["column-order"]], f"{path}, obs")
            labels = _column(obs, y, path) if isinstance(y, str) and y in obs else y
            column = options.weight_column
            weights = _column(obs, column, path).refuse() if column is not None and column in obs else None
        if len(ids) != n_samples or len(names) != n_features:
            raise BadInput(f"{path}: obs and var have other sizes than X: write the file again with anndata")
        samples = ids.astype(str).tolist()
        facts = SourceFacts(
            "dense" if layout == "dense" else "sparse",
            {"format": f"h5ad {layout}", "files": [path], "target": y if isinstance(y, str) else None},
            {"files": [info]}, _NONZERO_BYTES * n_values, n_samples=n_samples, n_features=n_features,
            labels=as_labels(labels, n_samples, path, samples), sample_weight=weights,
            feature_names=names.astype(str).tolist(), sample_ids=samples, column=partial(_column_of_obs, path),
        )  # fmt: skip

        def cut(max_bytes: int) -> list[OneSlab]:
            if layout == "dense":
                indptr = n_features * np.arange(n_samples + 1)
                cuts = row_ranges(np.broadcast_to(0.0, (n_samples, n_features)), max_bytes)
            else:
                indptr = _pointers(path, n_samples if layout == "csr" else n_features)
                cuts = row_cuts(indptr, max(1, max_bytes // _NONZERO_BYTES))
            sizes = [_NONZERO_BYTES * int(indptr[stop] - indptr[start]) for start, stop in cuts]
            return [OneSlab(size, partial(_load, path, layout, *cut)) for cut, size in zip(cuts, sizes, strict=True)]

        return cls(facts, cut)


def _pointers(path: str, n_lines: int) -> np.ndarray:
    """Return the start of each row, or column, of a sparse matrix, and the end."""
    with _opened(path) as file:
        indptr = np.asarray(file["X/indptr"], np.int64)
    if len(indptr) != n_lines + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise BadInput(f"{path}: X/indptr is damaged: write the file again with anndata")
    return indptr


def _load(path: str, layout: str, start: int, stop: int) -> Slab:
    """Return some rows of the matrix, or columns if it is stored by columns."""
    with _opened(path) as file:
        matrix = file["X"]
        if layout == "dense":
            return dense_slab(matrix[start:stop], start)
        indptr = np.asarray(matrix["indptr"][start : stop + 1], np.int64)
        values, minor = (matrix[name][indptr[0] : indptr[-1]] for name in ("data", "indices"))
        size = int(matrix.attrs["shape"][1 if layout == "csr" else 0])
    complete = len(minor) == len(values) == indptr[-1] - indptr[0]
    if not complete or (len(minor) and not 0 <= minor.min() <= minor.max() < size):
        raise BadInput(f"{path}: X/indices is damaged: write the file again with anndata")
    major = samples_of(indptr - indptr[0])
    if layout == "csr":
        return sparse_slab(minor, major, values, stop - start, start)
    return sparse_slab(major.astype(np.int64) + start, minor, values)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise BadInput(f"{path}: .h5ad needs h5py: pip install 'gdm_dask[anndata]'") from error
    with reading(path, "a complete .h5ad file"), open_file(path) as raw, h5py.File(raw) as file:
        yield file


def _column_of_obs(path: str, name: str) -> Column | None:
    """Return a column of ``obs``, if there is one of this name."""
    with _opened(path) as file:
        return _column(file["obs"], name, path) if name in file["obs"] else None


def _column(table: Any, name: str, path: str) -> Column:
    """Return a column of ``obs`` or ``var`` as AnnData stores it: an array, text, categories, or values with a mask."""
    column = table[name]
    kind = str(column.attrs.get("encoding-type", "array"))
    if kind == "categorical" or "categories" in column.attrs:
        # Before version 0.8, anndata wrote the codes alone, with a reference to their categories.
        old = "categories" in column.attrs
        codes = column[:] if old else column["codes"][:]
        missing = codes < 0
        values = _values(table[column.attrs["categories"]] if old else column["categories"])[codes[~missing]]
    else:
        values = _values(column["values"] if kind.startswith("nullable") else column)
        missing = column["mask"][:] if kind.startswith("nullable") else missing_in(values)
        values = values[~missing]
    return Column(values, missing, numbered(f"{path}: column {name!r} of obs has no value"))


def _values(dataset: Any) -> np.ndarray:
    return np.asarray(dataset.asstr()[:].astype(str) if dataset.dtype.kind == "O" else dataset[:])
