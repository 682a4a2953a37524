"""Run directory: one fit with its lock, its checkpoint and its result, readable only by its owner.

::

    RUN/run.json          the store and the parameters
    RUN/checkpoint.npz    state after the last cut, until the fit is finished
    RUN/model.json, .npz  the fitted model, once finished
    RUN/.lock             held while a process works here
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from gdm_dask.errors import BadInput, GdmError
from gdm_dask.model import plain
from gdm_dask.store.folder import absolute, local_folder, write_whole
from gdm_dask.store.layout import ROOT
from gdm_dask.system.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gdm_dask.base import GroupDiscovery
    from gdm_dask.cutting_plane.iteration import Iteration
    from gdm_dask.store import FeatureStore

logger = logging.getLogger(__name__)

#: Parameters that affect how a fit runs, not its result.
HOW_NOT_WHAT = ("scheduler", "n_workers", "memory_limit", "verbose")


class RunDirectory:
    """Folder of one fit, created if missing, accessible only to the user.

    A `job` that returns to the folder it started in resumes automatically.
    """

    def __init__(self, path: str | os.PathLike[str], job: str | None = None) -> None:
        self.path = local_folder(path, "the run directory")
        self.checkpoint = self.path / "checkpoint.npz"
        self.model = self.path / "model.json"
        self._description = self.path / "run.json"
        self._job = job

    def fit(
        self,
        estimator: GroupDiscovery,
        store: FeatureStore,
        resume: bool = False,
        overwrite: bool = False,
        callback: Callable[[Iteration], None] | None = None,
        wait: float = 0.0,
        y: np.ndarray | None = None,
    ) -> GroupDiscovery:
        """Fit on a store, saving the state after each cut and the result at the end.

        With `resume`, an unfinished fit continues, and a finished one is not repeated. With `overwrite`, an earlier fit
        is replaced; its model stays until the first cut of the new one. Waits `wait` seconds for another process that
        works in the folder. `y` replaces the targets of the store.
        """
        with self._opened(wait):
            if self._job is not None and self._read_description().get("job") == self._job:
                resume, overwrite = True, False
            self._check(resume, overwrite)
            description = self._describe(estimator, store, y)
            if self.model.exists() and not overwrite:
                return self._finished(type(estimator), description)
            if overwrite:
                self._remove_checkpoint()
            is_ours = not self.model.exists() and not self.checkpoint.exists()
            if is_ours:
                self._write_description(description)

            def on_cut(iteration: Iteration) -> None:
                nonlocal is_ours
                if not is_ours:
                    self._take_over(description)
                    is_ours = True
                if callback is not None:
                    callback(iteration)

            try:
                estimator.fit(store, y, callback=on_cut, checkpoint=self.checkpoint)
            except BaseException as error:
                from gdm_dask.cutting_plane.checkpoint import UnusableCheckpoint  # imported by the fit anyway

                if self.checkpoint.exists() and not isinstance(error, UnusableCheckpoint):
                    logger.warning("%s: the state after the last cut is saved; continue with --resume", self.path)
                raise
            self._write_description(description)
            self._save(estimator)
        return estimator

    @contextmanager
    def _opened(self, wait: float) -> Iterator[None]:
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"{self.path} is a file: choose a folder for the run")
        if (self.path / ROOT).exists():
            raise BadInput(f"{self.path} is a feature store: choose another folder for the run")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(exist_ok=True, mode=0o700)
        lock = FileLock(self.path / ".lock")
        lock.acquire(f"the run {self.path}", wait)
        with lock:
            yield

    def _check(self, resume: bool, overwrite: bool) -> None:
        if overwrite:
            return
        if self.model.exists() and not resume:
            raise BadInput(f"{self.path} holds a fitted model: choose another folder, or pass --overwrite")
        if self.checkpoint.exists() and not resume:
            raise BadInput(
                f"{self.path} holds an unfinished fit: pass --resume to continue, or --overwrite to start over"
            )

    def _remove_checkpoint(self) -> None:
        if self.checkpoint.is_dir():
            shutil.rmtree(self.checkpoint)
        self.checkpoint.unlink(missing_ok=True)

    def _take_over(self, description: dict[str, Any]) -> None:
        """Hand the folder over to this fit, once it has a first cut to resume from."""
        for name in ("model.json", "model.npz"):
            (self.path / name).unlink(missing_ok=True)
        self._write_description(description)

    def _describe(self, estimator: GroupDiscovery, store: FeatureStore, y: np.ndarray | None) -> dict[str, Any]:
        parameters = {key: plain(value) for key, value in estimator.get_params().items() if key not in HOW_NOT_WHAT}
        target = None if y is None else f"{crc32c(np.ascontiguousarray(y).tobytes()):08x}"
        return {
            "store": absolute(store.url), "fingerprint": store.fingerprint, "target": target,
            "parameters": parameters, "job": self._job,
        }  # fmt: skip

    def _read_description(self) -> dict[str, Any]:
        try:
            found = json.loads(self._description.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write_description(self, description: dict[str, Any]) -> None:
        try:
            write_whole(self._description, json.dumps(description, indent=1).encode())
        except OSError as error:
            raise GdmError(f"{self.path}: the folder cannot be written to: {error.strerror}") from error

    def _save(self, model: GroupDiscovery) -> None:
        try:
            model.save(self.path)
        except OSError as error:
            raise GdmError(
                f"{self.path}: the model cannot be written: {error.strerror}. The state after the last cut is kept: "
                "free some space, and continue with --resume."
            ) from error
        self.checkpoint.unlink(missing_ok=True)

    def _finished(self, cls: type[GroupDiscovery], description: dict[str, Any]) -> GroupDiscovery:
        earlier = self._read_description()
        there = earlier.get("parameters")
        there = there if isinstance(there, dict) else {}
        changed = [name for name, value in description["parameters"].items() if there.get(name) != value]
        changed += [name for name in ("target", "fingerprint") if earlier.get(name) != description[name]]
        if changed:
            what = " and ".join(changed).replace("fingerprint", "store")
            raise BadInput(f"{self.path} holds a fit with another {what}: choose another folder, or pass --overwrite")
        logger.info("%s: the fit is already finished", self.path)
        return cls.load(self.path)
