"""Sample weights at ingest: an array, a file, or a column beside the features or the targets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import computed
from gdm_dask.settings.weights import check_weights
from gdm_dask.store.folder import Url, file_info, options_of
from gdm_dask.store.sample_tables import numbered, read_rows, split_columns
from gdm_dask.store.target_files import known_words, read_targets


def take_columns(source: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Replace names of columns by their values, and return the source, the targets and the weights.

    `y` and `sample_weight` may name columns of a pandas or Dask DataFrame, which are removed from the features;
    `sample_weight` may also name a column of a ``.csv`` file of targets. Anything else stays as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [31, 45], "bought": ["no", "yes"], "weight": [1.0, 2.5]})
    >>> X, y, weights = take_columns(table, "bought", "weight")
    >>> list(X.columns), y.tolist(), weights.tolist()
    (['age'], ['no', 'yes'], [1.0, 2.5])
    """
    if hasattr(source, "columns") and hasattr(source, "dtypes"):
        columns = list(source.columns)
        taken = [name for name in (y, sample_weight) if isinstance(name, str) and name in columns]
        for name in taken:
            if columns.count(name) > 1:
                raise BadInput(f"{columns.count(name)} columns of the DataFrame are named {name!r}: rename them")
        values = {name: _values(source[name]) for name in taken}
        given = [values[name] if isinstance(name, str) and name in values else name for name in (y, sample_weight)]
        return source.drop(columns=taken) if taken else source, *given
    if _is_path(sample_weight) and _is_path(y) and ".csv" in os.fspath(y).lower():
        return source, *_split_file(os.fspath(y), os.fspath(sample_weight))
    return source, y, sample_weight


def load_weights(sample_weight: Any, n_samples: int, ids: Sequence[str] | None = None) -> np.ndarray:
    """Return the weights of all samples, checked; `sample_weight` is an array, or the path of a file."""
    if _is_path(sample_weight):
        path = os.fspath(sample_weight)
        return check_weights(read_targets(path, n_samples, "weights", ids).refuse(), n_samples, path)
    return check_weights(_values(sample_weight), n_samples)


def identity_of(sample_weight: Any) -> Any:
    """Return what identifies the weights, so that an ingest resumes only with the same ones."""
    if _is_path(sample_weight):
        return file_info(split_columns(os.fspath(sample_weight))[0])
    return crc32c(np.ascontiguousarray(_values(sample_weight)).tobytes())


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _values(column: Any) -> np.ndarray:
    return np.asarray(computed(column))


def _split_file(path: str, name: str) -> tuple[Any, Any]:
    """Return targets and weights from a ``.csv`` file with a column of this name; else both paths."""
    file, column = split_columns(path)
    head, *rows = read_rows(file, "labels")[0] or [[]]
    if name not in head or any(len(row) != len(head) for row in rows):
        return path, name
    if column is not None:
        return path, Url(f"{file}:{name}", options_of(path))
    if len(head) == 1 or not rows:
        raise BadInput(f"{path}: there are no targets beside the column {name!r}")
    table, place = np.array(rows), head.index(name)
    targets = known_words(np.delete(table, place, axis=1), numbered(f"{path}: there is no value"))
    return targets, table[:, place]
