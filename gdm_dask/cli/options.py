"""Options that several commands share: the parameters of the machine, and how to reach a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from gdm_dask.errors import BadInput

Store = Annotated[str, typer.Argument(metavar="STORE", help="A feature store: folder or URL.")]

Supports = Annotated[int | None, typer.Option("--n-features-to-select", "-k", help="Supports to select.")]
Tau = Annotated[float, typer.Option(help="Features correlate from |rho| >= 1 - tau on; 0: no constraint (FGM).")]
TradeOff = Annotated[float, typer.Option("--C", help="Trade-off between margin and errors, for unit-norm features.")]
CutSize = Annotated[str, typer.Option(help="Most features of a cut, or auto.")]
MaxCuts = Annotated[int | None, typer.Option(help="Most cuts.")]
Tolerance = Annotated[float, typer.Option(help="Relative gap between the bounds at which to stop.")]
Matching = Annotated[str, typer.Option(help="greedy or exact.")]
Groups = Annotated[bool, typer.Option(help="Find the groups of the supports.")]
MemoryLimit = Annotated[str | None, typer.Option(help="Memory of all processes; a quarter of the machine's.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an unfinished fit in the folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")]

Scheduler = Annotated[
    str | None,
    typer.Option(
        help="synchronous, threads, processes, local (a cluster on this machine), the address of a Dask scheduler "
        "(tcp://, tls://) or its scheduler file.",
        envvar="GDM_SCHEDULER",
    ),
]
Cluster = Annotated[
    str,
    typer.Option("--scheduler", help="Address of the Dask scheduler, or its scheduler file.", envvar="GDM_SCHEDULER"),
]
TlsCa = Annotated[str | None, typer.Option(help="Certificate of the authority that signed the cluster's.")]
TlsCert = Annotated[str | None, typer.Option(help="Our certificate for tls://.")]
TlsKey = Annotated[str | None, typer.Option(help="Our private key for tls://.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Workers of a local scheduler; one per core.")]


def machine_parameters(
    n_features_to_select: int | None, tau: float, C: float, cut_size: str, max_cuts: int | None, tol: float,
    matching: str, groups: bool, memory_limit: str | None,
) -> dict[str, Any]:  # fmt: skip
    """Parameters of `GroupDiscoveryMachine` from the options of a command."""
    if cut_size != "auto" and not cut_size.isdigit():
        raise BadInput(f"cut_size is 'auto' or a whole number from 1 on, not {cut_size!r}")
    return {
        "n_features_to_select": n_features_to_select,
        "tau": tau,
        "C": C,
        "cut_size": cut_size if cut_size == "auto" else int(cut_size),
        "max_cuts": max_cuts,
        "tol": tol,
        "matching": matching,
        "groups": groups,
        "memory_limit": memory_limit,
    }


def absolute(path: str) -> str:
    """A local path as every process of this machine, or of one with the same mounts, finds it; URLs as they are."""
    return path if "://" in path else os.path.abspath(path)


def security(ca: str | None, cert: str | None, key: str | None) -> Any:
    """Certificates for Dask, or None to leave it to Dask's own configuration."""
    if ca is None and cert is None and key is None:
        return None
    from distributed.security import Security

    if ca is None or cert is None or key is None:
        raise BadInput("--tls-ca, --tls-cert and --tls-key go together")
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


@contextmanager
def connected(scheduler: str, ca: str | None, cert: str | None, key: str | None) -> Iterator[Any]:
    """A client of a running cluster."""
    from gdm_dask.engine.cluster import open_client

    client = open_client(scheduler, security(ca, cert, key))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def chosen_scheduler(scheduler: str | None, ca: str | None, cert: str | None, key: str | None) -> Iterator[Any]:
    """What to hand to the machine: a client where certificates are needed, the name otherwise."""
    if security(ca, cert, key) is None:
        yield scheduler
        return
    if scheduler is None:
        raise BadInput("--tls-ca, --tls-cert and --tls-key need --scheduler tls://...")
    with connected(scheduler, ca, cert, key) as client:
        yield client
