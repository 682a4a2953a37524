"""AnnData's ``.h5ad`` files (cells x genes or peaks), sparse or dense, some rows at a time; needs h5py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import row_cuts
from gdm_dask.ingestion.slab import Slab, dense_slab, loose_slab, row_slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import DENSE_FACTOR, IngestOptions, Source, SourceFacts, as_labels, only_file
from gdm_dask.ingestion.sources.table_columns import check_named
from gdm_dask.store.folder import file_info, open_file

#: Bytes of a nonzero in memory: value and index.
_NONZERO_BYTES = 8
_LAYOUTS = {"csr_matrix": "csr", "csc_matrix": "csc", "array": "dense"}


@dataclass(frozen=True)
class AnnDataFile(Source):
    """The matrix ``X`` of an ``.h5ad`` file; targets and weights are columns of its ``obs``."""

    suffixes = (".h5ad",)
    facts: SourceFacts
    path: str
    layout: str  # csr, csc or dense

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> AnnDataFile:
        """Open a file; `y` is the name of a column of ``obs``, an array, or the path of a file."""
        path = only_file(paths)
        info = file_info(path)
        with _opened(path) as file:
            matrix = file["X"]
            layout = _LAYOUTS.get(str(matrix.attrs.get("encoding-type", "")), "")
            if not layout:
                raise BadInput(f"{path}: X is not a matrix that can be read: write the file again with anndata")
            n_samples, n_features = map(int, matrix.shape if layout == "dense" else matrix.attrs["shape"])
            n_values = n_samples * n_features if layout == "dense" else len(matrix["data"])
            ids, names = (_column(file[table], file[table].attrs["_index"], path) for table in ("obs", "var"))
            obs = file["obs"]
            check_named(y, [str(name) for name in obs.attrs["column-order"]], f"{path}, obs")
            labels = _column(obs, y, path) if isinstance(y, str) and y in obs else y
            column = options.weight_column
            weights = _column(obs, column, path) if column is not None and column in obs else None
        if len(ids) != n_samples or len(names) != n_features:
            raise BadInput(f"{path}: obs and var have other sizes than X: write the file again with anndata")
        samples = ids.astype(str).tolist()
        facts = SourceFacts(
            "dense" if layout == "dense" else "sparse",
            {"format": f"h5ad {layout}", "files": [path], "target": y if isinstance(y, str) else None},
            {"files": [info]}, _NONZERO_BYTES * n_values, n_samples=n_samples, n_features=n_features,
            labels=as_labels(labels, n_samples, path, samples), sample_weight=weights,
            feature_names=names.astype(str).tolist(), sample_ids=samples,
        )  # fmt: skip
        return cls(facts, path, layout)

    def parts(self, max_bytes: int) -> Sequence[AnnDataRows]:
        """Return ranges of cells, or of features if the matrix is stored by columns."""
        n_samples, n_features = self.facts.n_samples or 0, self.facts.n_features or 0
        if self.layout == "dense":
            step = max(1, DENSE_FACTOR * max_bytes // max(1, _NONZERO_BYTES * n_features))
            cuts = [(start, min(start + step, n_samples)) for start in range(0, n_samples, step)]
            return [AnnDataRows(self.path, "dense", *cut, _NONZERO_BYTES * n_features * step) for cut in cuts]
        with _opened(self.path) as file:
            indptr = np.asarray(file["X/indptr"], np.int64)
        n_lines = n_samples if self.layout == "csr" else n_features
        if len(indptr) != n_lines + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise BadInput(f"{self.path}: X/indptr is damaged: write the file again with anndata")
        cuts = row_cuts(indptr, max(1, max_bytes // _NONZERO_BYTES))
        return [
            AnnDataRows(self.path, self.layout, *cut, _NONZERO_BYTES * int(indptr[cut[1]] - indptr[cut[0]]))
            for cut in cuts
        ]


@dataclass(frozen=True)
class AnnDataRows:
    """Some rows of the matrix, or columns if it is stored by columns."""

    path: str
    layout: str
    start: int
    stop: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""
        yield self._load

    def _load(self) -> Slab:
        with _opened(self.path) as file:
            matrix = file["X"]
            if self.layout == "dense":
                return dense_slab(matrix[self.start : self.stop], self.start)
            indptr = np.asarray(matrix["indptr"][self.start : self.stop + 1], np.int64)
            values, minor = (matrix[name][indptr[0] : indptr[-1]] for name in ("data", "indices"))
            size = int(matrix.attrs["shape"][1 if self.layout == "csr" else 0])
        complete = len(minor) == len(values) == indptr[-1] - indptr[0]
        if not complete or (len(minor) and not 0 <= minor.min() <= minor.max() < size):
            raise BadInput(f"{self.path}: X/indices is damaged: write the file again with anndata")
        major = samples_of(indptr - indptr[0])
        if self.layout == "csr":
            return row_slab(self.stop - self.start, minor, major, values, self.start)
        return loose_slab(major.astype(np.int64) + self.start, minor, values)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise BadInput(f"{path}: .h5ad needs h5py: pip install 'gdm_dask[anndata]'") from error
    try:
        with open_file(path) as raw, h5py.File(raw) as file:
            yield file
    except (OSError, KeyError, RuntimeError, TypeError) as error:
        raise BadInput(f"{path}: not a complete .h5ad file: {error}") from error


def _column(table: Any, name: str, path: str) -> np.ndarray:
    """Return a column of ``obs`` or ``var`` as AnnData stores it: an array, text, categories, or values with a mask."""
    column = table[name]
    values, missing = np.zeros(0), np.zeros(0, bool)
    kind = str(column.attrs.get("encoding-type", "array"))
    if kind == "categorical":
        codes = column["codes"][:]
        values, missing = _values(column["categories"])[codes], codes < 0
    elif kind.startswith("nullable"):
        values, missing = _values(column["values"]), column["mask"][:]
    else:
        values = _values(column)
    if missing.any():
        sample = int(missing.argmax())
        raise BadInput(f"{path}: column {name!r} of obs has no value for sample {sample} (counted from 0): fill it")
    return values


def _values(dataset: Any) -> np.ndarray:
    return np.asarray(dataset.asstr()[:].astype(str) if dataset.dtype.kind == "O" else dataset[:])
