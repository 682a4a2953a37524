"""scipy ``.npz`` files: sparse matrices (samples x features), streamed."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, sparse_slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import IngestOptions, Source, SourceFacts, as_labels, only_file, reading
from gdm_dask.store.folder import file_info, open_file
from gdm_dask.system.resources import check_archive, default_memory_limit, read_header

_LABEL_KEYS = ("y", "labels", "label", "target")


class NpzMatrix(Source):
    """A sparse matrix written by ``scipy.sparse.save_npz`` (csr, csc or coo), streamed."""

    suffixes = (".npz",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> NpzMatrix:
        """Open a file; labels come from `y` or from an array ``y`` or ``labels`` in the file."""
        path = only_file(paths)
        info = file_info(path)
        with (
            reading(path, "a complete .npz file"),
            open_file(path) as file,
            np.load(file, allow_pickle=False) as archive,
        ):
            names = set(archive.files)
            if not {"format", "shape", "data"} <= names:
                raise BadInput(
                    f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it (it holds {sorted(names)}). Save "
                    "a dense matrix as .npy."
                )
            own = [key for key in _LABEL_KEYS if key in names and y is None][:1]
            check_archive(file, default_memory_limit(), {"format", "shape", *own})
            layout = np.asarray(archive["format"]).astype(str).item()
            if archive["shape"].shape != (2,):
                raise BadInput(f"{path}: expected a matrix of samples x features, got the shape {archive['shape']}")
            n_samples, n_features = (int(size) for size in archive["shape"])
            labels = archive[own[0]] if own else y
        if layout not in ("csr", "csc", "coo"):
            raise BadInput(f"{path}: a matrix in {layout} format cannot be read: save it as csr")
        facts = SourceFacts(
            "sparse", {"format": f"npz {layout}", "files": [path]}, {"files": [info]}, info["size"],
            n_samples=n_samples, n_features=n_features, labels=as_labels(labels, n_samples, path), scratch_factor=4,
        )  # fmt: skip
        shape = (n_samples, n_features)
        # One part: the file is read from start to end.
        return cls(facts, lambda max_bytes: [NpzEntries(path, layout, shape, max_bytes, info["size"])])


@dataclass(frozen=True)
class NpzEntries:
    """The entries of a scipy matrix in an ``.npz`` file, read from start to end."""

    path: str
    layout: str
    shape: tuple[int, int]
    run_bytes: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield slabs of rows (csr), of columns (csc) or of loose entries (coo)."""
        step = max(1, self.run_bytes // 8)
        keys = ("row", "col") if self.layout == "coo" else ("indices",)
        with reading(self.path, "a complete .npz file"), ExitStack() as opened:
            members = [opened.enter_context(_Member(self.path, key)) for key in (*keys, "data")]
            if self.layout == "coo":
                yield from self._loose(members, step)
            else:
                with _Member(self.path, "indptr") as pointers:
                    n_major = self.shape[0 if self.layout == "csr" else 1]
                    if pointers.length != n_major + 1:
                        raise ValueError("indptr does not fit the shape")
                    if 3 * 8 * n_major > default_memory_limit():
                        raise ValueError(f"the pointers of {n_major} rows or columns do not fit into memory")
                    indptr = pointers.read(pointers.length)
                yield from self._compressed(members, indptr, step)

    def _loose(self, members: list[_Member], step: int) -> Iterator[Callable[[], Slab]]:
        for start in range(0, max(members[0].length, 1), step):
            count = min(step, members[0].length - start)
            samples, features, values = (member.read(count) for member in members)
            self._check_range(samples, self.shape[0], "row")
            self._check_range(features, self.shape[1], "column")
            yield partial(sparse_slab, features, samples, values)

    def _compressed(self, members: list[_Member], indptr: np.ndarray, step: int) -> Iterator[Callable[[], Slab]]:
        by_rows = self.layout == "csr"
        n_major, n_minor = self.shape if by_rows else self.shape[::-1]
        indptr = indptr.astype(np.int64)
        if indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise ValueError("indptr does not fit the shape")
        begin = 0
        while begin < n_major:
            end = max(begin + 1, int(np.searchsorted(indptr, indptr[begin] + step, side="right")) - 1)
            minor, values = (member.read(int(indptr[end] - indptr[begin])) for member in members)
            self._check_range(minor, n_minor, "column" if by_rows else "row")
            major = samples_of(indptr[begin : end + 1] - indptr[begin])
            if by_rows:
                yield partial(sparse_slab, minor, major, values, end - begin, begin)
            else:
                yield partial(sparse_slab, major.astype(np.int64) + begin, minor, values)
            begin = end

    @staticmethod
    def _check_range(numbers: np.ndarray, size: int, name: str) -> None:
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
            raise ValueError(f"a {name} number is not between 0 and {size - 1}")


class _Member:
    """An array in a zip archive, read in pieces."""

    def __init__(self, path: str, key: str) -> None:
        with ExitStack() as opened:
            # A file of its own for each array: a remote file is then read from start to end.
            archive = zipfile.ZipFile(opened.enter_context(open_file(path)))
            self._file = opened.enter_context(archive.open(f"{key}.npy"))
            shape, _, self._dtype = read_header(self._file)
            if self._dtype.hasobject or self._dtype.kind not in "biuf":
                raise BadInput(f"{path}: array {key!r} holds {self._dtype}, not real numbers")
            self.length = math.prod(shape)
            self._opened = opened.pop_all()

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def read(self, count: int) -> np.ndarray:
        data = self._file.read(count * self._dtype.itemsize)
        if len(data) != count * self._dtype.itemsize:
            raise EOFError("an array ends too early")
        return np.frombuffer(data, self._dtype).astype(self._dtype.newbyteorder("="), copy=False)
