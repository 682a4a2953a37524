"""Cache for data sets that take long to read or to generate, shared by all cells."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..columns import Matrix
from ..problem import Problem

_PARTS = ("X", "y", "X_test", "y_test")


def kept(name: str, make: Callable[[], Problem]) -> Problem:
    """Return the problem of this name, which `make` makes if it is not cached; the name must determine the content.

    The cache is ``paper-data`` below the folder GDM_RUNS (default: `runs`). It holds matrices, labels and groups.
    """
    folder = Path(os.environ.get("GDM_RUNS", "runs")) / "paper-data" / name
    if not folder.is_dir():
        _write(make(), folder)
    members, lengths = (np.load(folder / f"{part}.npy") for part in ("members", "lengths"))
    groups = np.split(members, np.cumsum(lengths)[:-1]) if len(lengths) else []
    parts: list[Any] = [_read(folder, part) for part in _PARTS]
    return Problem(*parts, groups=groups)


def _write(problem: Problem, folder: Path) -> None:
    """Write a problem atomically."""
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        for name in _PARTS:
            _save(getattr(problem, name), part, name)
        np.save(part / "members.npy", np.concatenate([np.zeros(0, np.int64), *problem.groups]))
        np.save(part / "lengths.npy", np.array([len(group) for group in problem.groups], np.int64))
        if not folder.is_dir():
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _save(values: Matrix, folder: Path, name: str) -> None:
    if not sp.issparse(values):
        np.save(folder / f"{name}.npy", values)
        return
    for array in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.{array}.npy", getattr(values, array))
    np.save(folder / f"{name}.shape.npy", values.shape)


def _read(folder: Path, name: str) -> Matrix:
    if (folder / f"{name}.npy").exists():
        return np.load(folder / f"{name}.npy")
    data, indices, indptr, shape = (
        np.load(folder / f"{name}.{array}.npy") for array in ("data", "indices", "indptr", "shape")
    )
    return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
