"""A run directory: one fit with its lock, its checkpoint and its result. Private to its owner.

::

    RUN/run.json          which store, which parameters
    RUN/checkpoint.npz    state after the last cut, until the fit is done
    RUN/model.json, .npz  the fitted machine, when it is done
    RUN/.lock             while a process works on it
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdm_dask.errors import BadInput
from gdm_dask.locks import FileLock
from gdm_dask.store.folder import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gdm_dask.cutting_plane import Iteration
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.store import FeatureStore

logger = logging.getLogger(__name__)


class RunDirectory:
    """The folder of one fit.

    Parameters
    ----------
    path : path
        Made if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.npz"
        self.model = self.path / "model.json"

    @contextmanager
    def opened(self, resume: bool, overwrite: bool) -> Iterator[None]:
        """Hold the lock, having checked that the folder may be used.

        Parameters
        ----------
        resume : bool
            Go on with an unfinished fit.
        overwrite : bool
            Remove what an earlier fit left.
        """
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"{self.path} is a file: choose a folder for the run")
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(self.path / ".lock")
        lock.acquire(f"the run {self.path}")
        with lock:
            if overwrite:
                for name in ("model.json", "model.npz", "checkpoint.npz", "run.json"):
                    (self.path / name).unlink(missing_ok=True)
            elif self.model.exists() and not resume:
                raise BadInput(f"{self.path} holds a fitted model: choose another folder, or pass --overwrite")
            elif self.checkpoint.exists() and not resume:
                raise BadInput(f"{self.path} holds an unfinished fit: pass --resume to go on, or --overwrite")
            yield

    def fit(
        self,
        machine: GroupDiscoveryMachine,
        store: FeatureStore,
        resume: bool = False,
        overwrite: bool = False,
        callback: Callable[[Iteration], None] | None = None,
    ) -> GroupDiscoveryMachine:
        """Fit a machine on a store, saving its state after each cut and the result at the end.

        With `resume`, a finished run is not fitted again.
        """
        with self.opened(resume, overwrite):
            job = self._job(machine, store)
            if self.model.exists():
                return self._finished(type(machine), job)
            write_whole(self.path / "run.json", json.dumps(job, indent=1).encode())
            try:
                machine.fit(store, callback=callback, checkpoint=self.checkpoint)
            except BaseException:
                if self.checkpoint.exists():
                    logger.warning("%s: the state after the last cut is saved; go on with --resume", self.path)
                raise
            machine.save(self.path)
            self.checkpoint.unlink(missing_ok=True)
        return machine

    @staticmethod
    def _job(machine: GroupDiscoveryMachine, store: FeatureStore) -> dict[str, Any]:
        ignored = ("scheduler", "memory_limit", "verbose")
        parameters = {key: value for key, value in machine.get_params().items() if key not in ignored}
        return {"store": store.url, "fingerprint": store.fingerprint, "parameters": parameters}

    def _finished(self, cls: type[GroupDiscoveryMachine], job: dict[str, Any]) -> GroupDiscoveryMachine:
        try:
            earlier = json.loads((self.path / "run.json").read_bytes())
        except (OSError, ValueError):
            earlier = {}
        for key in ("fingerprint", "parameters"):
            if earlier.get(key) != job[key]:
                raise BadInput(f"{self.path} holds a fit with another {key}: choose another folder, or --overwrite")
        logger.info("%s: the fit was finished before", self.path)
        return cls.load(self.path)
