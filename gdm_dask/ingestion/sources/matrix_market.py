"""Matrix Market files as sources (samples x features), parsed by scipy one byte range at a time.

Files of Cell Ranger hold features x samples, and have their names in lists beside them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab, loose_slab
from gdm_dask.ingestion.source import IngestOptions, Source, SourceFacts, as_labels, only_file
from gdm_dask.ingestion.sources.cell_ranger import lists_beside
from gdm_dask.ingestion.sources.lines import (
    LONG_LINE,
    compression_of,
    count_lines,
    lines_of,
    unpacked_lines,
)
from gdm_dask.store.folder import file_info

_HEADER_BYTES = 1 << 16
_BLANK_LINE = re.compile(rb"(?:^|\n)[ \t\r]*\n")


@dataclass(frozen=True)
class _Header:
    field: str
    n_rows: int
    n_columns: int
    n_entries: int
    n_bytes: int
    n_lines: int


@dataclass(frozen=True)
class MatrixMarket(Source):
    """A Matrix Market coordinate file (``.mtx``, ``.mtx.gz``, ...), samples x features unless `is_transposed`."""

    suffixes = (".mtx",)
    facts: SourceFacts
    path: str
    header: _Header
    is_transposed: bool = False

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> MatrixMarket:
        """Open a file."""
        path = only_file(paths)
        info = file_info(path)
        header = _read_header(path, info["size"])
        lists = lists_beside(path)
        n_samples, n_features, names, ids, infos = header.n_rows, header.n_columns, None, None, [info]
        if lists is not None:
            n_samples, n_features, names, ids = n_features, n_samples, lists.features, lists.cells
            infos += map(file_info, lists.files)
            for file, found, size in zip(lists.files, (names, ids), (n_features, n_samples), strict=True):
                if len(found) != size:
                    raise BadInput(f"{file}: {len(found)} lines, but {path} has {size}: do they belong together?")
        facts = SourceFacts(
            "sparse", {"format": "matrix market", "files": [path]}, {"files": infos}, info["size"],
            n_samples=n_samples, n_features=n_features, n_entries=header.n_entries, feature_names=names,
            sample_ids=ids, labels=as_labels(y, n_samples, path, ids), scratch_factor=6 if compression_of(path) else 1,
        )  # fmt: skip
        return cls(facts, path, header, lists is not None)

    def parts(self, max_bytes: int) -> list[MarketEntries]:
        """Return byte ranges of a plain file, or a compressed file as one part."""
        size, begin = self.facts.nbytes, self.header.n_bytes
        assert size is not None
        ranges = [(0, size - begin)] if compression_of(self.path) else byte_ranges(size - begin, max_bytes)
        return [
            MarketEntries(self.path, begin + start, begin + stop, max_bytes, self.header, self.is_transposed)
            for start, stop in ranges
        ]


def _read_header(path: str, size: int) -> _Header:
    if compression_of(path):
        first = next(unpacked_lines(path, _HEADER_BYTES), b"")
    else:
        first = lines_of(path, 0, min(size, _HEADER_BYTES), LONG_LINE)
    lines = io.BytesIO(first)
    banner = lines.readline().decode("latin-1").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise BadInput(f"{path}, line 1: not a Matrix Market file")
    _, _, layout, field, symmetry = banner
    if layout != "coordinate" or field not in ("real", "integer", "pattern") or symmetry != "general":
        raise BadInput(
            f"{path}, line 1: must be 'coordinate real|integer|pattern general', got "
            f"{' '.join(banner[2:])!r}. Convert it with scipy.io.mmwrite(..., symmetry='general')."
        )
    line, number = lines.readline(), 2
    while line.startswith(b"%") or (line and not line.strip()):
        line, number = lines.readline(), number + 1
    try:
        n_rows, n_columns, n_entries = (int(word) for word in line.split())
    except ValueError:
        raise BadInput(f"{path}, line {number}: the sizes (rows columns entries) are missing") from None
    return _Header(field, n_rows, n_columns, n_entries, lines.tell(), number)


@dataclass(frozen=True)
class MarketEntries:
    """Entries of a Matrix Market file: a byte range of a plain file, or all of a compressed one."""

    path: str
    start: int
    stop: int
    run_bytes: int
    header: _Header
    is_transposed: bool

    @property
    def nbytes(self) -> int:
        """Bytes of source."""
        return self.stop - self.start

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab of a plain file, several of a compressed one."""
        if not compression_of(self.path):
            yield self._load_range
            return
        skip, line = self.start, self.header.n_lines
        for buffer in unpacked_lines(self.path, self.run_bytes):
            entries = buffer[skip:]
            yield partial(self._parse, entries, partial(int, line))
            line += entries.count(b"\n")
            skip = 0

    def _load_range(self) -> Slab:
        buffer = lines_of(self.path, self.start, self.stop, self.run_bytes)
        return self._parse(buffer, partial(count_lines, self.path, self.start))

    def _parse(self, buffer: bytes, lines_before: Callable[[], int]) -> Slab:
        from scipy.io import mmread

        if buffer and not buffer.endswith(b"\n"):
            buffer += b"\n"
        if b"\0" in buffer:  # scipy's parser takes it for the end of the text and reads beyond the buffer
            number = buffer.count(b"\n", 0, buffer.index(b"\0"))
            raise BadInput(f"{self.path}, line {lines_before() + number + 1}: there is a zero byte")
        count = buffer.count(b"\n")
        if _BLANK_LINE.search(buffer):
            count = sum(1 for line in buffer.splitlines() if line.strip())
        # Parse as real numbers: as integers, scipy would truncate 2.5 to 2.
        field = "pattern" if self.header.field == "pattern" else "real"
        sizes = f"{self.header.n_rows} {self.header.n_columns} {count}"
        text = f"%%MatrixMarket matrix coordinate {field} general\n{sizes}\n".encode()
        try:
            entries = mmread(io.BytesIO(text + buffer), spmatrix=False)
        except (ValueError, OverflowError) as error:
            raise self._bad_line(str(error), buffer, lines_before) from None
        samples, features = entries.coords[::-1] if self.is_transposed else entries.coords
        return loose_slab(features, samples, np.asarray(entries.data, np.float64), len(entries.data))

    def _bad_line(self, problem: str, buffer: bytes, lines_before: Callable[[], int]) -> BadInput:
        """Return the error that scipy found in a piece of the file, with its line in the whole file."""
        found = re.match(r"Line (\d+): (.*)", problem)
        if found is None:
            return BadInput(f"{self.path}: an entry cannot be read: {problem}")
        number = int(found[1]) - 3  # the two lines that we prepend
        text = buffer.split(b"\n", number + 1)[number][:60].decode("latin-1")
        return BadInput(f"{self.path}, line {lines_before() + number + 1}: {found[2].rstrip('.')} (in: {text!r})")
