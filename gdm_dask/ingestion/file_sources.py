"""Matrix files as sources: scipy .npz, Matrix Market, .npy and dense Zarr arrays (samples x features)."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import pandas as pd
import zarr

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.object_sources import check_finite, matrix_slab, nonzero_slab
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import Source, as_labels
from gdm_dask.ingestion.text_source import compression_of, file_info, read_lines, unpacked_buffers

_LABEL_KEYS = ("y", "labels", "label", "target")


def npy_source(path: str, y: Any) -> Source:
    """A dense ``.npy`` matrix, mapped and read slab by slab."""
    info = file_info(path)
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise BadInput(f"{path}: not a .npy matrix: {error}") from error
    return _dense_source(path, y, matrix, {"format": "npy", "files": [path]}, info)


def zarr_source(path: str, y: Any) -> Source:
    """A dense 2-D Zarr array."""
    try:
        matrix = zarr.open_array(path, mode="r")
    except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError) as error:
        raise BadInput(f"{path}: not a Zarr array: {error}") from error
    return _dense_source(path, y, matrix, {"format": "zarr", "files": [path]}, {})


def _dense_source(path: str, y: Any, matrix: Any, description: dict, info: dict) -> Source:
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise BadInput(f"{path}: a 2-D matrix of numbers is needed, not {matrix.dtype} of shape {matrix.shape}")
    n_samples, n_features = matrix.shape
    row_bytes = max(1, matrix.dtype.itemsize * n_features)

    def jobs(run_bytes: int) -> list[Any]:
        step = max(1, run_bytes // row_bytes)
        step = step // getattr(matrix, "chunks", (1,))[0] * getattr(matrix, "chunks", (1,))[0] or step
        return [DenseFileRows(path, k, min(k + step, n_samples), row_bytes) for k in range(0, n_samples, step)]

    return Source(
        "dense", jobs, n_samples * row_bytes, description, {"files": [info]}, n_samples=n_samples,
        n_features=n_features, labels=as_labels(y, n_samples, path),
    )  # fmt: skip


@dataclass(frozen=True)
class DenseFileRows:
    """Rows of a matrix in a ``.npy`` file or a Zarr array."""

    path: str
    start: int
    stop: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return (self.stop - self.start) * self.row_bytes

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""

        def load() -> Slab:
            npy = self.path.endswith(".npy")
            matrix = np.load(self.path, mmap_mode="r") if npy else zarr.open_array(self.path, mode="r")
            return matrix_slab(np.asarray(matrix[self.start : self.stop]), self.start)

        yield load


def npz_source(path: str, y: Any) -> Source:
    """A sparse matrix that ``scipy.sparse.save_npz`` wrote (csr, csc or coo), streamed.

    Labels come from `y` or from an array ``y`` or ``labels`` in the same file.
    """
    info = file_info(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = set(archive.files)
            if not {"format", "shape", "data"} <= names:
                raise BadInput(
                    f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it (it holds {sorted(names)})"
                )
            layout = str(
                archive["format"].item().decode() if archive["format"].dtype.kind == "S" else archive["format"]
            )
            n_samples, n_features = (int(size) for size in archive["shape"])
            labels = y if y is not None else next((archive[key] for key in _LABEL_KEYS if key in names), None)
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError) as error:
        raise BadInput(f"{path}: not a whole .npz file: {error}") from error
    if layout not in ("csr", "csc", "coo"):
        raise BadInput(f"{path}: a matrix in {layout} format cannot be read: save it as csr")

    def jobs(run_bytes: int) -> list[Any]:
        return [NpzMatrix(path, layout, run_bytes, info["size"])]

    return Source(
        "sparse", jobs, info["size"], {"format": f"npz {layout}", "files": [path]}, {"files": [info]},
        n_samples=n_samples, n_features=n_features, labels=as_labels(labels, n_samples, path),
    )  # fmt: skip


@dataclass(frozen=True)
class NpzMatrix:
    """A scipy matrix in an ``.npz`` file, read from beginning to end."""

    path: str
    layout: str
    run_bytes: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Slabs of rows (csr), of columns (csc) or of loose entries (coo)."""
        step = max(1, self.run_bytes // 8)
        keys = ("row", "col") if self.layout == "coo" else ("indices",)
        try:
            with zipfile.ZipFile(self.path) as archive:
                streams = [_Member(archive, key) for key in (*keys, "data")]
                if self.layout == "coo":
                    bounds = np.append(np.arange(0, streams[0].length, step), streams[0].length)
                    yield from self._entries(streams, bounds)
                else:
                    indptr = _Member(archive, "indptr").read_all().astype(np.int64)
                    yield from self._compressed(streams, indptr, step)
        except (zipfile.BadZipFile, ValueError, EOFError, KeyError) as error:
            raise BadInput(f"{self.path}: the file is damaged or cut off: {error}. Save or fetch it again.") from error

    def _entries(self, streams: list[_Member], bounds: np.ndarray) -> Iterator[Callable[[], Slab]]:
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            samples, features, values = (stream.read(int(stop - start)) for stream in streams)
            yield partial(_loose_slab, features, samples, values)

    def _compressed(self, streams: list[_Member], indptr: np.ndarray, step: int) -> Iterator[Callable[[], Slab]]:
        row = 0
        while row < len(indptr) - 1:
            end = max(row + 1, int(np.searchsorted(indptr, indptr[row] + step, side="right")) - 1)
            indices, values = (stream.read(int(indptr[end] - indptr[row])) for stream in streams)
            major = samples_of(indptr[row : end + 1] - indptr[row])
            if self.layout == "csr":
                yield partial(_row_slab, end - row, row, indices, major, values)
            else:
                yield partial(_loose_slab, major.astype(np.int64) + row, indices, values)
            row = end


class _Member:
    """An array in a zip archive, read piece by piece."""

    def __init__(self, archive: zipfile.ZipFile, key: str) -> None:
        self._file: IO[bytes] = archive.open(f"{key}.npy")
        version = np.lib.format.read_magic(self._file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, self._dtype = read_header(self._file)
        if self._dtype.hasobject or self._dtype.kind not in "biuf":
            raise BadInput(f"array {key!r} holds {self._dtype}, not numbers")
        self.length = int(np.prod(shape))

    def read(self, count: int) -> np.ndarray:
        data = self._file.read(count * self._dtype.itemsize)
        if len(data) != count * self._dtype.itemsize:
            raise EOFError("an array ends too early")
        return np.frombuffer(data, self._dtype)

    def read_all(self) -> np.ndarray:
        return self.read(self.length)


def _row_slab(n_samples: int, first: int, features: np.ndarray, samples: np.ndarray, values: np.ndarray) -> Slab:
    check_finite(values, first, samples, features)
    return nonzero_slab(n_samples, features.astype(np.uint32), samples, values)


def _loose_slab(features: np.ndarray, samples: np.ndarray, values: np.ndarray) -> Slab:
    check_finite(values, 0, samples, features)
    return nonzero_slab(0, features.astype(np.uint32), samples.astype(np.uint32), values)


def matrix_market_source(path: str, y: Any) -> Source:
    """A Matrix Market coordinate file (``.mtx``, ``.mtx.gz``, ...), samples x features."""
    info = file_info(path)
    field, n_samples, n_features, body = _read_market_header(path)

    def jobs(run_bytes: int) -> list[Any]:
        size = info["size"]
        if compression_of(path):
            return [MarketEntries(path, body, size, run_bytes, field, (n_samples, n_features))]
        return [
            MarketEntries(path, body + start, body + stop, run_bytes, field, (n_samples, n_features))
            for start, stop in byte_ranges(size - body, run_bytes)
        ]

    return Source(
        "sparse", jobs, info["size"], {"format": "matrix market", "files": [path]}, {"files": [info]},
        n_samples=n_samples, n_features=n_features, labels=as_labels(y, n_samples, path),
    )  # fmt: skip


def _read_market_header(path: str) -> tuple[str, int, int, int]:
    """(field, rows, columns, bytes before the entries) of a Matrix Market file."""
    first = next(unpacked_buffers(path, 1 << 16), b"") if compression_of(path) else read_lines(path, 0, 1 << 16)
    lines = io.BytesIO(first)
    banner = lines.readline().decode("latin-1").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise BadInput(f"{path}, line 1: not a Matrix Market file")
    _, _, layout, field, symmetry = banner
    if layout != "coordinate" or field not in ("real", "integer", "pattern") or symmetry != "general":
        raise BadInput(
            f"{path}, line 1: only 'coordinate real|integer|pattern general' can be read, not {' '.join(banner[2:])}"
        )
    line, number = lines.readline(), 2
    while line.startswith(b"%") or (line and not line.strip()):
        line, number = lines.readline(), number + 1
    try:
        n_samples, n_features, _ = (int(word) for word in line.split())
    except ValueError:
        raise BadInput(f"{path}, line {number}: the sizes (rows columns entries) are missing") from None
    return field, n_samples, n_features, lines.tell()


@dataclass(frozen=True)
class MarketEntries:
    """Entries of a Matrix Market file: a byte range of a plain one, or all of a compressed one."""

    path: str
    start: int
    stop: int
    run_bytes: int
    field: str
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of source."""
        return self.stop - self.start

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab of a plain file, several of a compressed one."""
        if not compression_of(self.path):
            yield lambda: self._parse(read_lines(self.path, self.start, self.stop))
            return
        skip = self.start
        for buffer in unpacked_buffers(self.path, self.run_bytes):
            yield partial(self._parse, buffer[skip:])
            skip = 0

    def _parse(self, buffer: bytes) -> Slab:
        names = ["row", "column"] if self.field == "pattern" else ["row", "column", "value"]
        try:
            table = pd.read_csv(
                io.BytesIO(buffer), sep=r"\s+", header=None, names=names, engine="c", float_precision="round_trip",
                comment="%", dtype={"row": np.int64, "column": np.int64, "value": np.float64}, index_col=False,
            )  # fmt: skip
        except pd.errors.EmptyDataError:
            table = pd.DataFrame({name: np.zeros(0) for name in names})
        except (ValueError, pd.errors.ParserError) as error:
            raise BadInput(f"{self.path}: an entry cannot be read: {error}") from error
        samples, features = table["row"].to_numpy() - 1, table["column"].to_numpy() - 1
        for name, numbers, size in (("row", samples, self.shape[0]), ("column", features, self.shape[1])):
            wrong = (numbers < 0) | (numbers >= size)
            if wrong.any():
                raise BadInput(f"{self.path}: {name} {int(numbers[wrong][0]) + 1} is not between 1 and {size}")
        values = np.ones(len(table)) if self.field == "pattern" else table["value"].to_numpy()
        return _loose_slab(features, samples, values)
