"""``gdm plan``: forecast the cost of a fit before anything runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdm_dask.cli import options as opt
from gdm_dask.cli.app import app
from gdm_dask.cli.console import show
from gdm_dask.errors import BadInput
from gdm_dask.system.resources import format_bytes

if TYPE_CHECKING:
    from gdm_dask.growth.forecast import Cluster, Forecast

Store = Annotated[str | None, typer.Argument(metavar="STORE", help="A feature store: folder or URL.")]
Supports = Annotated[int, typer.Option("--n-features-to-select", "-k", min=1, help="Supports to select.")]
Like = Annotated[str | None, typer.Option(help="Instead of a store: a lookalike (webspam, kdd2010, url, news20).")]
Scale = Annotated[float, typer.Option(help="Factor for the lookalike's number of samples and features.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of workers of a cluster; by default the threads of this computer.")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads per worker; by default 1, or the cores of this computer without a cluster."),
]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory of each worker and of the driver; by default a quarter of this computer's memory."),
]
Bandwidth = Annotated[
    str | None, typer.Option(help="Network bandwidth of each worker, such as 1GB/s; unlimited by default.")
]


@app.command()
@opt.takes(storage=opt.storage)
def plan(
    store: Store = None,
    n_features_to_select: Supports = 100,
    like: Like = None,
    scale: Scale = 1.0,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
    bandwidth: Bandwidth = None,
    tau: opt.Tau = 0.25,
    groups: opt.Groups = True,
    as_json: opt.AsJson = False,
    storage: Any = None,
) -> None:
    """Forecast the reads, memory, traffic, seconds and bottleneck of a fit.

    Measures the speed of this computer for a few seconds, on the store or on a small lookalike.

      gdm plan train.zarr -k 100

      gdm plan --like webspam --scale 100 -k 100 --workers 64 --threads 4 --memory 16GB --bandwidth 1GB/s
    """
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.growth.forecast import plan_lookalike, plan_store
    from gdm_dask.inputs import check_training_data
    from gdm_dask.settings.settings import check_parameters
    from gdm_dask.store import open_store

    if (store is None) == (like is None):
        raise BadInput("pass either a store or --like: gdm plan train.zarr, or gdm plan --like webspam --scale 10")
    cluster = _cluster(workers, threads, memory, bandwidth)
    machine = GroupDiscoveryMachine(n_features_to_select, tau=tau)
    check_parameters(machine.get_params(deep=False))
    if like is None:
        data = open_store(str(store), storage)
        task = "regression" if data.own_target().kind == "numbers" else "classification"
        check_training_data(machine, data, None, task)
        found = plan_store(data, n_features_to_select, cluster, tau, groups)
    else:
        found = plan_lookalike(like, scale, n_features_to_select, cluster, tau, groups)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        show(described(found))


def _cluster(workers: int | None, threads: int | None, memory: str | None, bandwidth: str | None) -> Cluster:
    from gdm_dask.growth.forecast import Cluster
    from gdm_dask.system.resources import default_memory_limit, n_cores, parse_bytes

    n_threads = threads or (n_cores() if workers is None else 1)
    n_bytes = default_memory_limit() if memory is None else parse_bytes(memory)
    speed = None if bandwidth is None else parse_bytes(bandwidth.removesuffix("/s"))
    return Cluster(workers or 0, n_threads, n_bytes, speed)


def described(found: Forecast) -> list[tuple[str, str]]:
    """Return the lines of a readable forecast."""
    data, cluster = found.data, found.cluster
    where = f"{cluster['threads']} threads, {format_bytes(cluster['memory'])}"
    if cluster["n_workers"]:
        speed = cluster["bandwidth"]
        where = f"{cluster['n_workers']:,} workers of {where}" + (f", {format_bytes(speed)}/s each" if speed else "")
    kept = {name: n_bytes for name, n_bytes in found.memory.items() if n_bytes}
    sent = {name: n_bytes for name, n_bytes in found.traffic.items() if n_bytes}
    return [
        ("data", f"{data['name']}: {data['n_features']:,} features x {data['n_samples']:,} samples, "
                 f"{data['nnz']:.3g} nonzeros"),
        ("store", f"{format_bytes(data['stored_bytes'])} on disk, {format_bytes(data['decoded_bytes'])} decoded in "
                  f"{data['n_blocks']:,} blocks"),
        ("where", where),
        *([("problems", f"{found.problems}: folds choose C, {found.at_once} problems share a read")]
          if found.problems > 1 else []),
        ("reads", f"{found.reads} of {found.tasks:,} tasks: {format_bytes(found.stored_bytes)} from the store, "
                  f"{format_bytes(found.decoded_bytes)} decoded"),
        ("memory", ", ".join(f"{name} {format_bytes(n_bytes)}" for name, n_bytes in kept.items())),
        ("traffic", ", ".join(f"{format_bytes(n_bytes)} {name}" for name, n_bytes in sent.items()) or "none"),
        ("seconds", f"{found.total_seconds:.3g} (" + ", ".join(f"{phase} {seconds:.3g}" for phase, seconds
                                                                in found.seconds.items()) + ")"),
        ("processor", f"{found.processor_seconds:.3g} s in total"),
        *[("limit", limit) for limit in found.limits],
        *([] if found.limits else [("bottleneck", found.bottleneck)]),
    ]  # fmt: skip
