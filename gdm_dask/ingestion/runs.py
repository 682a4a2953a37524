"""Runs: slabs of the source, sorted by feature and put on scratch disk, from which blocks are merged.

A run is a folder that appears under its name only when it is whole::

    features.npy   (u,) uint32   the distinct features, increasing      (sparse)
    pointers.npy   (u + 1,)      where the nonzeros of each begin       (sparse)
    samples.npy    (k,) uint32   their samples                          (sparse)
    values.npy     (k,), or left out where all are 1; dense: (features, samples)
    labels.npy     (samples,)    where the source carries labels
    run.json       counts
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import sort_by_feature
from gdm_dask.values import VALUE_TYPES, dtype_of, narrowest


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, and its counts."""

    path: Path
    n_samples: int
    n_features: int
    nnz: int
    value_type: str
    skipped: int
    unseen: int

    def load(self, name: str) -> np.ndarray:
        """One of its arrays, mapped."""
        return np.load(self.path / f"{name}.npy", mmap_mode="r")

    def has(self, name: str) -> bool:
        """Whether it has that array."""
        return (self.path / f"{name}.npy").exists()


def write_run(path: Path, slab: Slab, value_type: str | None) -> Run:
    """Sort a slab by feature and write it under `path`, whole or not at all.

    Parameters
    ----------
    value_type : str or None
        Round values to this type; None keeps them exactly, in the narrowest type that can.
    """
    arrays, counts = _dense_arrays(slab, value_type) if slab.dense is not None else _sparse_arrays(slab, value_type)
    if slab.labels is not None:
        arrays["labels"] = slab.labels
    run = Run(path, slab.n_samples, skipped=slab.skipped, unseen=slab.unseen, **counts)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.wip")
    unfinished.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
    document = {key: value for key, value in asdict(run).items() if key != "path"}
    (unfinished / "run.json").write_text(json.dumps(document))
    try:
        os.rename(unfinished, path)
    except OSError:
        if not path.exists():
            raise
        shutil.rmtree(unfinished)  # another worker finished the same run first: the content is the same
    return run


def read_run(path: Path) -> Run | None:
    """A finished run, or None where there is none."""
    if not (path / "run.json").exists():
        return None
    return Run(path, **json.loads((path / "run.json").read_text()))


def _sparse_arrays(slab: Slab, value_type: str | None) -> tuple[dict[str, np.ndarray], dict]:
    assert slab.features is not None and slab.samples is not None and slab.values is not None
    kind, values = _narrowed(slab.values, value_type)
    features, pointers, samples, values = sort_by_feature(
        slab.features, slab.samples, None if kind == "one" else values
    )
    arrays = {"features": features, "pointers": pointers, "samples": samples}
    if values is not None:
        arrays["values"] = values
    n_features = int(features[-1]) + 1 if len(features) else 0
    return arrays, {"n_features": n_features, "nnz": len(samples), "value_type": kind}


def _dense_arrays(slab: Slab, value_type: str | None) -> tuple[dict[str, np.ndarray], dict]:
    assert slab.dense is not None
    kind, values = _narrowed(slab.dense, value_type)
    counts = {"n_features": values.shape[1], "nnz": int(np.count_nonzero(values)), "value_type": kind}
    return {"values": np.ascontiguousarray(values.T)}, counts


def _narrowed(values: np.ndarray, value_type: str | None) -> tuple[str, np.ndarray]:
    """Value type for these values and the values in it; rounds only where a type was asked for."""
    kind = narrowest(values)
    if value_type is not None:
        if VALUE_TYPES.index(value_type) < 2 and VALUE_TYPES.index(kind) > VALUE_TYPES.index(value_type):
            raise BadInput(f"some values cannot be stored as {value_type}: use float32, float64 or auto")
        kind = min(kind, value_type, key=VALUE_TYPES.index)
    return kind, values.astype(dtype_of(kind), copy=False)
