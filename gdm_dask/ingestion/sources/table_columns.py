"""Columns of a table: features, sample ids, sample weights and the target, told apart by their names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.source import IngestOptions, SourceFacts, as_labels, droppable, some_of
from gdm_dask.store.folder import file_info
from gdm_dask.store.sample_tables import Column, numbered, split_columns
from gdm_dask.store.target_files import known_words, missing_in

#: Names of the column that holds the sample ids: without a name, as pandas and R write row names.
ID_NAMES = ("", "__index_level_0__")


@dataclass(frozen=True)
class Columns:
    """All columns of a table, and the positions of those that are not features."""

    names: list[str]
    target: int | None = None
    weights: int | None = None
    ids: int | None = None
    dropped: tuple[int, ...] = ()

    @property
    def others(self) -> list[int]:
        """Positions of the columns that are read, but are not features."""
        return [place for place in (self.target, self.weights, self.ids) if place is not None]

    @property
    def features(self) -> list[int]:
        """Positions of the features."""
        others = {*self.others, *self.dropped}
        return [place for place in range(len(self.names)) if place not in others]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        return [self.names[place] for place in self.features]


def tell_apart(names: list[str], y: Any, options: IngestOptions, where: str) -> Columns:
    """Return the columns of a table; `y` and the options may name some of them."""
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise BadInput(f"{where}: {count} columns are named {name!r}: give each column a name of its own")
    place = {name: number for number, name in enumerate(names)}
    target = place.get(y) if isinstance(y, str) else None
    check_named(y, names, where)
    ids = next((place[name] for name in ID_NAMES if name in place), None)
    weights = None if options.weight_column is None else place.get(options.weight_column)
    columns = Columns(names, target, weights, ids, tuple(place[name] for name in droppable(options.drop, names, where)))
    if not columns.features:
        raise BadInput(f"{where}: no column is left for the features; the columns are {some_of(names)}")
    return columns


def table_facts(
    form: str, path: str, columns: Columns, y: Any, read: Mapping[int, np.ndarray], n_samples: int | None, **more: Any
) -> SourceFacts:
    """Return the facts about a table in a file, from the values of its columns that are not features (`read`)."""
    ids = None if columns.ids is None else read[columns.ids].astype(str).tolist()
    if not any(ids or []):  # every line ends in a separator
        ids = None
    names, info = columns.names, file_info(path)
    target, weights = (
        None if place is None else _column(read[place], f"{path}: column {names[place]!r} is empty")
        for place in (columns.target, columns.weights)
    )
    return SourceFacts(
        "dense", {"format": form, "files": [path], "target": y if columns.target is not None else None},
        {"files": [info]}, info["size"], n_samples=n_samples, n_features=len(columns.features),
        labels=as_labels(y if target is None else target, n_samples or 0, path, ids),
        sample_weight=None if weights is None else weights.refuse(),
        feature_names=columns.feature_names, sample_ids=ids, dropped=tuple(names[place] for place in columns.dropped),
        **more,
    )  # fmt: skip


def _column(values: np.ndarray, problem: str) -> Column:
    """Return a column, some of whose values may be missing; words are numbers if all that are known are."""
    if values.dtype.kind == "U":
        return known_words(values, numbered(problem))
    missing = missing_in(values)
    return Column(values[~missing], missing, numbered(problem))


def check_named(y: Any, names: list[str], where: str) -> None:
    """Refuse the name of a target that is neither a column nor a file."""
    if isinstance(y, str) and y not in names and "://" not in y and not os.path.exists(split_columns(y)[0]):
        raise BadInput(f"{where}: {str(y)!r} is neither a column nor a file; the columns are {some_of(names)}")
