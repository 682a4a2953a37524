"""What an ingest needs to know of any source of samples, and how a path or an object becomes one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.options import IngestOptions
from gdm_dask.ingestion.slab import Slab

if TYPE_CHECKING:
    from gdm_dask.vocabulary import Vocabulary


class Job(Protocol):
    """A part of a source that one task reads; it travels to workers."""

    #: Bytes of source, for the progress bar.
    nbytes: int

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """The slabs of this part, in order; calling one loads it, so that finished ones need not be."""
        ...


@dataclass
class Source:
    """Samples to ingest, as jobs.

    Attributes
    ----------
    kind : {"sparse", "dense"}
    jobs : callable
        ``jobs(run_bytes)`` cuts the source into jobs whose slabs hold about that many bytes of source.
    nbytes : int or None
        Size of the source, for progress; None where nobody knows.
    description : dict
        What it is, for provenance; with `identity` it decides whether an unfinished ingest can go on.
    identity : dict
        Sizes and times of the files, or checksums: a changed source begins anew.
    in_memory : bool
        Whether the jobs hold the data themselves, so that they run in this process.
    n_samples, n_features, n_entries : int, optional
        Where they are known beforehand; `n_entries` counts what a file says it holds, with zeros.
    labels : ndarray, optional
        Labels of all samples; None where the slabs carry them.
    feature_names, sample_ids : list of str, optional
    vocabulary : Vocabulary, optional
        Of documents; it goes into the store.
    scratch_factor : int
        Bytes of scratch that a byte of source may take.
    least_run_bytes : int
        What `jobs` must be given at the least: the smallest piece of the source may need that much.
    """

    kind: str
    jobs: Callable[[int], list[Any]]
    nbytes: int | None
    description: dict[str, Any]
    identity: dict[str, Any] = field(default_factory=dict)
    in_memory: bool = False
    n_samples: int | None = None
    n_features: int | None = None
    n_entries: int | None = None
    labels: np.ndarray | None = None
    feature_names: list[str] | None = None
    sample_ids: list[str] | None = None
    vocabulary: Vocabulary | None = None
    scratch_factor: int = 1
    least_run_bytes: int = 0

    @property
    def where(self) -> str:
        """The source's name for messages."""
        return ", ".join(map(str, self.description.get("files", ["the input"])))


def make_source(source: Any, y: Any, options: IngestOptions) -> Source:
    """A `Source` for files, a scipy or NumPy matrix, a Dask array or a DataFrame; a `Source` as it is."""
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(p, (str, os.PathLike)) for p in source):
        return _from_files([os.fspath(path) for path in source], y, options)
    from gdm_dask.ingestion.object_sources import from_object

    return from_object(source, y)


def _from_files(paths: list[str], y: Any, options: IngestOptions) -> Source:
    from gdm_dask.ingestion import text_source

    stem = paths[0].rstrip("/").lower()
    if text_source.compression_of(stem):
        stem = os.path.splitext(stem)[0]
    kind = os.path.splitext(stem)[1]
    if kind not in (".npz", ".mtx", ".npy", ".zarr"):
        if y is not None:
            raise BadInput(f"{paths[0]}: svmlight text carries its labels; labels cannot be given beside it")
        return text_source.text_source(paths, options)
    if len(paths) > 1:
        raise BadInput(f"{paths[1]}: only svmlight text can be given as several files")
    if kind == ".mtx":
        from gdm_dask.ingestion.market_source import matrix_market_source

        return matrix_market_source(paths[0], y)
    from gdm_dask.ingestion import matrix_files

    readers = {".npz": matrix_files.npz_source, ".npy": matrix_files.npy_source, ".zarr": matrix_files.zarr_source}
    return readers[kind](paths[0], y)


def as_labels(y: Any, n_samples: int, where: str) -> np.ndarray:
    """Labels as a 1-D array with one entry per sample; `y` may be a file of labels (.npy, or one per line)."""
    if y is None:
        raise BadInput(f"{where}: labels are missing: give y=..., or --labels FILE on the command line")
    labels = _read_labels(os.fspath(y)) if isinstance(y, (str, os.PathLike)) else np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise BadInput(f"{where}: labels have shape {labels.shape}, but one label per sample is needed")
    if len(labels) != n_samples:
        raise BadInput(f"{where}: {len(labels)} labels for {n_samples} samples")
    return labels


def _read_labels(path: str) -> np.ndarray:
    try:
        if path.endswith(".npy"):
            return np.load(path, allow_pickle=False)
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except OSError as error:
        raise BadInput(f"{path}: labels cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise BadInput(f"{path}: labels cannot be read: {error}") from error
    words = [line for line in lines if line]
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return np.array(words)
