"""Targets, from arrays and from files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.values import as_array
from gdm_dask.store.folder import open_file
from gdm_dask.store.sample_tables import MISSING, Column, SampleTable, numbered, readable, samples_with, split_columns
from gdm_dask.system.resources import read_header


def check_targets(y: Any, n_samples: int, where: str, ids: Sequence[str] | None = None) -> np.ndarray:
    """Return targets with one entry per sample; `y` is an array, or the path of a file (see `read_targets`)."""
    if isinstance(y, (str, os.PathLike)):
        where = os.fspath(y)
        y = read_targets(where, n_samples, ids=ids).refuse()
    return _of_length(as_array(y, where), n_samples, where)


def find_targets(y: Any, n_samples: int, where: str, ids: Sequence[str] | None = None) -> Column:
    """Return targets, of which some may be missing: None, NaN or NA in an array, a word of `MISSING` in a file."""
    if isinstance(y, (str, os.PathLike)):
        where = os.fspath(y)
        y = read_targets(where, n_samples, ids=ids)
    if isinstance(y, Column):
        _of_length(y.missing, n_samples, where)
        return y
    values = _of_length(as_array(y, where), n_samples, where)
    missing = missing_in(values)
    return Column(values[~missing], missing, numbered(f"{where}: there is no label"))


def _of_length(values: np.ndarray, n_samples: int, where: str) -> np.ndarray:
    if values.ndim == 0:
        raise BadInput(f"{where}: labels must have shape (n_samples,), got {values.shape}")
    if len(values) != n_samples:
        raise BadInput(f"{where}: {len(values)} labels for {n_samples} samples")
    return values


def missing_in(values: np.ndarray) -> np.ndarray:
    """Return the samples without a value, in an array of shape (n_samples,) or (n_samples, K).

    >>> missing_in(np.array(["case", None, float("nan")], object)).tolist(), missing_in(np.array(["NA"])).tolist()
    ([False, True, True], [False])
    """
    missing: np.ndarray = np.zeros(values.shape, bool)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        import pandas as pd

        missing = pd.isna(values)
    return samples_with(missing)


def read_targets(path: str, n_samples: int, what: str = "labels", ids: Sequence[str] | None = None) -> Column:
    """Read targets: ``.npy``, or a `SampleTable` with a column per output, such as text with one value per line.

    ``cells.csv:cell_type`` is one column of a table. `what` names the content in messages.
    """
    if path.endswith(".npy"):
        with readable(path, what), open_file(path) as file:
            values = _read_array(file)
        missing = missing_in(values) if values.ndim else np.zeros(0, bool)
        return Column(values[~missing] if values.ndim else values, missing, numbered(f"{path}: there is no value"))
    path, name = split_columns(path)
    table = SampleTable(path, n_samples, ids, None if name is None else [name], what)
    return known_words(table.words, table.place)


def known_words(words: np.ndarray, place: Callable[[int], str]) -> Column:
    """Return the words of all samples, (n,) or (n, K), as a column: numbers if all that are known are."""
    missing = samples_with(np.isin(words, MISSING))
    return Column(as_columns(words[~missing]), missing, place)


def as_columns(words: np.ndarray) -> np.ndarray:
    """Return a table of words as numbers if all are; a single column as a vector."""
    values = words[:, 0] if words.ndim == 2 and words.shape[1] == 1 else words
    try:
        return values.astype(np.float64)
    except ValueError:
        return values


def _read_array(file: IO[bytes]) -> np.ndarray:
    """Read an array in NumPy's format; memory is allocated for the bytes that the file holds, not for its shape."""
    shape, by_columns, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    numbers = np.frombuffer(bytearray(file.read()), dtype, math.prod(shape))
    return numbers.reshape(shape, order="F" if by_columns else "C")
