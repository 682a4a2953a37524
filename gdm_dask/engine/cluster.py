"""Dask distributed: a cluster that is there already, or a local one.

State lives on the driver, so nothing that a cluster loses is missed: a task that was lost is submitted again, and since
every task gives the same answer wherever it runs, the result of a pass does not depend on what happened to it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import distributed

import gdm_dask
from gdm_dask.engine.members import WAIT_FOR_WORKERS, Members
from gdm_dask.engine.placement import Homes
from gdm_dask.engine.rounds import Round, checked_calls
from gdm_dask.errors import EngineError


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
        self._homes = Homes()
        self._members = Members(client)
        try:
            workers = self._members.wait_for_some()
        except BaseException:
            self.close()
            raise
        self.n_processes = len(workers)
        self.n_workers = sum(workers.values())
        self.worker_memory = self._members.memory
        self.description = f"cluster {self._members.address}, {self.n_processes} workers, {self.n_workers} threads"
        if client.dashboard_link:
            self.description += f", dashboard {client.dashboard_link}"

    def map(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        common: tuple,
        places: Sequence[int] | None,
        on_done: Callable[[Any], None] | None,
    ) -> list[Any]:
        """Apply `function` to all items, at their places while the workers there live."""
        self._members.refresh()
        workers = self._members.healthy() or self._members.wait_for_some()
        if places is not None:
            self._homes.settle(max(places) + 1, workers)
        results: dict[int, Any] = {}
        with self._client.as_current():
            round_ = Round(self._client, self._members, self._homes, function, items, common, places)
            for position, result in round_.results():
                results[position] = result
                if on_done is not None:
                    on_done(result)
        return [results[position] for position in range(len(items))]

    def tell_all(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Call a function on every worker that is there, without waiting for it."""
        if self._client.status != "running":
            return
        for worker in self._members.healthy():
            told = self._client.submit(
                checked_calls, gdm_dask.__version__, function, [argument], workers=[worker], pure=False
            )
            distributed.fire_and_forget(told)

    def close(self) -> None:
        """Close what was opened for this engine."""
        for thing in self._owned:
            thing.close()


def open_client(scheduler: str, security: Any = None) -> distributed.Client:
    """A client of a running cluster, by the address of its scheduler or its scheduler file."""
    options: dict[str, Any] = {"timeout": WAIT_FOR_WORKERS, "set_as_default": False}
    if security is not None:
        options["security"] = security
    if scheduler.endswith(".json"):
        if not Path(scheduler).exists():  # Dask would wait for it forever
            raise EngineError(f"no Dask scheduler answers at {scheduler}: there is no such file")
        options["scheduler_file"] = scheduler
    else:
        options["address"] = scheduler
    try:
        return distributed.Client(**options)
    except (OSError, TimeoutError, RuntimeError, ValueError, TypeError) as error:
        reason = str(error)
    # The client that could not connect is closed as it is collected. Now, and not in the thread of a next one's loop,
    # where both would wait for each other.
    gc.collect()
    raise EngineError(
        f"no Dask scheduler answers at {scheduler}: {reason}. Start one with 'dask scheduler', and check the address "
        "and the certificates."
    )


def connect(scheduler: str, n_workers: int) -> ClusterBackend:
    """A backend for the address of a scheduler, a scheduler file, or ``"local"`` for a cluster on this machine."""
    if scheduler != "local":
        client = open_client(scheduler)
        return ClusterBackend(client, [client])
    cluster = distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
    )
    client = distributed.Client(cluster, set_as_default=False)
    return ClusterBackend(client, [client, cluster])
