"""Checkpoints: the state of a fit after each cut, in one file that is replaced whole."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.cutting_plane import Iteration, Machine, Settings, new_machine, restore_cuts
from gdm_dask.errors import BadInput, GdmError
from gdm_dask.master import MasterSolution
from gdm_dask.passes import Passes
from gdm_dask.store.folder import write_whole

FORMAT_VERSION = 1


class Checkpoint:
    """The file that a fit saves its state to, and the job that the state is of.

    Parameters
    ----------
    path : Path
    job : dict
        Data and parameters, in plain values; a checkpoint of another job is refused.
    """

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
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


def _restored(path: Path, job: dict[str, Any], y: np.ndarray, settings: Settings, passes: Passes) -> Machine:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            state = dict(arrays)
            document = json.loads(state["document"].tobytes())
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadInput(f"{path}: the checkpoint cannot be read ({error}). Begin anew with --overwrite.") from error
    if document["format_version"] > FORMAT_VERSION:
        raise BadInput(f"{path}: the checkpoint was written by a newer gdm_dask. Install that one.")
    differing = sorted(key for key in job if document["job"].get(key) != job[key])
    if differing:
        shown = ", ".join(f"{key} was {document['job'].get(key)!r} and is {job[key]!r}" for key in differing)
        raise BadInput(f"{path}: the checkpoint is of another fit: {shown}. Give the same, or begin with --overwrite.")
    machine = new_machine(y, settings)
    restore_cuts(machine, document["cuts"], document["supports"], passes)
    machine.spoken.affiliated = set(state["affiliated"].tolist())
    machine.master.alpha, machine.master.mu = state["alpha"], state["mu"]
    machine.lower_bounds, machine.upper_bounds = document["lower_bounds"], document["upper_bounds"]
    machine.iterations = [Iteration(**iteration) for iteration in document["iterations"]]
    upper, lower, gap = state["certificate"].tolist()
    machine.solution = MasterSolution(
        state["alpha"], state["mu"], state["weights"], state["scores"], upper, lower, gap, n_outer=0, n_newton=0
    )
    return machine
