"""Matrix files as sources: dense .npy and Zarr arrays, scipy .npz (samples x features)."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.files import file_info, read_into
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.slabs import dense_slab, loose_slab, row_slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import Source, as_labels

_LABEL_KEYS = ("y", "labels", "label", "target")

#: A byte of a dense matrix takes this many times less memory on its way than the densest text.
DENSE_FACTOR = 4


def npy_source(path: str, y: Any) -> Source:
    """A dense ``.npy`` matrix, read slab by slab."""
    info = file_info(path)
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BadInput(f"{path}: not a whole .npy matrix of numbers: {error}") from error
    check_dense(matrix, path)
    offset, by_columns = matrix.offset, not matrix.flags.c_contiguous

    def rows(start: int, stop: int) -> NpyRows:
        return NpyRows(path, offset, matrix.dtype, matrix.shape, by_columns, start, stop)

    return dense_source(matrix, rows, y, path, {"format": "npy", "files": [path]}, {"files": [info]})


def zarr_source(path: str, y: Any) -> Source:
    """A dense 2-D Zarr array."""
    import zarr

    try:
        matrix = zarr.open_array(path, mode="r")
    except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError) as error:
        raise BadInput(f"{path}: not a Zarr array: {error}") from error
    check_dense(matrix, path)

    def rows(start: int, stop: int) -> ZarrRows:
        return ZarrRows(path, start, stop, (stop - start) * matrix.shape[1] * matrix.dtype.itemsize)

    identity = {"files": [_tree_info(path)]}
    return dense_source(matrix, rows, y, path, {"format": "zarr", "files": [path]}, identity, matrix.chunks[0])


def _tree_info(path: str) -> dict[str, Any]:
    """Size and newest change of a local folder's files."""
    stats = [os.stat(os.path.join(place, name)) for place, _, names in os.walk(path) for name in names]
    return {"size": sum(s.st_size for s in stats), "changed": str(max((s.st_mtime for s in stats), default=0))}


def check_dense(matrix: Any, where: str) -> None:
    """Refuse what is not a 2-D matrix of real numbers."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise BadInput(
            f"{where}: a matrix of real numbers, samples x features, is needed, not {matrix.dtype} of shape "
            f"{matrix.shape}"
        )


def dense_source(
    matrix: Any, rows: Callable[[int, int], Any], y: Any, where: str, description: dict, identity: dict,
    chunk: int = 1, in_memory: bool = False,
) -> Source:  # fmt: skip
    """A source of rows of a dense matrix, cut into jobs of whole chunks where there are such.

    Parameters
    ----------
    matrix : array of shape (n_samples, n_features)
        Only its shape and type are looked at.
    rows : callable
        The job for samples ``start`` to ``stop``.
    chunk : int
        Samples in a chunk of the matrix.
    """
    n_samples, n_features = matrix.shape
    # whole numbers are looked at as float64
    itemsize = matrix.dtype.itemsize if matrix.dtype.kind in "bf" or matrix.dtype == np.uint8 else 8
    row_bytes = max(1, n_features * itemsize)

    def jobs(run_bytes: int) -> list[Any]:
        step = max(1, DENSE_FACTOR * run_bytes // row_bytes // chunk) * chunk
        return [rows(k, min(k + step, n_samples)) for k in range(0, n_samples, step)]

    return Source(
        "dense", jobs, n_samples * n_features * matrix.dtype.itemsize, description, identity, in_memory=in_memory,
        n_samples=n_samples, n_features=n_features, labels=as_labels(y, n_samples, where),
        least_run_bytes=min(chunk, n_samples) * row_bytes // DENSE_FACTOR,
    )  # fmt: skip


@dataclass(frozen=True)
class NpyRows:
    """Rows of a matrix in a ``.npy`` file; read, not mapped, so that the memory is what was planned."""

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
        """One slab."""
        yield self._load

    def _load(self) -> Slab:
        n_samples, n_features = self.shape
        n_rows, itemsize = self.stop - self.start, self.dtype.itemsize
        if not self.by_columns:
            rows = np.empty((n_rows, n_features), self.dtype)
            read_into(self.path, self.offset + self.start * n_features * itemsize, rows)
            return dense_slab(rows.astype(self.dtype.newbyteorder("="), copy=False), self.start)
        columns = np.empty((n_features, n_rows), self.dtype)
        for feature, column in enumerate(columns):
            read_into(self.path, self.offset + (feature * n_samples + self.start) * itemsize, column)
        return dense_slab(columns.astype(self.dtype.newbyteorder("="), copy=False).T, self.start)


@dataclass(frozen=True)
class ZarrRows:
    """Rows of a Zarr array."""

    path: str
    start: int
    stop: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""
        import zarr

        matrix = zarr.open_array(self.path, mode="r")
        yield lambda: dense_slab(np.asarray(matrix[self.start : self.stop]), self.start)


def npz_source(path: str, y: Any) -> Source:
    """A sparse matrix that ``scipy.sparse.save_npz`` wrote (csr, csc or coo), streamed.

    Labels come from `y` or from an array ``y`` or ``labels`` in the same file.
    """
    info = file_info(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            names = set(archive.files)
            if not {"format", "shape", "data"} <= names:
                raise BadInput(
                    f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it (it holds {sorted(names)})"
                )
            layout = np.asarray(archive["format"]).astype(str).item()
            n_samples, n_features = (int(size) for size in archive["shape"])
            labels = y if y is not None else next((archive[key] for key in _LABEL_KEYS if key in names), None)
    except (*_NPZ_ERRORS, OSError, AttributeError) as error:
        raise BadInput(f"{path}: not a whole .npz file: {error}") from error
    if layout not in ("csr", "csc", "coo"):
        raise BadInput(f"{path}: a matrix in {layout} format cannot be read: save it as csr")

    def jobs(run_bytes: int) -> list[Any]:
        return [NpzMatrix(path, layout, (n_samples, n_features), run_bytes, info["size"])]

    return Source(
        "sparse", jobs, info["size"], {"format": f"npz {layout}", "files": [path]}, {"files": [info]},
        n_samples=n_samples, n_features=n_features, labels=as_labels(labels, n_samples, path), scratch_factor=4,
    )  # fmt: skip


_NPZ_ERRORS = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError)


@dataclass(frozen=True)
class NpzMatrix:
    """A scipy matrix in an ``.npz`` file, read from beginning to end."""

    path: str
    layout: str
    shape: tuple[int, int]
    run_bytes: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Slabs of rows (csr), of columns (csc) or of loose entries (coo)."""
        step = max(1, self.run_bytes // 8)
        keys = ("row", "col") if self.layout == "coo" else ("indices",)
        try:
            with ExitStack() as opened:
                archive = opened.enter_context(zipfile.ZipFile(self.path))
                members = [opened.enter_context(_Member(archive, key)) for key in (*keys, "data")]
                if self.layout == "coo":
                    yield from self._loose(members, step)
                else:
                    with _Member(archive, "indptr") as pointers:
                        indptr = pointers.read(pointers.length)
                    yield from self._compressed(members, indptr, step)
        except BadInput:
            raise
        except _NPZ_ERRORS as error:
            raise BadInput(f"{self.path}: the file is damaged or cut off: {error}. Save or fetch it again.") from error

    def _loose(self, members: list[_Member], step: int) -> Iterator[Callable[[], Slab]]:
        for start in range(0, max(members[0].length, 1), step):
            count = min(step, members[0].length - start)
            samples, features, values = (member.read(count) for member in members)
            self._check_range(samples, self.shape[0], "row")
            self._check_range(features, self.shape[1], "column")
            yield partial(loose_slab, features, samples, values)

    def _compressed(self, members: list[_Member], indptr: np.ndarray, step: int) -> Iterator[Callable[[], Slab]]:
        by_rows = self.layout == "csr"
        n_major, n_minor = self.shape if by_rows else self.shape[::-1]
        indptr = indptr.astype(np.int64)
        if len(indptr) != n_major + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise ValueError("indptr does not fit the shape")
        begin = 0
        while begin < n_major:
            end = max(begin + 1, int(np.searchsorted(indptr, indptr[begin] + step, side="right")) - 1)
            minor, values = (member.read(int(indptr[end] - indptr[begin])) for member in members)
            self._check_range(minor, n_minor, "column" if by_rows else "row")
            major = samples_of(indptr[begin : end + 1] - indptr[begin])
            if by_rows:
                yield partial(row_slab, end - begin, minor, major, values, begin)
            else:
                yield partial(loose_slab, major.astype(np.int64) + begin, minor, values)
            begin = end

    @staticmethod
    def _check_range(numbers: np.ndarray, size: int, name: str) -> None:
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
            raise ValueError(f"a {name} number is not between 0 and {size - 1}")


class _Member:
    """An array in a zip archive, read piece by piece."""

    def __init__(self, archive: zipfile.ZipFile, key: str) -> None:
        self._file: IO[bytes] = archive.open(f"{key}.npy")
        try:
            self._read_header(archive, key)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _read_header(self, archive: zipfile.ZipFile, key: str) -> None:
        version = np.lib.format.read_magic(self._file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, self._dtype = read_header(self._file)
        if self._dtype.hasobject or self._dtype.kind not in "biuf":
            raise BadInput(f"{archive.filename}: array {key!r} holds {self._dtype}, not real numbers")
        self.length = int(np.prod(shape))

    def read(self, count: int) -> np.ndarray:
        data = self._file.read(count * self._dtype.itemsize)
        if len(data) != count * self._dtype.itemsize:
            raise EOFError("an array ends too early")
        return np.frombuffer(data, self._dtype).astype(self._dtype.newbyteorder("="), copy=False)
