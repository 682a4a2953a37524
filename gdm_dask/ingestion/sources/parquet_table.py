"""Tables in ``.parquet`` files (samples x features), one group of rows at a time; needs pyarrow."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import frame_values
from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import DENSE_FACTOR, IngestOptions, OneSlab, Source, only_file, reading
from gdm_dask.ingestion.sources.table_columns import table_facts, tell_apart
from gdm_dask.store.folder import open_file

if TYPE_CHECKING:
    import pandas as pd


class ParquetTable(Source):
    """A Parquet file; see `gdm_dask.ingestion.sources.table_columns.Columns`."""

    suffixes = (".parquet",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> ParquetTable:
        """Open a file; `y` is the name of a column, an array, or the path of a file."""
        path = only_file(paths)
        if os.path.isdir(path):
            raise BadInput(f"{path}: this is a folder: from Python, ingest dask.dataframe.read_parquet({str(path)!r})")
        groups, names = _read(path, lambda file: (_group_rows(file), list(file.schema_arrow.names)))
        columns = tell_apart(names, y, options, path)
        read = {place: _column(path, names[place]) for place in columns.others}
        least = 2 * 8 * len(columns.features) * max(groups, default=0) // DENSE_FACTOR
        facts = table_facts("parquet", path, columns, y, read, sum(groups), scratch_factor=20, least_run_bytes=least)
        nbytes = (facts.nbytes or 0) // max(1, len(groups))
        starts = np.concatenate([[0], np.cumsum(groups)]).tolist()
        parts = [
            OneSlab(nbytes, partial(_load, path, columns.feature_names, number, start))
            for number, start in enumerate(starts[:-1])
        ]
        return cls(facts, lambda max_bytes: parts)


def _load(path: str, names: list[str], group: int, first_sample: int) -> Slab:
    """Return a group of rows."""
    frame = _read(path, partial(_frame, names=names, group=group))
    return dense_slab(frame_values(frame, path), first_sample)


def _frame(file: Any, names: list[str], group: int | None = None) -> pd.DataFrame:
    table = file.read(names) if group is None else file.read_row_group(group, names)
    found: pd.DataFrame = table.to_pandas(ignore_metadata=True, self_destruct=True)
    return found[names]


def _column(path: str, name: str) -> np.ndarray:
    return np.asarray(_read(path, partial(_frame, names=[name]))[name].to_numpy())


def _group_rows(file: Any) -> list[int]:
    return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]


def _read(path: str, use: Callable[[Any], Any]) -> Any:
    """Open a Parquet file, local or remote, and use it."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise BadInput(f"{path}: Parquet needs pyarrow: pip install 'gdm_dask[parquet]'") from error
    with reading(path, "a complete Parquet file"), open_file(path) as file, ParquetFile(file) as table:
        return use(table)
