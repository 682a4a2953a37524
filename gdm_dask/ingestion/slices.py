"""Slices: where blocks lie in the runs, and the pieces of runs that make a block, in memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from gdm_dask.ingestion.run_rows import add_counts, find_bounds
from gdm_dask.ingestion.runs import Run
from gdm_dask.work_space import PAGE, whole_pages, work_space

#: Threads that read the rows of runs, each into memory of its own: most of the time they wait for the disk.
READERS = 4
#: Pieces are read to where this thread had other arrays when it made runs: that memory is at hand.
_SPACES = {"rows": "parsed features", "samples": "samples", "values": "parsed samples"}


@dataclass(frozen=True)
class Slices:
    """Where a block lies in every run.

    Attributes
    ----------
    rows, nonzeros : ndarray of shape (n_runs, 2), int64
        Where its rows and its nonzeros begin and end in those of the run.
    before : ndarray of shape (n_runs,), int64
        The last feature of the run that comes before it: its first row counts from there.
    """

    rows: np.ndarray
    nonzeros: np.ndarray
    before: np.ndarray


def feature_counts(runs: list[Run], n_features: int) -> np.ndarray:
    """Nonzeros of each feature over all sparse runs, uint32 (a feature has fewer than 2**32 samples)."""
    counts = np.zeros(n_features, np.uint32)
    lock = threading.Lock()

    def add(run: Run) -> None:
        rows = _read_rows(run)
        with lock:
            add_counts(rows, counts)

    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(add, runs))
    return counts


def find_slices(runs: list[Run], bounds: list[int]) -> list[Slices]:
    """Where the blocks with these bounds lie in the runs."""

    def find(run: Run) -> np.ndarray:
        found = np.empty((len(bounds), 3), np.int64)
        find_bounds(_read_rows(run), np.array(bounds, np.uint64), found)
        return found

    with ThreadPoolExecutor(READERS) as readers:
        rows, nonzeros, before = np.moveaxis(np.array(list(readers.map(find, runs))), 2, 0)
    return [
        Slices(rows[:, k : k + 2].copy(), nonzeros[:, k : k + 2].copy(), before[:, k].copy())
        for k in range(len(bounds) - 1)
    ]


def _read_rows(run: Run) -> np.ndarray:
    """A run's rows, in work space of this thread."""
    return run.read("rows", room=lambda nbytes: work_space("run rows", nbytes, np.uint8))


@dataclass(frozen=True)
class Pieces:
    """What several runs hold of a block, in work space of this thread, good until it reads the next ones.

    Attributes
    ----------
    rows, samples, values : ndarray, 1-D
        The pieces of all runs, with gaps; values are None where all are 1.
    places : ndarray of shape (n_runs, 5), uint64
        Where those of each run begin: of its rows, and their end; of its samples, its values; and its feature before.
    power : float or None
        Of ten, that the values are to be divided by; None where they are taken as they are.
    """

    rows: np.ndarray
    samples: np.ndarray
    values: np.ndarray | None
    places: np.ndarray
    power: float | None


def groups(runs: list[Run], slices: Slices, most_bytes: int) -> Iterator[list[int]]:
    """Numbers of the runs that hold something of a block: in groups of the same types that fit into `most_bytes`."""
    group: list[int] = []
    size = 0
    lengths = np.hstack([np.diff(slices.rows), np.diff(slices.nonzeros)])
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
    return run.decimal_places, *((name, run.arrays[name].dtype) for name in _SPACES if name in run.arrays)


def _slice_bytes(run: Run, rows: int, nonzeros: int) -> int:
    """Bytes of so many rows and nonzeros of a run in memory, with the pages in which the pieces begin and end."""
    lengths = {"rows": 2 * rows, "samples": nonzeros, "values": nonzeros}
    return sum(lengths[name] * run.array_type(name).itemsize + 2 * PAGE for name in lengths if name in run.arrays)


def read_pieces(runs: list[Run], slices: Slices, group: list[int], with_values: bool, as_whole: bool) -> Pieces:
    """Read what a group of runs holds of a block; decimals are left whole numbers, or are to be divided."""
    places = np.zeros((len(group), 5), np.uint64)
    rows, places[:, 0] = _read_piece(runs, group, "rows", slices.rows)
    places[:, 1] = places[:, 0] + 2 * np.diff(slices.rows[group])[:, 0].astype(np.uint64)
    samples, places[:, 2] = _read_piece(runs, group, "samples", slices.nonzeros)
    first = runs[group[0]]
    values = None
    if with_values and "values" in first.arrays:
        values, places[:, 3] = _read_piece(runs, group, "values", slices.nonzeros)
    places[:, 4] = slices.before[group]
    power = None if as_whole or first.decimal_places is None else 10.0**first.decimal_places
    return Pieces(rows, samples, values, places, power)


def _read_piece(runs: list[Run], group: list[int], name: str, bounds: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """A piece of an array of each run, one behind the other from a page on, and where each begins."""
    dtype = runs[group[0]].array_type(name)
    row_bytes = dtype.itemsize * (2 if name == "rows" else 1)
    sizes = [whole_pages(int(stop - start) * row_bytes) + PAGE for start, stop in bounds[group]]
    room = work_space(_SPACES[name], sum(sizes), np.uint8)
    begins = []
    for number, begin in zip(group, itertools.accumulate(sizes, initial=0), strict=False):
        start, stop = bounds[number].tolist()
        runs[number].read(name, start, stop, lambda nbytes, begin=begin: room[begin : begin + nbytes])  # type: ignore[misc]
        begins.append((begin + start * row_bytes % PAGE) // dtype.itemsize)
    return room.view(dtype), begins
