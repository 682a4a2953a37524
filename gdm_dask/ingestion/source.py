"""What an ingest needs to know of any source of samples, and how a path or an object becomes one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab


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
    nbytes : int
        Size of the source.
    description : dict
        What it is, for provenance; with `identity` it decides whether an unfinished ingest can go on.
    identity : dict
        Sizes and times of the files: a changed source begins anew.
    in_memory : bool
        Whether the jobs hold the data themselves, so that they run in this process.
    n_samples, n_features : int, optional
        Where they are known beforehand.
    labels : ndarray, optional
        Labels of all samples; None where the slabs carry them.
    feature_names, sample_ids : list of str, optional
    """

    kind: str
    jobs: Callable[[int], list[Any]]
    nbytes: int
    description: dict[str, Any]
    identity: dict[str, Any] = field(default_factory=dict)
    in_memory: bool = False
    n_samples: int | None = None
    n_features: int | None = None
    labels: np.ndarray | None = None
    feature_names: list[str] | None = None
    sample_ids: list[str] | None = None


@dataclass(frozen=True)
class TextOptions:
    """How svmlight text is read."""

    index_base: int = 1
    on_error: str = "raise"
    n_features: int | None = None


def make_source(source: Any, y: Any, options: TextOptions) -> Source:
    """A `Source` for files, a scipy or NumPy matrix, a Dask array or a DataFrame."""
    from gdm_dask.ingestion import file_sources, object_sources, text_source

    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if not (isinstance(source, (list, tuple)) and source and all(isinstance(p, (str, os.PathLike)) for p in source)):
        return object_sources.from_object(source, y)
    paths = [os.fspath(path) for path in source]
    readers = {
        ".npz": file_sources.npz_source,
        ".mtx": file_sources.matrix_market_source,
        ".npy": file_sources.npy_source,
        ".zarr": file_sources.zarr_source,
    }
    stem = paths[0].removesuffix("/")
    for compression in text_source.COMPRESSIONS:
        stem = stem.removesuffix(compression)
    reader = readers.get(os.path.splitext(stem)[1].lower())
    if reader is None:
        if y is not None:
            raise BadInput(f"{paths[0]}: svmlight text carries its labels; labels cannot be given beside it")
        return text_source.text_source(paths, options)
    if len(paths) > 1:
        raise BadInput(f"{paths[1]}: only svmlight text can be given as several files")
    return reader(paths[0], y)


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
            words = file.read().split()
    except OSError as error:
        raise BadInput(f"{path}: labels cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInput(f"{path}: labels cannot be read: {error}") from error
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return np.array(words)
