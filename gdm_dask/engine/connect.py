"""Connect to a Dask cluster, or start one on this machine."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import distributed
from distributed.comm.core import connect as open_comm
from distributed.utils import LoopRunner

from gdm_dask.engine.cluster import ClusterEngine, seconds
from gdm_dask.errors import EngineError
from gdm_dask.system.processes import without_main_module


def open_client(scheduler: str, security: Any = None) -> distributed.Client:
    """Open a client of a running cluster, by the address of its scheduler or its scheduler file."""
    patience = seconds("wait-for-workers")
    security = security or distributed.Security()
    options: dict[str, Any] = {"timeout": patience, "security": security, "set_as_default": False}
    try:
        if scheduler.endswith(".json"):
            options["scheduler_file"] = scheduler
            address = json.loads(Path(scheduler).read_text())["address"]
        else:
            options["address"] = address = scheduler
        # The client itself waits forever for a scheduler to answer, or for a file.
        LoopRunner().run_sync(_greet, address, patience, security, callback_timeout=patience)
        return distributed.Client(**options)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error).rstrip(".") or f"timed out after {patience:g} s"
    # A client that could not connect closes itself when it is collected. Collect here: collecting on another loop's
    # thread deadlocks.
    gc.collect()
    raise EngineError(
        f"no Dask scheduler answers at {scheduler}: {reason}. Start one with 'dask scheduler', and check the address "
        "and the certificates."
    )


async def _greet(address: str, patience: float, security: distributed.Security) -> None:
    comm = await open_comm(address, timeout=patience, **security.get_connection_args("client"))
    await comm.close()


def connect(scheduler: str, n_workers: int) -> ClusterEngine:
    """Open an engine for the address of a scheduler, a scheduler file, or ``"local"`` for a cluster on this machine."""
    if scheduler != "local":
        client = open_client(scheduler)
        return ClusterEngine(client, [client])
    with without_main_module():
        cluster = distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
        )
    client = distributed.Client(cluster, set_as_default=False)
    return ClusterEngine(client, [client, cluster])
