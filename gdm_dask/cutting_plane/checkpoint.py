"""Checkpoints: the state of a fit after each cut, in one file that is replaced atomically."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.working_set import Seen
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput, GdmError
from gdm_dask.features.block import Block
from gdm_dask.master.newton import check_state
from gdm_dask.master.problem import MasterSolution
from gdm_dask.store.folder import write_whole
from gdm_dask.system.resources import BAD_ARRAYS, check_archive

FORMAT_VERSION = 2

_ARRAYS = ("covered", "working", "scores", "bounds", "duals", "mu", "weights", "intercept")
_DOCUMENT = {
    "cuts": list, "supports": list, "pool": list, "lower_bounds": list, "upper_bounds": list,
    "iterations": list, "n_reads": int, "is_crowded": bool, "floor": float, "n_taken": int,
}  # fmt: skip

State = tuple[dict[str, Any], dict[str, np.ndarray]]


class UnusableCheckpoint(BadInput):
    """The checkpoint is damaged, or belongs to another fit or version: the fit can only begin anew."""


class Checkpoint:
    """File that holds the state of a fit, and the job that it belongs to: data and parameters, as plain values.

    A checkpoint of another job is refused.
    """

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        if not path.absolute().parent.is_dir():
            raise BadInput(f"{path}: the folder for the checkpoint does not exist")
        self.path = path
        self._job = json.loads(json.dumps(job))  # as it will be read back

    def exists(self) -> bool:
        """Return whether a state was saved."""
        return self.path.exists()

    def save(self, problems: Mapping[int, Problem], losses: Mapping[int, list[float]] | None = None) -> None:
        """Write the states of problems, by number; for finished problems, their losses may be enough."""
        begun = {number: problem for number, problem in problems.items() if problem.cuts}
        try:
            write_whole(self.path, _packed(begun, self._job, dict(losses or {})))
        except OSError as error:
            n_cuts = max((len(problem.cuts) for problem in begun.values()), default=0)
            raise GdmError(
                f"{self.path}: the state after cut {n_cuts} cannot be written: {error.strerror}. "
                "The previous state is kept: free some space, and continue with --resume."
            ) from error

    def load(self, problems: Mapping[int, Problem], data: Data) -> dict[int, list[float]]:
        """Restore new problems to their saved state, from which they continue to the same bits; return the losses."""
        document, states = _read(self.path)
        self._check_job(document["job"])
        try:
            for number, (own, state) in states.items():
                if number in problems:
                    _restore(problems[number], own, state, data)
            return {int(number): loss for number, loss in document["losses"].items()}
        except (KeyError, ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
            raise _unreadable(self.path, str(error)) from error

    def _check_job(self, job: dict[str, Any]) -> None:
        differing = sorted(key for key in self._job if job.get(key) != self._job[key])
        if differing:
            shown = ", ".join(f"{key} was {job.get(key)!r} and is {self._job[key]!r}" for key in differing)
            raise UnusableCheckpoint(
                f"{self.path}: the checkpoint belongs to another fit: {shown}. Pass the same, or start over with "
                "--overwrite."
            )


def _packed(problems: dict[int, Problem], job: dict[str, Any], losses: dict[int, list[float]]) -> bytes:
    states = {str(number): _state(problem) for number, problem in problems.items()}
    document = {
        "format_version": FORMAT_VERSION,
        "job": job,
        "problems": {number: own for number, (own, _) in states.items()},
        "losses": losses,
    }
    arrays = {f"{number}.{name}": array for number, (_, state) in states.items() for name, array in state.items()}
    buffer = io.BytesIO()
    packed = np.frombuffer(json.dumps(document).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, document=packed, **arrays)
    return buffer.getvalue()


def _state(problem: Problem) -> State:
    """Return the document and arrays of a problem with at least one cut."""
    solution, seen = problem.solution, problem.working_set
    assert solution is not None
    document = {
        "cuts": problem.cuts,
        "supports": problem.supports.features,
        "pool": problem.pool.features,
        "lower_bounds": problem.lower_bounds,
        "upper_bounds": problem.upper_bounds,
        "iterations": [asdict(iteration) for iteration in problem.iterations],
        "n_reads": problem.n_reads,
        "is_crowded": problem.is_crowded,
        "floor": 0.0 if seen is None else seen.floor,
        "n_taken": 0 if seen is None else seen.n_cuts,
    }
    arrays = {
        "covered": np.array(sorted(problem.supports.covered), np.int64),
        "working": np.zeros(0, np.int64) if seen is None else seen.row_features,
        "scores": solution.scores,
        "bounds": np.array([solution.upper, solution.lower, solution.gap]),
        **problem.master.state(),
    }
    return document, arrays


def _read(path: Path) -> tuple[dict[str, Any], dict[int, State]]:
    """Read the document of a checkpoint and the state of each problem; nothing is unpickled."""
    try:
        content = path.read_bytes()
    except IsADirectoryError as error:
        raise _unreadable(path, "it is a folder") from error
    except OSError as error:
        raise BadInput(f"{path}: the checkpoint cannot be read: {error.strerror}") from error
    try:
        check_archive(io.BytesIO(content), len(content))  # its arrays are not compressed
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:  # members have checksums
            document = json.loads(arrays["document"].tobytes())
            version = document["format_version"]
            states = (
                {} if version != FORMAT_VERSION else _states(document, {name: arrays[name] for name in arrays.files})
            )
        is_newer = version > FORMAT_VERSION
    except (ValueError, AttributeError, RecursionError, *BAD_ARRAYS) as error:
        raise _unreadable(path, str(error)) from error
    if is_newer:
        raise UnusableCheckpoint(f"{path}: the checkpoint was written by a newer gdm_dask. Install that one.")
    if version != FORMAT_VERSION:
        raise UnusableCheckpoint(
            f"{path}: the checkpoint was written by gdm_dask 0.1, whose search was different. "
            "Start over with --overwrite."
        )
    return document, states


def _states(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[int, State]:
    """Return the state of each problem, after checking that it is complete."""
    states = {}
    is_whole = all(isinstance(document[name], dict) for name in ("job", "problems", "losses"))
    for number, own in document["problems"].items():
        first = f"{number}."
        state = {name.removeprefix(first): array for name, array in arrays.items() if name.startswith(first)}
        is_whole &= all(isinstance(own[name], kind) for name, kind in _DOCUMENT.items()) and {*_ARRAYS} <= {*state}
        states[int(number)] = own, state
    if not is_whole:
        raise ValueError("parts are missing")
    return states


def _unreadable(path: Path, reason: str) -> UnusableCheckpoint:
    return UnusableCheckpoint(f"{path}: the checkpoint cannot be read ({reason}). Start over with --overwrite.")


def _check(document: dict[str, Any], state: dict[str, np.ndarray], n_features: int) -> None:
    """Refuse feature numbers and bounds that a damaged file may hold: kernels index with the one, and bounds decide."""
    supports = {*document["supports"]}
    features = [*supports, *document["pool"], *state["covered"].tolist(), *state["working"].tolist()]
    if not all(type(feature) is int and 0 <= feature < n_features for feature in features):
        raise ValueError(f"features must be integers in [0, {n_features})")
    if not document["cuts"] or not all(cut and {*cut} <= supports for cut in document["cuts"]):
        raise ValueError("cuts must consist of supports")
    bounds = [document[name] for name in ("lower_bounds", "upper_bounds")]
    if not all(len(some) == len(document["cuts"]) and np.isfinite(some).all() for some in bounds):
        raise ValueError("bounds must be finite, a pair for each cut")
    check_state("scores", state["scores"], state["weights"].shape)


def _iteration(document: dict[str, Any]) -> Iteration:
    iteration = Iteration(**document)
    str(iteration)  # fails if a number is not one
    if not all(type(value) in (int, float) for value in (*iteration.cut, *iteration.scores, iteration.best_score)):
        raise ValueError("iterations must consist of numbers")
    return iteration


def _restore(problem: Problem, document: dict[str, Any], state: dict[str, np.ndarray], data: Data) -> None:
    """Read the rows of all features again and add the cuts one after the other."""
    _check(document, state, data.shape[0])
    supports, pool, working = np.array(document["supports"]), np.array(document["pool"], np.int64), state["working"]
    wanted = np.unique(np.concatenate([supports, pool, working]))
    whole = data.rows(wanted)
    problem.whole.add(wanted, whole)
    rows = problem.fold.of(whole)

    def rows_of(features: np.ndarray) -> Block:
        return rows.rows(np.searchsorted(wanted, features))

    for cut in document["cuts"]:
        known = set(problem.supports.features)
        new = np.array([feature for feature in supports.tolist() if feature in set(cut) - known], np.int64)
        new_rows = rows_of(new) if len(new) else None
        if new_rows is not None:
            problem.supports.add(new.tolist(), new_rows)
        problem.add_cut(cut, new_rows)
    problem.supports.covered = set(state["covered"].tolist())
    problem.pool.add(pool, rows_of(pool))
    problem.master.restore(state)
    problem.iterations = [_iteration(iteration) for iteration in document["iterations"]]
    problem.restore(document["lower_bounds"], document["upper_bounds"], document["n_reads"], document["is_crowded"])
    upper, lower, gap = state["bounds"].tolist()
    arrays = {name: state[name] for name in ("duals", "mu", "weights", "intercept", "scores")}
    problem.solution = MasterSolution(**arrays, upper=upper, lower=lower, gap=gap, n_newton=0)
    if len(working):
        problem.working_set = problem.supports.working_set(Seen(working, rows_of(working), document["floor"]))
        problem.working_set.n_cuts = document["n_taken"]
