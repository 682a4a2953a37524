"""Covariates at ingest: columns of a table beside the matrix, which become further features of the store.

A column of text becomes one feature of zeros and ones for each of its values but the first, as in R. The store knows
the features of each covariate, and fits include them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, sparse_slab
from gdm_dask.ingestion.source import ChangedPart, OneSlab, Source, SourceFacts, SourcePart
from gdm_dask.store.sample_tables import Column, Covariate, SampleTable, numbered, split_columns
from gdm_dask.store.target_files import known_words, missing_in

#: A column of text with more values than this is no covariate.
MAX_LEVELS = 100


@dataclass(frozen=True)
class Covariates:
    """Covariates of all samples: their features, and the columns that these come from."""

    names: list[str]
    values: np.ndarray  # (n_samples, features); anything where a column is missing
    columns: dict[str, Column]
    entries: list[Covariate]

    @property
    def identity(self) -> list[Any]:
        """What identifies the values, so that an ingest resumes only with the same ones."""
        return [self.names, crc32c(np.ascontiguousarray(self.values).tobytes())]

    def only(self, kept: np.ndarray) -> Covariates:
        """Return the covariates of some samples."""
        return replace(self, values=self.values[kept], columns={})


def read_covariates(
    given: Any, facts: SourceFacts, n_features: int | None, known: Sequence[Covariate] | None
) -> Covariates:
    """Read covariates for the samples of a source.

    `given` is a table, as a file, with or without names of columns (``people.cov:age,sex``), or as a DataFrame; or it
    names columns beside the matrix. If another store determines the features, `n_features` is their number, and `known`
    are its covariates: these are read, with the same values of text.
    """
    if given is None:
        raise BadInput(
            f"the store given as `like` has the covariates {', '.join(one.name for one in known or ())}: pass those of "
            "these samples, too (--covariates)"
        )
    if facts.n_samples is None:
        raise BadInput(f"{facts.where}: covariates need a matrix or a table, not text with its own labels or documents")
    names = [one.name for one in known or []]
    columns = _columns(given, facts, facts.n_samples, names or None)
    if known is not None and list(columns) != names:
        raise BadInput(
            f"the covariates are {', '.join(columns)}, but {', '.join(names) or 'none'} in the store given as `like`: "
            "pass the same ones"
        )
    levels = dict.fromkeys(columns) if known is None else {one.name: one.levels for one in known}
    encoded = {name: _encoded(name, column, levels[name], known is None) for name, column in columns.items()}
    values = np.hstack([matrix for _, matrix, _ in encoded.values()])
    n_matrix = facts.n_features or 0 if known is None else (n_features or 0) - values.shape[1]
    entries, first = [], n_matrix
    for name, (features, _, found) in encoded.items():
        entries.append(Covariate(name, list(range(first, first + len(features))), found))
        first += len(features)
    names = [feature for features, _, _ in encoded.values() for feature in features]
    twice = set(names).intersection(facts.feature_names or ()) or {name for name in names if names.count(name) > 1}
    if twice:
        raise BadInput(f"two features are named {min(twice)!r}: rename the covariate")
    return Covariates(names, values, columns, entries)


def _columns(given: Any, facts: SourceFacts, n_samples: int, names: list[str] | None) -> dict[str, Column]:
    """Return the wanted columns, by name."""
    if hasattr(given, "columns") and hasattr(given, "index"):
        return _of_frame(given, facts, n_samples, names)
    if not isinstance(given, (str, os.PathLike)):
        raise BadInput(f"`covariates` must be a table or the path of one, got {type(given).__name__}")
    given = os.fspath(given)
    path, listed = split_columns(given)
    if "://" not in path and not os.path.exists(path):
        found = {} if facts.column is None else {name: facts.column(name) for name in given.split(",")}
        missing = [name for name in given.split(",") if found.get(name) is None]
        if missing:
            raise BadInput(f"{path}: no such file" + ("" if facts.column is None else ", and no such column of obs"))
        return {name: column for name, column in found.items() if column is not None}
    wanted = names if listed is None else listed.split(",")
    table = SampleTable(path, n_samples, facts.sample_ids, wanted, "covariates", has_names=True)
    if len(table.words) != n_samples:
        raise BadInput(f"{path}: {len(table.words)} lines for {n_samples} samples")
    return {
        name: known_words(words, partial(table.place, column=name))
        for name, words in zip(table.names, table.words.T, strict=True)
    }


def _of_frame(frame: Any, facts: SourceFacts, n_samples: int, names: list[str] | None) -> dict[str, Column]:
    """Return the columns of a DataFrame, whose index holds the ids of the samples if they have any."""
    if facts.sample_ids is not None and set(facts.sample_ids) & set(map(str, frame.index)):
        frame = frame.set_axis(frame.index.map(str))
        if not frame.index.is_unique:
            raise BadInput("`covariates`: some samples have more than one row. Give each sample one row.")
        frame = frame.reindex(facts.sample_ids)
    elif len(frame) != n_samples:
        raise BadInput(f"`covariates` has {len(frame)} rows for {n_samples} samples")
    found = {}
    for name in frame.columns if names is None else names:
        if name not in frame.columns:
            raise BadInput(f"`covariates` has no column {name!r}")
        values = frame[name].astype(object).to_numpy()
        missing = missing_in(values)
        known = np.array(values[~missing].tolist())
        found[str(name)] = Column(known, missing, numbered(f"`covariates`: there is no {name}"))
    return found


def _encoded(
    name: str, column: Column, levels: list[str] | None, is_new: bool
) -> tuple[list[str], np.ndarray, list[str] | None]:
    """Return the names and the values of the features of a column, and the sorted values of a column of text."""
    known = np.flatnonzero(~column.missing)
    if column.values.dtype.kind in "biuf" and levels is None:
        values = np.zeros((len(column.missing), 1))
        values[known, 0] = column.values
        if not np.isfinite(values).all():
            raise BadInput(f"covariate {name!r} must be finite: replace infinite values")
        if is_new and len(known) and np.ptp(values[known]) == 0:
            raise BadInput(f"covariate {name!r} has the same value for all samples: leave it out")
        return [name], values, None
    words = column.values.astype(str)
    found = sorted(set(words.tolist()))
    if is_new:
        levels = found
        if len(levels) == 1:
            raise BadInput(f"covariate {name!r} has the same value for all samples: leave it out")
        if len(levels) > MAX_LEVELS:
            raise BadInput(
                f"covariate {name!r} is text with {len(levels)} values, such as {levels[0]!r}: a covariate must hold "
                f"numbers, or text with at most {MAX_LEVELS} values. Name the columns to use, as in people.cov:age,sex"
            )
    if levels is None:
        raise BadInput(f"covariate {name!r} must hold numbers, as in the store given as `like`, got {found[0]!r}")
    strange = sorted(set(found) - set(levels))
    if strange:
        raise BadInput(
            f"covariate {name!r} is {strange[0]!r} for a sample, but the store given as `like` knows "
            f"{', '.join(levels)}: leave such samples out, or train without this covariate"
        )
    values = np.zeros((len(column.missing), len(levels) - 1))
    values[known] = words[:, None] == np.array(levels[1:])
    return [f"{name}={level}" for level in levels[1:]], values, levels


def with_covariates(source: Source, covariates: Covariates, known: Sequence[str] | None) -> Source:
    """Return a source with the covariates behind the features of the matrix; these may have `known` names."""
    facts, n_matrix = source.facts, covariates.entries[0].features[0]
    names = [*(facts.feature_names or ())][:n_matrix]
    names += (known or [*map(str, range(n_matrix))])[len(names) : n_matrix]
    names += covariates.names
    n_features = n_matrix + len(covariates.names)
    changed: dict[str, Any] = {"n_features": n_features, "feature_names": names}
    if facts.kind == "dense":
        return source.changed(partial(_beside, values=covariates.values, n_matrix=n_matrix), **changed)

    def parts(max_bytes: int) -> list[SourcePart]:
        within = [ChangedPart(part, partial(Slab.within, n_features=n_matrix)) for part in source.parts(max_bytes)]
        return [OneSlab(covariates.values.nbytes, partial(_behind, covariates.values, n_matrix)), *within]

    return Source(replace(facts, n_beside=len(covariates.names), **changed), parts)


def _beside(slab: Slab, values: np.ndarray, n_matrix: int) -> Slab:
    """Return a dense slab with the covariates of its samples."""
    slab = slab.within(n_matrix)
    assert slab.dense is not None
    return replace(slab, dense=np.hstack([slab.dense, slab.of_samples(values)]))


def _behind(values: np.ndarray, n_matrix: int) -> Slab:
    """Return the covariates of all samples as loose nonzeros."""
    features, samples = np.nonzero(values.T)
    return sparse_slab(features + n_matrix, samples, values[samples, features])


def drop_incomplete(
    source: Source, covariates: Covariates | None, on_missing: str
) -> tuple[Source, Covariates | None, np.ndarray | None]:
    """Return the source and the covariates without samples that lack a target or a covariate, and a mask of the others.

    The mask is None if no sample lacks any; `on_missing` decides whether to drop such samples or to refuse them.
    """
    facts = source.facts
    columns: Mapping[str, Column] = {} if covariates is None else covariates.columns
    labels = [facts.labels] if isinstance(facts.labels, Column) else []
    if on_missing == "raise":
        for column in (*labels, *columns.values()):
            column.refuse()
    incomplete = [column.missing for column in (*labels, *columns.values())]
    lacks = np.any(incomplete, axis=0) if incomplete else np.zeros(0, bool)
    if labels:
        source = source.with_facts(labels=labels[0].values[~lacks[~labels[0].missing]])
    if not lacks.any():
        return source, covariates, None
    if lacks.all():
        raise BadInput(f"{facts.where}: no sample has a target and all covariates")
    kept = ~lacks
    if not labels and facts.labels is not None:
        source = source.with_facts(labels=np.asarray(facts.labels)[kept])
    return source.only(kept), None if covariates is None else covariates.only(kept), kept
