"""Tables of numbers as text, ``.csv`` and ``.tsv`` (samples x features), parsed by pandas one byte range at a time."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.source import IngestOptions, Source, SourceFacts, as_labels, only_file
from gdm_dask.ingestion.sources.lines import (
    COMPRESSIONS,
    DAMAGED,
    compression_of,
    count_lines,
    lines_of,
    unpacked_lines,
)
from gdm_dask.ingestion.sources.table_columns import Columns, filled_column, tell_apart
from gdm_dask.store.folder import file_info, open_file

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = ",;\t"


@dataclass(frozen=True)
class _Layout:
    """Separator, columns, and the bytes of the first line, which names the columns."""

    separator: str
    columns: Columns
    header_bytes: int


@dataclass(frozen=True)
class CsvTable(Source):
    """A table with a header (``.csv``, ``.tsv``, also compressed); see `Columns`."""

    suffixes = (".csv", ".tsv")
    facts: SourceFacts
    path: str
    layout: _Layout

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> CsvTable:
        """Open a file; `y` is the name of a column, an array, or the path of a file."""
        path = only_file(paths)
        info = file_info(path)
        layout, row_bytes = _read_header(path, y, options.weight_column)
        columns = layout.columns
        labels, weights, ids, n_samples = y, None, None, None
        if y is not None or columns.others:
            read = _read_words(path, layout)
            n_samples = len(read)
            labels = y if columns.target is None else filled_column(read[columns.target].to_numpy(str), y, path)
            if columns.weights is not None:
                weights = filled_column(read[columns.weights].to_numpy(str), columns.names[columns.weights], path)
            ids = None if columns.ids is None else read[columns.ids].tolist()
        facts = SourceFacts(
            "dense", {"format": "csv", "files": [path], "target": y if columns.target is not None else None},
            {"files": [info]}, info["size"], n_samples=n_samples, n_features=len(columns.features),
            labels=as_labels(labels, n_samples or 0, path, ids), sample_weight=weights,
            feature_names=columns.feature_names, sample_ids=ids,
            scratch_factor=20 if compression_of(path) else 4, least_run_bytes=2 * row_bytes,
        )  # fmt: skip
        return cls(facts, path, layout)

    def parts(self, max_bytes: int) -> list[CsvRows]:
        """Return byte ranges of a plain file, or a compressed file as one part."""
        size, begin = self.facts.nbytes, self.layout.header_bytes
        assert size is not None
        if compression_of(self.path):
            return [CsvRows(self.path, 0, size, max_bytes, self.layout)]
        ranges = byte_ranges(size - begin, max_bytes)
        return [CsvRows(self.path, begin + start, begin + stop, max_bytes, self.layout) for start, stop in ranges]


@dataclass(frozen=True)
class CsvRows:
    """Rows of a table: a byte range of a plain file, or all of a compressed one."""

    path: str
    start: int
    stop: int
    run_bytes: int
    layout: _Layout

    @property
    def nbytes(self) -> int:
        """Bytes of source."""
        return self.stop - self.start

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab of a plain file, several of a compressed one."""
        if not compression_of(self.path):
            yield self._load_range
            return
        skip, line = self.layout.header_bytes, 0
        for buffer in unpacked_lines(self.path, self.run_bytes):
            rows = buffer[skip:]
            yield partial(self._parse, rows, partial(int, line + (skip > 0)))
            line += buffer.count(b"\n")
            skip = 0

    def _load_range(self) -> Slab:
        rows = lines_of(self.path, self.start, self.stop, self.run_bytes)
        return self._parse(rows, partial(count_lines, self.path, self.start))

    def _parse(self, rows: bytes, lines_before: Callable[[], int]) -> Slab:
        columns, separator = self.layout.columns, self.layout.separator
        import pandas as pd

        # From version 3.1 on, pandas always rounds correctly, and warns about the option.
        version = tuple(map(int, pd.__version__.split(".")[:2]))
        exact: Any = {} if version >= (3, 1) else {"float_precision": "round_trip"}
        if not rows.strip():
            return Slab(0, dense=np.zeros((0, len(columns.features))))
        try:
            frame = pd.read_csv(
                io.BytesIO(rows), sep=separator, header=None, names=list(range(len(columns.names))), index_col=False,
                usecols=columns.features, dtype=np.float64, na_filter=False, **exact,
            )  # fmt: skip
            values, problem = frame.to_numpy(), ""
        except (ValueError, OverflowError) as error:
            values, problem = np.full((1, 1), np.nan), str(error)
        n_separators = len(values) * (len(columns.names) - 1)
        if rows.count(separator.encode()) != n_separators or not np.isfinite(values).all():
            self._check(rows, lines_before)
            if problem:
                raise BadInput(f"{self.path}: the table cannot be read: {problem}")
        return Slab(len(values), dense=values)

    def _check(self, rows: bytes, lines_before: Callable[[], int]) -> None:
        """Raise `BadInput` with the place of the first cell that is no number, or the first line of another length."""
        names, features = self.layout.columns.names, self.layout.columns.features
        lines = csv.reader(io.StringIO(rows.decode(errors="replace")), delimiter=self.layout.separator)
        reason = ""
        try:
            for row in filter(None, lines):
                wrong = [place for place in features if place < len(row) and not _is_number(row[place])]
                if len(row) != len(names):
                    reason = f": the line has {len(row)} fields, the header {len(names)}. Fields must be in one line."
                elif wrong:
                    reason = f", column {names[wrong[0]]!r}: {row[wrong[0]]!r} is not a finite number. Replace it, or "
                    reason += "leave the column out."
                if reason:
                    break
        except csv.Error as error:
            reason = f": {error}"
        if reason:
            raise BadInput(f"{self.path}, line {lines_before() + lines.line_num}{reason}")


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _read_header(path: str, y: Any, weights: str | None) -> tuple[_Layout, int]:
    """Read the names of the columns; return the layout, and the bytes of the longer of the first two lines."""
    with open_file(path) as file:
        lines = _unpacked(path, file)
        try:
            first, second = lines.readline(), lines.readline()
        except DAMAGED as error:
            raise BadInput(f"{path}: the compressed data is damaged or cut off ({error}). Fetch it again.") from error
    try:
        text = first.decode("utf-8-sig").rstrip("\r\n")
        separator = "\t" if ".tsv" in path.lower() else max(_SEPARATORS, key=text.count)
        names = [name.strip() for name in next(csv.reader([text], delimiter=separator), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}, line 1: the names of the columns cannot be read: {error}") from error
    if not any(names):
        raise BadInput(f"{path}, line 1: must name the columns, got an empty line")
    if all(map(_is_number, names)):
        raise BadInput(f"{path}, line 1: must name the columns, got the numbers {', '.join(names[:3])}, ...")
    columns = tell_apart(names, y, weights, f"{path}, line 1")
    return _Layout(separator, columns, len(first)), max(len(first), len(second))


def _unpacked(path: str, file: IO[bytes]) -> IO[bytes]:
    suffix = compression_of(path)
    return io.BufferedReader(file) if suffix is None else COMPRESSIONS[suffix](file)  # type: ignore[type-var]


def _read_words(path: str, layout: _Layout) -> pd.DataFrame:
    """Read the columns that are not features as text; without any, the first column, to count the samples."""
    import pandas as pd

    columns = layout.columns
    wanted = columns.others or [0]
    with open_file(path) as file:
        lines = _unpacked(path, file)
        try:
            lines.readline()
            return pd.read_csv(
                lines, sep=layout.separator, header=None, names=list(range(len(columns.names))), index_col=False,
                usecols=wanted, dtype=str, na_filter=False,
            )  # fmt: skip
        except pd.errors.EmptyDataError:
            return pd.DataFrame({place: [] for place in wanted}, dtype=str)
        except (ValueError, *DAMAGED) as error:
            raise BadInput(f"{path}: the table cannot be read: {error}") from error
