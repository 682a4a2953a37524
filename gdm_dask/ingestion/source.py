"""The interface between an ingest and its data: sources of samples, their facts and their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from gdm_dask.errors import BadInput, BadValue
from gdm_dask.ingestion.slab import Slab
from gdm_dask.store.arrays import check_codec
from gdm_dask.store.layout import MAX_BLOCK_BYTES
from gdm_dask.store.sample_tables import Column
from gdm_dask.store.target_files import find_targets
from gdm_dask.store.targets import TASKS
from gdm_dask.system.resources import BAD_ARRAYS, format_bytes

if TYPE_CHECKING:
    from gdm_dask.ingestion.sources.documents.vocabulary import Vocabulary

#: Feature and sample numbers are 32-bit.
MAX_COUNT = 2**32 - 1
#: A byte of a dense matrix needs this many times less memory during an ingest than a byte of the densest text.
DENSE_FACTOR = 4


@dataclass(frozen=True)
class IngestOptions:
    """Options that determine the content of the store; see `gdm_dask.ingest`."""

    n_features: int | None
    index_base: int
    on_error: str
    dtype: str
    codec: str
    block_bytes: int
    task: str | None = None
    weight_column: str | None = None  # of a table; or the path of a file of weights
    drop: list[str] = field(default_factory=list)  # columns of a table

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise BadInput(f"`task` must be 'classification' or 'regression', got {self.task!r}")
        if self.index_base not in (0, 1):
            raise BadInput(f"`index_base` must be 0 or 1, got {self.index_base!r}")
        if self.on_error not in ("raise", "skip"):
            raise BadInput(f"`on_error` must be 'raise' or 'skip', got {self.on_error!r}")
        if self.dtype not in ("auto", "float32", "float64"):
            raise BadInput(f"`dtype` must be 'auto', 'float32' or 'float64', got {self.dtype!r}")
        size = self.n_features
        if size is not None and not (isinstance(size, (int, np.integer)) and 1 <= size <= MAX_COUNT):
            raise BadInput(f"`n_features` must be an integer in [1, {MAX_COUNT}], got {size!r}")
        if self.block_bytes > MAX_BLOCK_BYTES:
            raise BadInput(
                f"the block size must be at most {format_bytes(MAX_BLOCK_BYTES)}, got {format_bytes(self.block_bytes)}"
            )
        check_codec(self.codec)

    @property
    def value_limit(self) -> str | None:
        """Type to which wider values are rounded; None keeps all values exactly."""
        return None if self.dtype == "auto" else self.dtype


class SourcePart(Protocol):
    """A part of a source that one task reads; it is sent to workers."""

    @property
    def nbytes(self) -> int:
        """Bytes of source, for the progress bar."""
        ...

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield the slabs of this part, in order, as functions that load them: finished slabs are not loaded again."""
        ...


@dataclass(frozen=True)
class OneSlab:
    """A part with a single slab."""

    nbytes: int
    load: Callable[[], Slab]

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield the function that loads it."""
        yield self.load


@dataclass(frozen=True)
class ChangedPart:
    """A part whose slabs are changed when they are loaded."""

    whole: SourcePart
    change: Callable[[Slab], Slab]

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return self.whole.nbytes

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield the functions that load and change the slabs."""
        return (lambda load=load: self.change(load()) for load in self.whole.slabs())  # type: ignore[misc]


@dataclass(frozen=True)
class SourceFacts:
    """Facts about a source that are known before it is read."""

    kind: str  # "sparse" or "dense"
    description: dict[str, Any]  # provenance; with `identity` it decides whether an unfinished ingest can be resumed
    identity: dict[str, Any] = field(default_factory=dict)  # of the files or arrays: a changed source starts anew
    nbytes: int | None = None  # for progress
    in_memory: bool = False  # the parts hold the data themselves, and are therefore read in this process
    n_samples: int | None = None
    n_features: int | None = None
    n_beside: int = 0  # of them, covariates: the last ones, all in the first slab
    n_entries: int | None = None  # that a file declares, zeros included
    labels: np.ndarray | Column | None = None  # or numbers; None if the slabs carry them, or if there are none
    sample_weight: np.ndarray | None = None  # from a column
    feature_names: list[str] | None = None
    sample_ids: list[str] | None = None
    column: Callable[[str], Column | None] | None = None  # finds a column beside the matrix, such as one of obs
    dropped: tuple[str, ...] = ()  # columns of a table
    vocabulary: Vocabulary | None = None  # of documents, to be kept in the store
    scratch_factor: int = 1  # upper bound on the bytes of scratch per byte of source
    least_run_bytes: int = 0  # the smallest piece of the source may need that much

    def __post_init__(self) -> None:
        for name, size in (("samples", self.n_samples), ("features", self.n_features)):
            if size is not None and not 0 <= size <= MAX_COUNT:
                raise BadInput(f"{self.where}: a store can hold at most {MAX_COUNT} {name}, got {size}")

    def only(self, kept: np.ndarray) -> dict[str, Any]:
        """Return the facts that differ if only some samples are kept."""
        ids = None if self.sample_ids is None else np.array(self.sample_ids, object)[kept].tolist()
        return {"n_samples": int(kept.sum()), "sample_ids": ids}

    @contextmanager
    def naming(self, names: Sequence[str] | None) -> Iterator[None]:
        """Name the source, and the feature, of a value that a store cannot hold."""
        try:
            yield
        except BadValue as error:
            number = error.feature
            feature = f", feature {names[number]!r}" if names and number is not None and number < len(names) else ""
            raise BadInput(f"{self.where}{feature}: {error}") from error

    @property
    def where(self) -> str:
        """Name of the source for messages."""
        return ", ".join(map(str, self.description.get("files", ["the input"])))


@dataclass
class Source:
    """Samples to ingest: facts about them, and a function that cuts them into parts of at most so many bytes.

    A file format is a subclass with `suffixes` and `open`, in a module of `gdm_dask.ingestion.sources` or registered as
    an entry point of the group ``gdm_dask.sources``: see there. It may have `parts` instead of a function.
    """

    #: Suffixes of its file names, lower case.
    suffixes: ClassVar[tuple[str, ...]] = ()
    facts: SourceFacts
    cut: Callable[[int], Sequence[SourcePart]]

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> Source:
        """Open files; `y` are labels given separately, see `as_labels`."""
        raise NotImplementedError

    def parts(self, max_bytes: int) -> Sequence[SourcePart]:
        """Cut the source into parts of about `max_bytes`, in order."""
        return self.cut(max_bytes)

    def with_facts(self, **facts: Any) -> Self:
        """Return the same source with other facts."""
        found = copy(self)
        found.facts = replace(self.facts, **facts)
        return found

    def like(self, names: list[str]) -> Source:
        """Return the source in the terms of another store with features of these names; most formats have one only."""
        return self

    def changed(self, change: Callable[[Slab], Slab], **facts: Any) -> Source:
        """Return a source with other slabs and other facts; a slab and the one made from it share the memory."""
        least = 2 * self.facts.least_run_bytes
        return Source(
            replace(self.facts, least_run_bytes=least, **facts),
            lambda max_bytes: [ChangedPart(part, change) for part in self.parts(max(1, max_bytes // 2))],
        )

    def only(self, kept: np.ndarray) -> Source:
        """Return the source with only some of its samples; `kept` is a mask, (n_samples,)."""
        return self.changed(partial(_only, kept=kept), **self.facts.only(kept))


def _only(slab: Slab, kept: np.ndarray) -> Slab:
    return slab.some(slab.of_samples(kept))


def dense_facts(
    matrix: Any, y: Any, where: str, description: dict[str, Any], identity: dict[str, Any], chunk: int = 1
) -> SourceFacts:
    """Return the facts about a dense matrix, in chunks of so many samples; refuse anything else.

    Only its shape and type are used. `y` are labels or numbers, or the path of a file; `where` names the matrix in
    messages.
    """
    check_dense(matrix, where)
    n_samples, n_features = matrix.shape
    return SourceFacts(
        "dense", description, identity, n_samples * n_features * matrix.dtype.itemsize, n_samples=n_samples,
        n_features=n_features, labels=as_labels(y, n_samples, where),
        least_run_bytes=min(chunk, n_samples) * _row_bytes(matrix) // DENSE_FACTOR,
    )  # fmt: skip


def row_ranges(matrix: Any, max_bytes: int, chunk: int = 1) -> list[tuple[int, int]]:
    """Cut the rows of a dense matrix into ranges of whole chunks, for parts of at most `max_bytes`."""
    n_samples = matrix.shape[0]
    step = max(1, DENSE_FACTOR * max_bytes // _row_bytes(matrix) // chunk) * chunk
    return [(start, min(start + step, n_samples)) for start in range(0, n_samples, step)]


def _row_bytes(matrix: Any) -> int:
    """Return the bytes that a row takes during an ingest: integers are checked as float64."""
    narrow = matrix.dtype.kind in "bf" or matrix.dtype == np.uint8
    return max(1, int(matrix.shape[1]) * int(matrix.dtype.itemsize if narrow else 8))


def check_dense(matrix: Any, where: str) -> None:
    """Raise `BadInput` unless `matrix` is a 2-D matrix of real numbers."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise BadInput(
            f"{where}: expected a 2-D matrix of real numbers (samples x features), got {matrix.dtype} of shape "
            f"{matrix.shape}"
        )


@contextmanager
def reading(path: str, what: str, remedy: str = "Write or fetch it again") -> Iterator[None]:
    """Name the file, what it should be, and the remedy, if a library cannot read it."""
    try:
        yield
    except BadInput:
        raise
    except (ValueError, IndexError, AttributeError, *BAD_ARRAYS) as error:
        raise BadInput(f"{path}: not {what}: {str(error).rstrip('.')}. {remedy}.") from error


def only_file(paths: list[str]) -> str:
    """Return the file of a format that accepts a single one."""
    if len(paths) > 1:
        raise BadInput(f"{paths[1]}: only svmlight text can be ingested from several files; pass one")
    return paths[0]


def as_labels(y: Any, n_samples: int, where: str, ids: Sequence[str] | None = None) -> Column | None:
    """Return labels or numbers, some of which may be missing, from an array or a file; None if not given."""
    return None if y is None else find_targets(y, n_samples, where, ids)


def droppable(drop: Sequence[str], names: Sequence[str], where: str) -> Sequence[str]:
    """Return the names of columns to drop; refuse a name that no column has."""
    for name in drop:
        if name not in names:
            raise BadInput(
                f"{where}: no column is named {name!r}, so it cannot be dropped; the columns are {some_of(names)}"
            )
    return drop


def some_of(names: Sequence[str]) -> str:
    """Return the first names of columns, for a message."""
    shown = [name for name in map(str, names) if name][:10]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")
