"""Checkpoints: the state of a fit after each cut, in one file that is replaced whole."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.cutting_plane import new_machine, restore_cuts
from gdm_dask.errors import BadInput, GdmError
from gdm_dask.machine_state import Iteration, Machine, Settings
from gdm_dask.master import MasterSolution
from gdm_dask.passes import Passes
from gdm_dask.store.folder import write_whole

FORMAT_VERSION = 1

_ARRAYS = ("affiliated", "alpha", "mu", "weights", "scores", "certificate")
_DOCUMENT = {
    "job": dict, "cuts": list, "supports": list, "pool": list, "lower_bounds": list, "upper_bounds": list,
    "iterations": list,
}  # fmt: skip


class Checkpoint:
    """The file that a fit saves its state to, and the job that the state is of.

    Parameters
    ----------
    path : Path
    job : dict
        Data and parameters, in plain values; a checkpoint of another job is refused.
    """

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        if not path.absolute().parent.is_dir():
            raise BadInput(f"{path}: there is no such folder to save the state in")
        self.path = path
        self._job = job

    def exists(self) -> bool:
        """Whether a state was saved."""
        return self.path.exists()

    def save(self, machine: Machine) -> None:
        """Write the state of a machine with at least one cut."""
        try:
            write_whole(self.path, _packed(machine, self._job))
        except OSError as error:
            raise GdmError(
                f"{self.path}: the state after cut {len(machine.cuts)} cannot be written: {error.strerror}. "
                "The state before it is kept: free some space, and go on with --resume."
            ) from error

    def load(self, y: np.ndarray, settings: Settings, passes: Passes) -> Machine:
        """A machine that goes on where the state was saved, to the same bits."""
        return _restored(self.path, self._job, y, settings, passes)


def _packed(machine: Machine, job: dict[str, Any]) -> bytes:
    solution = machine.solution
    assert solution is not None
    document = {
        "format_version": FORMAT_VERSION,
        "job": job,
        "cuts": machine.cuts,
        "supports": machine.spoken.features,
        "pool": machine.pool.features,
        "lower_bounds": machine.lower_bounds,
        "upper_bounds": machine.upper_bounds,
        "iterations": [asdict(iteration) for iteration in machine.iterations],
    }
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        document=np.frombuffer(json.dumps(document).encode(), np.uint8),
        affiliated=np.array(sorted(machine.spoken.affiliated), np.int64),
        alpha=machine.master.alpha,
        mu=machine.master.mu,
        weights=solution.weights,
        scores=solution.scores,
        certificate=np.array([solution.upper, solution.lower, solution.gap]),
    )
    return buffer.getvalue()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Document and arrays of a checkpoint, of which nothing is unpickled."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:  # its members have checksums
            state = {name: arrays[name] for name in (*_ARRAYS, "document")}
        document = json.loads(state.pop("document").tobytes())
        newer = document["format_version"] > FORMAT_VERSION
        whole = newer or all(isinstance(document[name], kind) for name, kind in _DOCUMENT.items())
    except (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise _unreadable(path, str(error)) from error
    if newer:
        raise BadInput(f"{path}: the checkpoint was written by a newer gdm_dask. Install that one.")
    if not whole:
        raise _unreadable(path, "parts are missing")
    return document, state


def _unreadable(path: Path, reason: str) -> BadInput:
    return BadInput(f"{path}: the checkpoint cannot be read ({reason}). Begin anew with --overwrite.")


def _restored(path: Path, job: dict[str, Any], y: np.ndarray, settings: Settings, passes: Passes) -> Machine:
    document, state = _read(path)
    differing = sorted(key for key in job if document["job"].get(key) != job[key])
    if differing:
        shown = ", ".join(f"{key} was {document['job'].get(key)!r} and is {job[key]!r}" for key in differing)
        raise BadInput(f"{path}: the checkpoint is of another fit: {shown}. Give the same, or begin with --overwrite.")
    machine = new_machine(y, settings)
    restore_cuts(machine, document["cuts"], document["supports"], passes)
    machine.pool.restore(document["pool"], passes.rows)
    machine.spoken.affiliated = set(state["affiliated"].tolist())
    machine.master.alpha, machine.master.mu = state["alpha"], state["mu"]
    machine.lower_bounds, machine.upper_bounds = document["lower_bounds"], document["upper_bounds"]
    machine.iterations = [Iteration(**iteration) for iteration in document["iterations"]]
    upper, lower, gap = state["certificate"].tolist()
    machine.solution = MasterSolution(
        state["alpha"], state["mu"], state["weights"], state["scores"], upper, lower, gap, n_outer=0, n_newton=0
    )
    return machine
