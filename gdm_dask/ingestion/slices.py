"""Slices: where blocks lie in the runs, and the pieces of runs that make a block, in memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from gdm_dask.ingestion.runs import Run
from gdm_dask.ingestion.sorting import add_counts
from gdm_dask.work_space import PAGE, whole_pages, work_space

#: Threads that read the features of runs, each into memory of its own: most of the time they wait for the disk.
READERS = 4
#: Pieces are read to where this thread had other arrays when it made runs: that memory is at hand.
_SPACES = {"features": "parsed features", "pointers": "pointers", "samples": "samples", "values": "text"}


@dataclass(frozen=True)
class Slices:
    """Where a block lies in every run.

    Attributes
    ----------
    features : ndarray of shape (n_runs, 2), int64
        First and last place in the run's list of features.
    nonzeros : ndarray of shape (n_runs, 2), int64
        First and last place in the run's nonzeros.
    """

    features: np.ndarray
    nonzeros: np.ndarray


def feature_counts(runs: list[Run], n_features: int) -> np.ndarray:
    """Nonzeros of each feature over all sparse runs, uint32 (a feature has fewer than 2**32 samples)."""
    counts = np.zeros(n_features, np.uint32)
    lock = threading.Lock()

    def add(run: Run) -> None:
        features, pointers = _read(run, "features"), _read(run, "pointers")
        with lock:
            add_counts(features, pointers, counts)

    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(add, runs))
    return counts


def find_slices(runs: list[Run], bounds: list[int]) -> list[Slices]:
    """Where the blocks with these bounds lie in the runs."""
    wanted = np.array(bounds, np.uint32)  # of their type, or NumPy would make a wider copy of the features

    def find(run: Run) -> tuple[np.ndarray, np.ndarray]:
        places = np.searchsorted(_read(run, "features"), wanted)
        return places, _read(run, "pointers")[places]

    with ThreadPoolExecutor(READERS) as readers:
        places, pointers = (np.array(found, np.int64) for found in zip(*readers.map(find, runs), strict=True))
    return [Slices(places[:, k : k + 2].copy(), pointers[:, k : k + 2].copy()) for k in range(len(bounds) - 1)]


def _read(run: Run, name: str) -> np.ndarray:
    """One of a run's arrays, in work space of this thread."""
    return run.read(name, room=lambda nbytes: work_space(f"run {name}", nbytes, np.uint8))


@dataclass(frozen=True)
class Pieces:
    """What several runs hold of a block, in work space of this thread, good until it reads the next ones.

    Attributes
    ----------
    features, pointers, samples, values : ndarray
        The pieces of all runs, with gaps; values are None where all are 1.
    places : ndarray of shape (n_runs, 5), uint64
        Where those of each run begin: of its features, and their end; of its pointers, its samples, its values.
    scale : float
        What the values are to be divided by.
    """

    features: np.ndarray
    pointers: np.ndarray
    samples: np.ndarray
    values: np.ndarray | None
    places: np.ndarray
    scale: float


def groups(runs: list[Run], slices: Slices, most_bytes: int) -> Iterator[list[int]]:
    """Numbers of the runs that hold something of a block: in groups of the same types that fit into `most_bytes`."""
    group: list[int] = []
    size = 0
    lengths = np.hstack([np.diff(slices.features), np.diff(slices.nonzeros)])
    for number in np.flatnonzero(lengths[:, 0]).tolist():
        more = _slice_bytes(runs[number], *lengths[number].tolist())
        if group and (size + more > most_bytes or _types(runs[number]) != _types(runs[group[0]])):
            yield group
            group, size = [], 0
        group.append(number)
        size += more
    if group:
        yield group


def _types(run: Run) -> tuple:
    return run.decimal_places, *((name, run.arrays[name].dtype) for name in ("samples", "values") if name in run.arrays)


def _slice_bytes(run: Run, features: int, nonzeros: int) -> int:
    """Bytes of so many features and nonzeros of a run in memory, with the pages in which the pieces begin and end."""
    rows = {"features": features, "pointers": features, "samples": nonzeros, "values": nonzeros}
    return sum(rows[name] * run.array_type(name).itemsize + 2 * PAGE for name in rows if name in run.arrays)


def read_pieces(runs: list[Run], slices: Slices, group: list[int], with_values: bool) -> Pieces:
    """Read what a group of runs holds of a block."""
    places = np.zeros((len(group), 5), np.uint64)
    features, places[:, 0] = _read_piece(runs, group, "features", slices.features)
    places[:, 1] = places[:, 0] + np.diff(slices.features[group])[:, 0].astype(np.uint64)
    pointers, places[:, 2] = _read_piece(runs, group, "pointers", slices.features + np.array([0, 1]))
    samples, places[:, 3] = _read_piece(runs, group, "samples", slices.nonzeros)
    first = runs[group[0]]
    values = None
    if with_values and "values" in first.arrays:
        values, places[:, 4] = _read_piece(runs, group, "values", slices.nonzeros)
    return Pieces(features, pointers, samples, values, places, 10.0 ** (first.decimal_places or 0))


def _read_piece(runs: list[Run], group: list[int], name: str, bounds: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Rows of an array of each run, one behind the other from a page on, and where each begins."""
    dtype = runs[group[0]].array_type(name)
    sizes = [whole_pages(int(stop - start) * dtype.itemsize) + PAGE for start, stop in bounds[group]]
    room = work_space(_SPACES[name], sum(sizes), np.uint8)
    begins = []
    for number, begin in zip(group, itertools.accumulate(sizes, initial=0), strict=False):
        start, stop = bounds[number].tolist()
        runs[number].read(name, start, stop, lambda nbytes, begin=begin: room[begin : begin + nbytes])  # type: ignore[misc]
        begins.append((begin + start * dtype.itemsize % PAGE) // dtype.itemsize)
    return room.view(dtype), begins
