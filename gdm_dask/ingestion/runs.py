"""Runs: slabs of the source, sorted by feature and written to scratch disk, from which blocks are merged.

A run is a folder of raw arrays. It gets its name only when it is complete::

    rows       (u, 2) uint16 or uint32: for each distinct feature, its distance from the one before and its number of
               nonzeros                                                       (sparse)
    samples    (k,) uint16 or uint32: samples of the nonzeros, by feature     (sparse)
    values     (k,), absent if all are 1; int32 if they are integers over one power of ten, half the bytes of float64;
               dense: (features, samples)
    labels     (samples,)    if the source carries labels
    run.json   counts; type, shape and checksum of the arrays
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.features.values import narrowed, try_whole
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import sort_by_feature
from gdm_dask.system.jit import kernel
from gdm_dask.system.scratch import page_aligned, work_space
from gdm_dask.system.uncached import read_file, write_file

#: Suffix of runs that are being written.
UNFINISHED = ".wip"

_CHECKED_AT_ONCE = 1 << 20
#: Rows of a block to which all runs are appended before the next rows: few enough to stay in the caches.
ROWS_AT_ONCE = 256

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)


@dataclass(frozen=True)
class RunArray:
    """Type, shape and CRC-32C of an array in a run."""

    dtype: str
    shape: list[int]
    crc: int


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its arrays and its counts.

    Its values have the type `value_type`; if `decimals` is not None, they are the numbers in the array divided by
    ``10.0**decimals``.
    """

    path: Path
    n_samples: int
    n_features: int
    nnz: int
    value_type: str
    skipped: int
    unseen: int
    entries: int
    arrays: dict[str, RunArray]
    decimals: int | None = None

    def read(
        self, name: str, start: int = 0, stop: int | None = None, room: Callable[[int], np.ndarray] = page_aligned
    ) -> np.ndarray:
        """Return rows `start` to `stop` of one of its arrays, in memory provided by `room` (see `read_file`).

        The file is read, not mapped, to keep the memory use as planned.
        """
        array = self.arrays[name]
        stop = array.shape[0] if stop is None else stop
        row_bytes = np.dtype(array.dtype).itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
        data = read_file(self.path / name, start * row_bytes, (stop - start) * row_bytes, room)
        return data.view(array.dtype).reshape(stop - start, *array.shape[1:])


def _checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while part := file.read(_CHECKED_AT_ONCE):
            crc = crc32c(part, crc)
    return crc


def write_run(path: Path, slab: Slab, value_limit: str | None) -> Run:
    """Sort a slab by feature and write it to `path` atomically; without `value_limit`, values are kept exactly."""
    arrays, counts = _dense_arrays(slab, value_limit) if slab.dense is not None else _sparse_arrays(slab, value_limit)
    if slab.labels is not None:
        arrays["labels"] = np.ascontiguousarray(slab.labels)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")
    unfinished.mkdir()
    entries = {}
    for name, array in arrays.items():
        write_file(unfinished / name, array)
        entries[name] = RunArray(array.dtype.name, list(array.shape), crc32c(array))  # type: ignore[arg-type]
    run = Run(
        path, slab.n_samples, skipped=slab.skipped, unseen=slab.unseen, entries=slab.entries, arrays=entries, **counts
    )
    document = {key: value for key, value in asdict(run).items() if key != "path"}
    (unfinished / "run.json").write_text(json.dumps(document))
    try:
        os.rename(unfinished, path)
    except OSError:
        if not path.exists():
            raise
        shutil.rmtree(unfinished)  # another worker finished the same run first, with the same content
    return run


def finished_run(path: Path) -> Run | None:
    """Return a run of an earlier attempt, or None; a damaged run is removed."""
    try:
        document = json.loads((path / "run.json").read_text())
        document["arrays"] = {name: RunArray(**array) for name, array in document["arrays"].items()}
        run = Run(path, **document)
        if all(_checksum(path / name) == array.crc for name, array in run.arrays.items()):
            return run
    except (OSError, ValueError, TypeError, KeyError):
        pass
    if path.exists():
        shutil.rmtree(path)
    return None


def _sparse_arrays(slab: Slab, value_limit: str | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    assert slab.values is not None
    kind, values = narrowed(slab.values, value_limit)
    if value_limit == "float32" and not values.all():  # values too small for float32 were rounded to zero
        slab = replace(slab, values=values).only(values != 0)
        values = slab.values  # type: ignore[assignment]
    whole = work_space("whole numbers", len(values), np.int32)
    decimals = try_whole(values, whole) if kind == "float64" else None
    if decimals is not None:
        values = whole
    features, pointers, samples, moved = sort_by_feature(
        slab.features,  # type: ignore[arg-type]
        slab.samples,  # type: ignore[arg-type]
        None if kind == "one" else values,
    )
    arrays = {"rows": make_rows(features, pointers), "samples": samples}
    if moved is not None:
        arrays["values"] = moved
    n_features = int(features[-1]) + 1 if len(features) else 0
    return arrays, {"n_features": n_features, "nnz": len(samples), "value_type": kind, "decimals": decimals}


def _dense_arrays(slab: Slab, value_limit: str | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    assert slab.dense is not None
    kind, values = narrowed(slab.dense, value_limit)
    counts = {"n_features": values.shape[1], "nnz": int(np.count_nonzero(values)), "value_type": kind}
    return {"values": np.ascontiguousarray(values.T)}, counts


def make_rows(features: np.ndarray, pointers: np.ndarray) -> np.ndarray:
    """Return the distance of each feature from the one before (the first: from 0), and its number of nonzeros.

    `pointers` are the start of the nonzeros of each of the increasing `features`, and the end. The rows are uint16 or
    uint32, in work space of this thread that is valid until the next call.

    Examples
    --------
    >>> make_rows(np.array([2, 7], np.uint32), np.array([0, 1, 4], np.uint32))
    array([[2, 1],
           [5, 3]], dtype=uint16)
    """
    steps, counts = np.diff(features, prepend=np.uint32(0)), np.diff(pointers)
    largest = max(steps.max(initial=0), counts.max(initial=0))
    rows = work_space("rows", 2 * len(features), np.uint16 if largest < 2**16 else np.uint32).reshape(-1, 2)
    rows[:, 0], rows[:, 1] = steps, counts
    return rows


@kernel
def add_counts(rows, counts):  # type: ignore[no-untyped-def]
    """Add the nonzeros of a run's features to `counts`."""
    feature = _0
    for k in range(np.uint64(len(rows))):
        feature += np.uint64(rows[k, 0])
        counts[feature] += np.uint32(rows[k, 1])


@kernel
def find_bounds(rows, bounds, out):  # type: ignore[no-untyped-def]
    """Find for each of the increasing `bounds`: the rows and nonzeros before it, and the last feature before it."""
    k, nonzeros, feature = _0, _0, _0
    for number in range(len(bounds)):
        while k < np.uint64(len(rows)) and feature + np.uint64(rows[k, 0]) < np.uint64(bounds[number]):
            feature += np.uint64(rows[k, 0])
            nonzeros += np.uint64(rows[k, 1])
            k += _1
        out[number, 0], out[number, 1], out[number, 2] = k, nonzeros, feature


@kernel
def append_runs(  # type: ignore[no-untyped-def]
    rows, samples, values, places, power, first_feature, first_samples, cursors, out_samples, out_values
):  # fmt: skip
    """Append pieces of several runs, in their order, to the rows of a block at their `cursors`, and advance these.

    The pieces of all runs are in one array each. A row of `places` gives the start of the rows of a run (and their
    end), of its samples and of its values, and the feature that the first row is relative to; it is advanced. `values`
    is None if all are 1; otherwise they are divided by `power`, or used unchanged if that is None.
    """
    ones, left_out = len(values) == 0, len(out_values) == 0
    for stop in range(ROWS_AT_ONCE, len(cursors) + ROWS_AT_ONCE, ROWS_AT_ONCE):
        for run in range(len(places)):
            row, end, sample, value, feature = places[run]
            first_sample = first_samples[run]
            while row < end:
                following = feature + np.uint64(rows[row])
                cursor = following - np.uint64(first_feature)
                if cursor >= np.uint64(stop):
                    break
                feature = following
                place = np.uint64(cursors[cursor])
                for _ in range(rows[row + _1]):
                    out_samples[place] = samples[sample] + first_sample
                    if left_out:
                        pass
                    elif ones:
                        out_values[place] = 1
                    elif power is None:
                        out_values[place] = values[value]
                    else:
                        out_values[place] = values[value] / power
                    place += _1
                    sample += _1
                    value += _1
                cursors[cursor] = place
                row += _2
            places[run, 0], places[run, 2], places[run, 3], places[run, 4] = row, sample, value, feature
