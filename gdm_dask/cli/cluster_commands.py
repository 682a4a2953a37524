"""Commands for jobs on a cluster: submit, status, logs, cancel, fetch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gdm_dask.cli import options as opt
from gdm_dask.cli.app import app
from gdm_dask.cli.console import plain, show_columns

Job = Annotated[str, typer.Argument(metavar="JOB", help="Job id, as printed by gdm submit.")]


@app.command()
@opt.takes(parameters=opt.fit_parameters, security=opt.security, storage=opt.storage)
def submit(
    store: opt.Store,
    scheduler: opt.Cluster,
    run: Annotated[
        str | None, typer.Option(help="Run directory as seen by the workers, preferably on shared storage.")
    ] = None,
    parameters: Any = None,
    resume: opt.Resume = False,
    overwrite: opt.Overwrite = False,
    priority: Annotated[int, typer.Option(help="Waiting jobs with the highest priority start first.")] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends.")] = False,
    storage: Any = None,
    security: Any = None,
) -> None:
    """Submit a fit to a cluster and print its job id. The fit continues after this computer disconnects.

    gdm submit /shared/train.zarr --scheduler tcp://head:8786 --run /shared/runs/first -k 100
    """
    from gdm_dask.pipeline.jobs import submit_fit, wait_for_job
    from gdm_dask.store.folder import absolute

    with opt.connected(scheduler, security) as client:
        run = run and absolute(run)
        job = submit_fit(client, absolute(store), run, parameters, resume, overwrite, priority, storage)
        typer.echo(job)
        if wait:
            wait_for_job(client, job)


@app.command()
@opt.takes(security=opt.security)
def status(
    scheduler: opt.Cluster,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Job id; all jobs by default.")] = None,
    as_json: opt.AsJson = False,
    purge: Annotated[bool, typer.Option("--purge", help="Forget ended jobs and their results.")] = False,
    security: Any = None,
) -> None:
    """Print the state and progress of one job, or of all jobs of the cluster."""
    from gdm_dask.pipeline.jobs import job_status, list_jobs, purge_jobs

    with opt.connected(scheduler, security) as client:
        if purge:
            purge_jobs(client)
        states = [job_status(client, job)] if job else list_jobs(client)
    if as_json:
        typer.echo(json.dumps(states, indent=1))
        return
    show_columns([["job", "state", "cuts", "supports", "gap", "memory", "expected end", ""], *map(_row, states)])


def _row(state: dict[str, Any]) -> list[str]:
    """Return the cells of a job; progress is empty before the first cut."""
    from gdm_dask.system.resources import format_bytes

    cells, said = [state["job"], state["state"]], plain(state["error"] or state.get("last", ""))
    if state["state"] == "failed" and not said:  # its driver could not report it, and to look costs a question
        said = f"gdm status {state['job']} prints the error"
    if "cuts" not in state:
        return [*cells, "", "", "", "", "", said]
    end = state["expected_end"] if state["state"] == "running" else None
    shown = "" if end is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(end))
    numbers = [f"{state['cuts']}", f"{state['supports']}", f"{state['gap']:.2%}", format_bytes(state["memory"])]
    return [*cells, *numbers, shown, said]


@app.command()
@opt.takes(security=opt.security)
def logs(
    scheduler: opt.Cluster,
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    security: Any = None,
) -> None:
    """Print the log of a job."""
    from gdm_dask.pipeline.jobs import job_log

    with opt.connected(scheduler, security) as client:
        for stamp, line in job_log(client, job):
            if as_json:
                typer.echo(json.dumps({"time": stamp, "job": job, "message": line}))
                continue
            typer.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(stamp))} {plain(line)}")


@app.command()
@opt.takes(security=opt.security)
def cancel(
    scheduler: opt.Cluster,
    job: Job,
    security: Any = None,
) -> None:
    """Remove a waiting job or stop a running one. The checkpoint stays in the run directory."""
    from gdm_dask.pipeline.jobs import cancel_job

    with opt.connected(scheduler, security) as client:
        cancel_job(client, job)
    typer.echo(f"{job} is cancelled")


@app.command()
@opt.takes(security=opt.security)
def fetch(
    scheduler: opt.Cluster,
    job: Job,
    to: Annotated[Path, typer.Option(help="Folder to write the result to.")],
    overwrite: opt.Overwrite = False,
    security: Any = None,
) -> None:
    """Write the result of a finished job into a local folder."""
    from gdm_dask.pipeline.jobs import RESULT_FILES, fetch_job

    with opt.connected(scheduler, security) as client:
        folder = fetch_job(client, job, to, overwrite)
    typer.echo(f"{folder}: {', '.join(RESULT_FILES)}")
