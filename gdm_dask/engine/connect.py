"""Connect to a Dask cluster, or start one on this machine."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import distributed
from distributed.comm.core import connect as open_comm
from distributed.utils import LoopRunner

from gdm_dask.engine import LOCAL_SCHEDULERS
from gdm_dask.engine.cluster import ClusterEngine, seconds
from gdm_dask.errors import BadInput, EngineError
from gdm_dask.system.processes import without_main_module


def open_client(scheduler: str, security: Any = None) -> distributed.Client:
    """Open a client of a running cluster, by the address of its scheduler or its scheduler file."""
    patience = seconds("wait-for-workers")
    security = security or distributed.Security()
    try:  # the client itself would wait forever, for a file or for a scheduler to answer
        address = json.loads(Path(scheduler).read_text())["address"] if scheduler.endswith(".json") else scheduler
        LoopRunner().run_sync(_greet, address, patience, security, callback_timeout=patience)
        return distributed.Client(address, timeout=patience, security=security, set_as_default=False)
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


def connect(scheduler: Any, n_workers: int) -> ClusterEngine:
    """Open an engine for a client, the address of a scheduler, its file, or ``"local"``; see `open_engine`."""
    if isinstance(scheduler, distributed.Client):
        return ClusterEngine(scheduler, [])
    if not isinstance(scheduler, str):
        raise BadInput(f"`scheduler` must be a name, an address or a Client, got {type(scheduler).__name__}")
    if scheduler == "local":
        with without_main_module():
            cluster = distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
            )
        client = distributed.Client(cluster, set_as_default=False)
        return ClusterEngine(client, [client, cluster])
    if "://" not in scheduler and not scheduler.endswith(".json"):
        raise BadInput(
            f"unknown scheduler {scheduler!r}: choose {', '.join(LOCAL_SCHEDULERS)} or local, or pass the address of a "
            "running one (tcp://host:8786) or its scheduler file (.json)"
        )
    client = open_client(scheduler)
    return ClusterEngine(client, [client])
