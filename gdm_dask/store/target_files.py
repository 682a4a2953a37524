"""Read targets from files."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.store.folder import open_file
from gdm_dask.system.resources import BAD_ARRAYS, read_header


def check_targets(y: Any, n_samples: int, where: str) -> np.ndarray:
    """Return targets with one entry per sample; `y` is an array, or the path of a file."""
    if isinstance(y, (str, os.PathLike)):
        where = os.fspath(y)
        values = read_targets(where, n_samples)
    else:
        values = np.asarray(y)
    if values.ndim == 0:
        raise BadInput(f"{where}: labels must have shape (n_samples,), got {values.shape}")
    if len(values) != n_samples:
        raise BadInput(f"{where}: {len(values)} labels for {n_samples} samples")
    return values


def read_targets(path: str, n_samples: int, what: str = "labels") -> np.ndarray:
    """Read targets: ``.npy``, ``.csv`` with a column per output, or text with one value per line.

    If a text file has `n_samples` + 1 lines, the first one is a header. `what` names the content in messages.
    """
    if path.endswith(".npy"):
        with _readable(path, what), open_file(path) as file:
            return _read_array(file)
    rows = read_words(path, what)
    if len(rows) == n_samples + 1:
        del rows[0]
    for row in rows:
        if len(row) != len(rows[0]):
            raise BadInput(
                f"{path}: lines have {len(rows[0])} and {len(row)} values. Give every sample the same number of values."
            )
    return as_columns(np.array(rows))


def read_words(path: str, what: str = "labels") -> list[list[str]]:
    """Return the words of each line of a ``.csv`` file; of any other, each line as one word. Skips empty lines."""
    with _readable(path, what), open_file(path) as file:
        text = io.StringIO(file.read().decode(), newline="")
        lines = csv.reader(text) if path.endswith(".csv") else ([line.strip()] for line in text)
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
