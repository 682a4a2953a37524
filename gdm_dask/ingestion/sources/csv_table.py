"""Tables of numbers as text, ``.csv`` and ``.tsv`` (samples x features), parsed by pandas one byte range at a time."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.source import IngestOptions, Source, SourcePart, only_file
from gdm_dask.ingestion.sources.lines import Pieces, TextPart, joined, text_parts
from gdm_dask.ingestion.sources.table_columns import Columns, table_facts, tell_apart
from gdm_dask.store.folder import compression_of, open_file, open_text
from gdm_dask.store.sample_tables import separator_of

if TYPE_CHECKING:
    import pandas as pd


class CsvTable(Source):
    """A table with a header (``.csv``, ``.tsv``, also compressed); see `Columns`."""

    suffixes = (".csv", ".tsv")

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> CsvTable:
        """Open a file; `y` is the name of a column, an array, or the path of a file."""
        path = only_file(paths)
        separator, columns, header_bytes, row_bytes = _read_header(path, y, options)
        read, n_samples = dict[int, np.ndarray](), None
        if y is not None or columns.others:
            words = _read_words(path, separator, columns)
            n_samples = len(words)
            read = {place: np.char.strip(words[place].to_numpy(str)) for place in columns.others}
        factor = 20 if compression_of(path) else 4
        facts = table_facts(
            "csv", path, columns, y, read, n_samples, scratch_factor=factor, least_run_bytes=2 * row_bytes
        )
        parse = partial(_parse, path, separator, columns)
        return cls(facts, lambda max_bytes: text_parts(path, facts.nbytes or 0, max_bytes, parse, header_bytes))

    def changed(self, change: Callable[[Slab], Slab], **facts: Any) -> Source:
        """Return a source with other slabs, after counting the lines before each part."""
        return Source(self.facts, lambda max_bytes: _numbered(self.parts(max_bytes))).changed(change, **facts)


def _numbered(parts: Sequence[SourcePart]) -> list[SourcePart]:
    """Return the parts of a table with slabs that know their first sample."""
    found: list[SourcePart] = []
    newlines, last = 0, b"\n"
    for part in parts:
        assert isinstance(part, TextPart)
        parse = partial(part.parse, numbered=True)  # type: ignore[call-arg]
        if not compression_of(part.path):
            with open_file(part.path) as file:
                file.seek(found[-1].start if found else 0)  # type: ignore[attr-defined]
                while text := file.read(min(1 << 20, part.start - file.tell())):
                    newlines, last = newlines + text.count(b"\n"), text[-1:]
            parse = partial(parse, lines_before=newlines + (last != b"\n"))
        found.append(replace(part, parse=parse))
    return found


def _parse(
    path: str, separator: str, columns: Columns, pieces: Pieces, nbytes: int, numbered: bool = False,
    lines_before: int | None = None,
) -> Slab:  # fmt: skip
    import pandas as pd

    before, rows = joined(pieces)
    # From version 3.1 on, pandas always rounds correctly, and warns about the option.
    version = tuple(map(int, pd.__version__.split(".")[:2]))
    exact: Any = {} if version >= (3, 1) else {"float_precision": "round_trip"}
    if not rows.strip():
        return Slab(0, dense=np.zeros((0, len(columns.features))), first_sample=0)
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
        _check(path, separator, columns, rows, before)
        if problem:
            raise BadInput(f"{path}: the table cannot be read: {problem}")
    if not numbered:
        return Slab(len(values), dense=values)
    if len(values) != rows.count(b"\n") + (rows[-1:] != b"\n"):
        raise BadInput(f"{path}: some lines are empty: remove them, so that lines and samples have the same numbers")
    first = (before() if lines_before is None else lines_before) - 1
    return Slab(len(values), dense=values, first_sample=first)


def _check(path: str, separator: str, columns: Columns, rows: bytes, lines_before: Callable[[], int]) -> None:
    """Raise `BadInput` with the place of the first cell that is no number, or the first line of another length."""
    names = columns.names
    lines = csv.reader(io.StringIO(rows.decode(errors="replace")), delimiter=separator)
    reason = ""
    try:
        for row in filter(None, lines):
            wrong = [place for place in columns.features if place < len(row) and not _is_number(row[place])]
            if len(row) != len(names):
                reason = f": the line has {len(row)} fields, the header {len(names)}. Fields must be in one line."
            elif wrong:
                reason = f", column {names[wrong[0]]!r}: {row[wrong[0]]!r} is not a finite number. Replace it "
                reason += "(decimals follow a point), drop the column (--drop), or name it as the target (--target)."
            if reason:
                break
    except csv.Error as error:
        reason = f": {error}"
    if reason:
        raise BadInput(f"{path}, line {lines_before() + lines.line_num}{reason}")


def _is_number(word: str) -> bool:
    try:
        return "_" not in word and math.isfinite(float(word))  # 1_000 is a number in Python alone
    except ValueError:
        return False


def _read_header(path: str, y: Any, options: IngestOptions) -> tuple[str, Columns, int, int]:
    """Return the separator, the columns, the bytes of the first line, which names them, and of the longer of two."""
    with open_text(path) as lines:
        first, second = lines.readline(), lines.readline()
    try:
        text = first.decode("utf-8-sig").rstrip("\r\n")
        separator = "\t" if ".tsv" in path.lower() else separator_of(text)
        names = [name.strip() for name in next(csv.reader([text], delimiter=separator, strict=True), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"{path}, line 1: the names of columns cannot be read: {error}. Save it as UTF-8, with all names in the "
            "first line and a line per sample."
        ) from error
    if not any(names):
        raise BadInput(f"{path}, line 1: must name the columns, got an empty line")
    if all(map(_is_number, names)):
        raise BadInput(f"{path}, line 1: must name the columns, got the numbers {', '.join(names[:3])}, ...")
    columns = tell_apart(names, y, options, f"{path}, line 1")
    return separator, columns, len(first), max(len(first), len(second))


def _read_words(path: str, separator: str, columns: Columns) -> pd.DataFrame:
    """Read the columns that are not features as text; without any, the first column, to count the samples."""
    import pandas as pd

    wanted = columns.others or [0]
    with open_text(path) as lines:
        lines.readline()
        try:
            return pd.read_csv(
                lines, sep=separator, header=None, names=list(range(len(columns.names))), index_col=False,
                usecols=wanted, dtype=str, na_filter=False,
            )  # fmt: skip
        except pd.errors.EmptyDataError:
            return pd.DataFrame({place: [] for place in wanted}, dtype=str)
        except ValueError as error:
            raise BadInput(
                f"{path}: the table cannot be read: {error}. Save it as UTF-8, a line per sample."
            ) from error
