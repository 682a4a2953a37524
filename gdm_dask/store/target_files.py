"""Read targets from files."""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.system.resources import BAD_ARRAYS


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


def read_targets(path: str, n_samples: int) -> np.ndarray:
    """Read targets: ``.npy``, ``.csv`` with a column per output, or text with one value per line.

    If a text file has `n_samples` + 1 lines, the first one is a header.
    """
    try:
        if path.endswith(".npy"):
            return np.array(np.lib.format.open_memmap(path, mode="r"))  # refuses a header with wrong sizes
        with open(path, encoding="utf-8", newline="") as file:
            lines = csv.reader(file) if path.endswith(".csv") else ([line.strip()] for line in file)
            rows = [[word.strip() for word in row] for row in lines if any(row)]
    except OSError as error:
        raise BadInput(f"{path}: labels cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error, *BAD_ARRAYS) as error:
        raise BadInput(f"{path}: labels cannot be read: {error}") from error
    if len(rows) == n_samples + 1:
        del rows[0]
    for row in rows:
        if len(row) != len(rows[0]):
            raise BadInput(
                f"{path}: lines have {len(rows[0])} and {len(row)} values. Give every sample the same number of values."
            )
    words = np.array(rows)
    values = words[:, 0] if words.ndim == 2 and words.shape[1] == 1 else words
    try:
        return values.astype(np.float64)
    except ValueError:
        return values
