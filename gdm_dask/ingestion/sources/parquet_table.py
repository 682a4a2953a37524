"""Tables in ``.parquet`` files (samples x features), one group of rows at a time; needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import frame_values
from gdm_dask.ingestion.slab import Slab, dense_slab
from gdm_dask.ingestion.source import DENSE_FACTOR, IngestOptions, Source, SourceFacts, as_labels, only_file
from gdm_dask.ingestion.sources.table_columns import Columns, tell_apart
from gdm_dask.store.folder import file_info, open_file

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ParquetTable(Source):
    """A Parquet file; see `Columns`."""

    suffixes = (".parquet",)
    facts: SourceFacts
    path: str
    columns: Columns
    group_rows: list[int]  # rows in each group

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> ParquetTable:
        """Open a file; `y` is the name of a column, an array, or the path of a file."""
        path = only_file(paths)
        info = file_info(path)
        groups, names = _read(path, lambda file: (_group_rows(file), list(file.schema_arrow.names)))
        columns = tell_apart(names, y, options.weight_column, path)
        read = {place: _column(path, columns, place) for place in columns.others}
        labels = y if columns.target is None else read[columns.target]
        weights = None if columns.weights is None else read[columns.weights]
        ids = None if columns.ids is None else read[columns.ids].astype(str).tolist()
        n_features = len(columns.features)
        facts = SourceFacts(
            "dense", {"format": "parquet", "files": [path], "target": y if columns.target is not None else None},
            {"files": [info]}, info["size"], n_samples=sum(groups), n_features=n_features,
            labels=as_labels(labels, sum(groups), path, ids), sample_weight=weights,
            feature_names=columns.feature_names, sample_ids=ids, scratch_factor=20,
            least_run_bytes=2 * 8 * n_features * max(groups, default=0) // DENSE_FACTOR,
        )  # fmt: skip
        return cls(facts, path, columns, groups)

    def parts(self, max_bytes: int) -> Sequence[ParquetRows]:
        """Return one part per group of rows."""
        nbytes = (self.facts.nbytes or 0) // max(1, len(self.group_rows))
        starts = np.concatenate([[0], np.cumsum(self.group_rows)]).tolist()
        return [
            ParquetRows(self.path, self.columns, number, start, nbytes)
            for number, start in zip(range(len(self.group_rows)), starts, strict=False)
        ]


@dataclass(frozen=True)
class ParquetRows:
    """A group of rows of a Parquet file."""

    path: str
    columns: Columns
    group: int
    first_sample: int
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""
        yield self._load

    def _load(self) -> Slab:
        frame = _read(self.path, partial(_frame, names=self.columns.feature_names, group=self.group))
        return dense_slab(frame_values(frame), self.first_sample)


def _frame(file: Any, names: list[str], group: int | None = None) -> pd.DataFrame:
    table = file.read(names) if group is None else file.read_row_group(group, names)
    found: pd.DataFrame = table.to_pandas(ignore_metadata=True, self_destruct=True)
    return found[names]


def _column(path: str, columns: Columns, place: int) -> np.ndarray:
    name = columns.names[place]
    return np.asarray(_read(path, partial(_frame, names=[name]))[name].to_numpy())


def _group_rows(file: Any) -> list[int]:
    return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]


def _read(path: str, use: Callable[[Any], Any]) -> Any:
    """Open a Parquet file, local or remote, and use it."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise BadInput(f"{path}: Parquet needs pyarrow: pip install 'gdm_dask[parquet]'") from error
    try:
        with open_file(path) as file, ParquetFile(file) as table:
            return use(table)
    except (ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path}: not a complete Parquet file: {error}") from error
