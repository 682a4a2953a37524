"""Dask distributed: a cluster that is there already, or a local one.

State lives on the driver, so nothing that a cluster loses is missed: a task that was lost is submitted again, and since
every task gives the same answer wherever it runs, the result of a pass does not depend on what happened to it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import distributed
import numpy as np
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

import gdm_dask
from gdm_dask.errors import EngineError

logger = logging.getLogger(__name__)

#: Seconds to wait for a first worker, and without any result before tasks are sent to other workers, too.
WAIT_FOR_WORKERS = float(os.environ.get("GDM_WAIT_FOR_WORKERS", 30))
STALL = float(os.environ.get("GDM_STALL", 120))
#: How often one task may be lost with its worker.
MAX_ATTEMPTS = 10
#: Arrays above this size are scattered to the workers once and not sent with every task.
SCATTERED_BYTES = 1 << 20

_LOST = (KilledWorker, FutureCancelledError, asyncio.CancelledError, distributed.comm.CommClosedError)


class ClusterBackend:
    """Runs tasks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    owned : list
        What `close` has to close: the client, and the cluster, where they were made for this engine.
    """

    name = "distributed"

    def __init__(self, client: distributed.Client, owned: list[Any]) -> None:
        self._client = client
        self._owned = owned
        self._wait_for_workers()
        self._check_versions()
        self.n_workers = len(self._workers())
        self.description = f"cluster {client.scheduler.address}, {self.n_workers} workers"
        if client.dashboard_link:
            self.description += f", dashboard {client.dashboard_link}"

    @property
    def memory_limit(self) -> int | None:
        """Memory that the workers were given, all together; None where they have no limit."""
        limits = [worker["memory_limit"] for worker in self._client.scheduler_info(n_workers=-1)["workers"].values()]
        return sum(limits) if limits and all(limits) else None

    def _workers(self) -> list[str]:
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    def _wait_for_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS)
        except TimeoutError:
            address = self._client.scheduler.address
            self.close()
            raise EngineError(
                f"the cluster at {address} has no workers after {WAIT_FOR_WORKERS:.0f} s. "
                f"Start some with 'dask worker {address}', or wait until they are up."
            ) from None

    def _check_versions(self) -> None:
        """Refuse workers with another gdm_dask: they might compute something else."""
        ours = gdm_dask.__version__
        for address, theirs in self._client.run(worker_version).items():
            if theirs != ours:
                self.close()
                raise EngineError(
                    f"worker {address} has gdm_dask {theirs}, this process has {ours}. "
                    "Install the same version on both sides."
                )

    def map(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        common: tuple,
        on_done: Callable[[Any], None] | None,
    ) -> list[Any]:
        """Apply `function` to all items; item i prefers worker i modulo the number of workers."""
        round_ = _Round(self._client, function, items, common)
        results: dict[int, Any] = {}
        with self._client.as_current():
            while len(results) < len(items):
                for position, result in round_.wait(self._workers):
                    if position not in results:
                        results[position] = result
                        if on_done is not None:
                            on_done(result)
            round_.forget()
        return [results[position] for position in range(len(items))]

    def close(self) -> None:
        """Close what was opened for this engine."""
        for thing in self._owned:
            thing.close()


class _Round:
    """The tasks of one pass on a cluster: submits them, submits lost and stalled ones again."""

    def __init__(
        self, client: distributed.Client, function: Callable[..., Any], items: Sequence[Any], common: tuple
    ) -> None:
        self._client = client
        self._function = function
        self._items = items
        self._common = common
        self._arguments: list[Any] | None = None
        self._tag = uuid.uuid4().hex[:8]
        self._futures: dict[distributed.Future, int] = {}
        self._open = set(range(len(items)))
        self._attempts = [0] * len(items)
        self._last_result = time.monotonic()

    def wait(self, workers: Callable[[], list[str]]) -> list[tuple[int, Any]]:
        """Results that have come since the last call; waits for at least one, or for a reason to submit again."""
        running = set(self._futures.values())
        missing = [position for position in self._open if position not in running]
        if missing:
            self._submit(missing, workers())
        try:
            done = distributed.wait(list(self._futures), timeout=min(STALL, 5.0), return_when="FIRST_COMPLETED").done
        except (TimeoutError, *_LOST):
            done = {future for future in self._futures if future.done()}
        self._check_scheduler()
        found = []
        for future in done:
            position = self._futures.pop(future)
            if position in self._open:
                found += self._collect(position, future)
        if not found and time.monotonic() - self._last_result > STALL:
            self._send_elsewhere(workers())
        return found

    def _collect(self, position: int, future: distributed.Future) -> list[tuple[int, Any]]:
        try:
            result = future.result(timeout=STALL)
        except (*_LOST, TimeoutError) as error:
            logger.warning("task %d was lost (%s), submitting it again", position, type(error).__name__)
            self._arguments = None  # scattered arrays may have died with the worker
            if self._attempts[position] >= MAX_ATTEMPTS:
                raise EngineError(
                    f"a task was lost {MAX_ATTEMPTS} times with its worker. The workers may have too little memory: "
                    "look at their logs, lower --memory-limit, or give them more."
                ) from error
            return []
        self._open.discard(position)
        self._last_result = time.monotonic()
        return [(position, result)]

    def _submit(self, positions: list[int], workers: list[str], avoid: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        if not workers:
            self._wait_for_workers()
            return
        if self._arguments is None:
            self._arguments = [self._shipped(value) for value in self._common]
        for position in positions:
            self._attempts[position] += 1
            home = workers[position % len(workers)]
            where = [worker for worker in workers if worker not in avoid] if home in avoid else [home]
            future = self._client.submit(
                checked_call, gdm_dask.__version__, self._function, self._items[position], *self._arguments,
                key=f"gdm-{self._tag}-{position}-{self._attempts[position]}", workers=where or None,
                allow_other_workers=True, pure=False,
            )  # fmt: skip
            self._futures[future] = position

    def _shipped(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.nbytes > SCATTERED_BYTES:
            # hash=False: scattering equal content again after its future was dropped fails in distributed
            return self._client.scatter(value, broadcast=True, hash=False)
        return value

    def _send_elsewhere(self, workers: list[str]) -> None:
        """Whoever has a task and does not answer is left out; the first answer counts."""
        busy = self._client.processing()
        stuck = {worker for worker, keys in busy.items() if keys}
        logger.warning("no result for %.0f s: sending %d tasks to other workers as well", STALL, len(self._open))
        self._last_result = time.monotonic()
        self._submit(sorted(self._open), workers, avoid=stuck)

    def _wait_for_workers(self) -> None:
        logger.warning("no worker is left: waiting up to %.0f s for one", WAIT_FOR_WORKERS)
        try:
            self._client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS)
        except TimeoutError:
            raise EngineError(
                f"no worker has come back within {WAIT_FOR_WORKERS:.0f} s. Start workers, and go on with --resume."
            ) from None

    def _check_scheduler(self) -> None:
        if self._client.status != "running":
            raise EngineError("the connection to the scheduler is lost. Start it again, and go on with --resume.")

    def forget(self) -> None:
        """Drop tasks that were submitted twice and whose answer is no longer needed."""
        self._client.cancel(list(self._futures), force=True)


def worker_version() -> str:
    """Version of gdm_dask in this process."""
    return gdm_dask.__version__


def checked_call(version: str, function: Callable[..., Any], item: Any, *arguments: Any) -> Any:
    """Run a task after checking that this worker has the driver's version; workers may join at any time."""
    if version != gdm_dask.__version__:
        raise EngineError(
            f"worker {distributed.get_worker().address} has gdm_dask {gdm_dask.__version__}, the driver has {version}. "
            "Install the same version on both sides."
        )
    return function(item, *arguments)


def open_client(scheduler: str, security: Any = None) -> distributed.Client:
    """A client of a running cluster, by the address of its scheduler or its scheduler file."""
    options: dict[str, Any] = {"timeout": WAIT_FOR_WORKERS, "set_as_default": False}
    if security is not None:
        options["security"] = security
    if scheduler.endswith(".json"):
        options["scheduler_file"] = scheduler
    else:
        options["address"] = scheduler
    try:
        return distributed.Client(**options)
    except (OSError, TimeoutError, RuntimeError, ValueError, TypeError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {scheduler}: {error}. Start one with 'dask scheduler', and check the "
            "address and the certificates."
        ) from error


def connect(scheduler: str, n_workers: int, security: Any = None) -> ClusterBackend:
    """A backend for the address of a scheduler, a scheduler file, or ``"local"`` for a cluster on this machine."""
    if scheduler != "local":
        client = open_client(scheduler, security)
        return ClusterBackend(client, [client])
    cluster = distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
    )
    client = distributed.Client(cluster, set_as_default=False)
    return ClusterBackend(client, [client, cluster])
