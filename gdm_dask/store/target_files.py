"""Read targets from files."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.store.folder import Url, open_file, options_of
from gdm_dask.system.resources import BAD_ARRAYS, read_header

#: One column of a table: ``cells.csv:cell_type``.
_COLUMN = re.compile(r"(.+\.(?:csv|tsv)):([^:/]+)", re.IGNORECASE)


def check_targets(y: Any, n_samples: int, where: str, ids: Sequence[str] | None = None) -> np.ndarray:
    """Return targets with one entry per sample; `y` is an array, or the path of a file (see `read_targets`)."""
    if isinstance(y, (str, os.PathLike)):
        where = os.fspath(y)
        values = read_targets(where, n_samples, ids=ids)
    else:
        values = np.asarray(y)
    if values.ndim == 0:
        raise BadInput(f"{where}: labels must have shape (n_samples,), got {values.shape}")
    if len(values) != n_samples:
        raise BadInput(f"{where}: {len(values)} labels for {n_samples} samples")
    return values


def read_targets(path: str, n_samples: int, what: str = "labels", ids: Sequence[str] | None = None) -> np.ndarray:
    """Read targets: ``.npy``, a table (``.csv``, ``.tsv``) with a column per output, or text with one value per line.

    ``cells.csv:cell_type`` is one column of a table. If the first column holds all sample `ids`, the lines may be in
    any order, among lines of other samples. A text with `n_samples` + 1 lines has a header. `what` names the content in
    messages.
    """
    if path.endswith(".npy"):
        with _readable(path, what), open_file(path) as file:
            return _read_array(file)
    path, column = split_column(path)
    rows = read_words(path, what)
    for row in rows:
        if len(row) != len(rows[0]):
            raise BadInput(
                f"{path}: lines have {len(rows[0])} and {len(row)} values. Give every sample the same number of values."
            )
    names = rows[0] if rows else []
    if column is not None and column not in names:
        raise BadInput(f"{path}: there is no column {column!r}; the columns are {', '.join(names)}")
    chosen = slice(0, None) if column is None else slice(names.index(column), names.index(column) + 1)
    found = _of_samples(rows, ids, path) if ids and len(names) > 1 else None
    if found is not None:
        rows, chosen = found, slice(max(1, chosen.start), chosen.stop)
    elif column is not None or len(rows) == n_samples + 1:
        del rows[0]
    words = np.array([row[chosen] for row in rows])
    refuse_missing((words == "").reshape(len(words), -1).any(axis=1), f"{path}: there is no value")
    return as_columns(words)


def refuse_missing(missing: np.ndarray, what: str) -> None:
    """Refuse values that are missing for some samples; `missing` is a mask, and `what` the beginning of the message."""
    if missing.any():
        others = int(missing.sum()) - 1
        raise BadInput(
            f"{what} for sample {missing.argmax()} (counted from 0){f' and {others:,} others' if others else ''}: fill "
            "it in, or leave these samples out of the data"
        )


def split_column(path: str) -> tuple[str, str | None]:
    """Return a path without the name of a column, and that name.

    >>> split_column("cells.csv:cell_type"), split_column("cells.csv")
    (('cells.csv', 'cell_type'), ('cells.csv', None))
    """
    found = _COLUMN.fullmatch(path)
    return (Url(found[1], options_of(path)), found[2]) if found else (path, None)


def _of_samples(rows: list[list[str]], ids: Sequence[str], path: str) -> list[list[str]] | None:
    """Return the line of each sample by the id in its first column; None if it does not hold ids."""
    lines = {row[0]: row for row in rows}
    missing = [sample for sample in ids if sample not in lines]
    if 2 * len(missing) > len(ids):
        return None
    if missing:
        raise BadInput(
            f"{path}: there is no line for sample {missing[0]!r} and {len(missing) - 1} others: add them, or leave "
            "these samples out of the data"
        )
    if len(lines) < len(rows):
        raise BadInput(f"{path}: some samples have more than one line. Give each sample one line.")
    return [lines[sample] for sample in ids]


def read_words(path: str, what: str = "labels") -> list[list[str]]:
    """Return the words of each line of a ``.csv`` or ``.tsv`` file; of any other, each line as one word.

    Skips empty lines.
    """
    delimiter = {".csv": ",", ".tsv": "\t"}.get(os.path.splitext(path)[1].lower())
    with _readable(path, what), open_file(path) as file:
        text = io.StringIO(file.read().decode("utf-8-sig"), newline="")
        lines = csv.reader(text, delimiter=delimiter) if delimiter else ([line.strip()] for line in text)
        return [[word.strip() for word in row] for row in lines if any(row)]


def as_columns(words: np.ndarray) -> np.ndarray:
    """Return a table of words as numbers if all are; a single column as a vector."""
    values = words[:, 0] if words.ndim == 2 and words.shape[1] == 1 else words
    try:
        return values.astype(np.float64)
    except ValueError:
        return values


@contextmanager
def _readable(path: str, what: str) -> Iterator[None]:
    """Name the file whose content cannot be read."""
    try:
        yield
    except BadInput:
        raise
    except (ValueError, csv.Error, *BAD_ARRAYS) as error:
        raise BadInput(f"{path}: {what} cannot be read: {error}") from error


def _read_array(file: IO[bytes]) -> np.ndarray:
    """Read an array in NumPy's format; memory is allocated for the bytes that the file holds, not for its shape."""
    shape, by_columns, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    numbers = np.frombuffer(bytearray(file.read()), dtype, math.prod(shape))
    return numbers.reshape(shape, order="F" if by_columns else "C")
