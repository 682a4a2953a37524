"""The workers of a cluster, as its scheduler knows them, and which of them can be relied on."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any

import distributed

from gdm_dask.errors import EngineError

logger = logging.getLogger(__name__)

#: Seconds to wait for a scheduler to answer, and for a first worker.
WAIT_FOR_WORKERS = float(os.environ.get("GDM_WAIT_FOR_WORKERS", 30))
#: Seconds without a heartbeat after which a worker is no longer counted on. It may come back.
SILENCE = float(os.environ.get("GDM_SILENCE", 30))

_PAUSE = 0.1


class Members:
    """Who is there, and when each was last heard of.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: distributed.Client) -> None:
        self._client = client
        self.address = str(client.scheduler.address)
        self._workers: dict[str, dict[str, Any]] = {}
        self._beats: dict[str, tuple[float, float]] = {}  # worker -> its last heartbeat, and when we saw a new one
        self._silent: set[str] = set()

    def refresh(self) -> None:
        """Ask the scheduler."""
        self._workers = self._ask()
        now = time.monotonic()
        beats = {worker: float(facts["last_seen"]) for worker, facts in self._workers.items()}
        self._beats = {
            worker: self._beats[worker] if worker in self._beats and self._beats[worker][0] == beat else (beat, now)
            for worker, beat in beats.items()
        }
        silent = {worker for worker, (_, seen) in self._beats.items() if now - seen > SILENCE}
        for worker in silent - self._silent:
            logger.warning("worker %s is silent for %.0f s: its work goes to others", worker, SILENCE)
        for worker in (self._silent - silent) & set(self._workers):
            logger.info("worker %s is back", worker)
        self._silent = silent

    def healthy(self) -> dict[str, int]:
        """Threads of the workers that run and are heard of, by address."""
        return {
            worker: int(facts["nthreads"])
            for worker, facts in sorted(self._workers.items())
            if facts["status"] == "running" and worker not in self._silent
        }

    def known(self) -> set[str]:
        """All workers that the scheduler has, heard of or not."""
        return set(self._workers)

    @property
    def memory(self) -> int | None:
        """The lowest memory limit of a worker; None where one has no limit."""
        limits = [int(facts["memory_limit"] or 0) for facts in self._workers.values()]
        return min(limits) or None if limits else None

    def wait_for_some(self) -> dict[str, int]:
        """`healthy`, as soon as there is a worker; `EngineError` if there is none for too long."""
        deadline = time.monotonic() + WAIT_FOR_WORKERS
        told = False
        while True:
            self.refresh()
            there = self.healthy()
            if there:
                return there
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the cluster at {self.address} has no workers that answer after {WAIT_FOR_WORKERS:g} s. "
                    f"Start some with 'dask worker {self.address}', and go on with --resume where a fit was begun. "
                    "GDM_WAIT_FOR_WORKERS sets the seconds to wait."
                )
            if not told:
                logger.warning(
                    "the cluster at %s has no workers: waiting up to %g s for one", self.address, WAIT_FOR_WORKERS
                )
                told = True
            time.sleep(_PAUSE)

    def wait_for_scheduler(self) -> None:
        """Return when the client is connected; `EngineError` when it has given up."""
        while self._client.status != "running":
            if self._client.status in ("closed", "closing"):
                raise self.lost()
            time.sleep(_PAUSE)

    def lost(self) -> EngineError:
        """The error to raise where the scheduler does not answer."""
        return EngineError(
            f"the connection to the scheduler at {self.address} is lost. Start it again, and go on with --resume "
            "where a fit was begun."
        )

    def _ask(self) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + WAIT_FOR_WORKERS
        while True:
            self.wait_for_scheduler()
            try:
                identity = self._client.sync(
                    self._client.scheduler.identity, n_workers=-1, callback_timeout=WAIT_FOR_WORKERS
                )
            except (OSError, TimeoutError, RuntimeError, AttributeError, asyncio.CancelledError) as error:
                # between the loss of the connection and a new one, the client has no scheduler
                if time.monotonic() > deadline:
                    raise self.lost() from error
                time.sleep(_PAUSE)
            else:
                return identity["workers"]
