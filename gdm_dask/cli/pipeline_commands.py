"""Commands for pipelines: run, history, tune."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gdm_dask
from gdm_dask.cli import options as opt
from gdm_dask.cli.app import app
from gdm_dask.cli.console import show, show_columns

if TYPE_CHECKING:
    from gdm_dask.pipeline.history import Record

logger = logging.getLogger(__name__)

#: Columns of `gdm history`.
COLUMNS = (
    "started", "seconds", "status", "exit", "accuracy", "redundancy", "supports", "gained", "lost", "drift", "ran",
)  # fmt: skip

#: Values that `gdm tune` tries if none are given: C adapts itself to the data, so tau is left.
DEFAULT_TAUS = (0.1, 0.25, 0.5)

File = Annotated[Path, typer.Argument(metavar="FILE", help="Pipeline: a TOML file.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value, such as fit.tau=0.5.")
]


@app.command()
def run(
    file: File,
    overrides: Overrides = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="STAGE", help="Run this stage and all later ones even if they are up to date."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without running it.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for another run of this pipeline.")] = 0.0,
) -> None:
    """Run a pipeline: acquire, ingest, fit, evaluate, report; steps that are up to date are skipped.

    Exit codes: 0 (done), 2 (bad input), 3 (engine), 4 (another run holds the lock), 130 or 143 (interrupted).

      gdm run pipelines/synthetic.toml

      gdm run pipelines/mnist.toml --set fit.tau=0.5 --dry-run
    """
    from gdm_dask.pipeline import load_pipeline, plan_pipeline, run_pipeline

    pipeline = load_pipeline(file, overrides or ())
    if dry_run:
        show(list(plan_pipeline(pipeline, start)))
        return
    record = run_pipeline(pipeline, start, wait, tell=_tell)
    _summarise(record, pipeline.folder)


def _tell(step: str, state: str, seconds: float) -> None:
    logger.info("%s: %s (%.1f s)", step, state, seconds, extra={"step": step, "state": state, "seconds": seconds})


def _summarise(record: Record, folder: Path) -> None:
    assert record.run is not None
    current = [name for name, entry in record.stages.items() if entry["state"] == "up to date"]
    done = [name for name, entry in record.stages.items() if entry["state"] == "done"]
    facts = record.facts
    measure = "accuracy" if "accuracy" in facts else "r2"
    shown = "not defined" if facts[measure] is None else f"{facts[measure]:.4f}"
    lines = [
        ("pipeline", f"{record.pipeline} in {folder}"),
        ("up to date", ", ".join(current) or "nothing"),
        ("done", f"{', '.join(done) or 'nothing'} ({record.seconds:.1f} s in total)"),
        (measure, f"{shown} on the {facts['on']} set of {facts['n_samples']:,} samples"),
        ("redundancy", f"{facts['redundancy_rate']:.4f}"),
        (
            "features",
            f"{facts['n_supports']:,} supports and {facts['n_affiliated']:,} affiliated of {facts['n_features']:,}",
        ),
    ]
    if record.change:
        lines.append(("change", f"{record.change['gained']} supports gained, {record.change['lost']} lost"))
    report = sorted((folder / record.run).glob("report.*"))
    lines.append(("report", str(report[0]) if report else str(folder / record.run)))
    show(lines)


@app.command()
def history(
    file: File,
    overrides: Overrides = None,
    last: Annotated[int, typer.Option(min=0, help="Number of runs to print; 0 prints all.")] = 20,
    as_json: opt.AsJson = False,
) -> None:
    """Print the runs of a pipeline: start, duration, outcome, and changes since the previous run."""
    from gdm_dask.pipeline import load_pipeline
    from gdm_dask.pipeline.history import History

    records = History(load_pipeline(file, overrides or ()).folder).records()[-last or None :]
    if as_json:
        typer.echo(json.dumps([asdict(record) for record in records], indent=1))
        return
    show_columns([list(COLUMNS), *map(_cells, records)])


def _cells(record: Record) -> list[str]:
    facts, change = record.facts, record.change
    ran = [name.replace(" ", "-") for name, entry in record.stages.items() if entry["state"] != "up to date"]
    values = [
        record.started, record.seconds, record.status, record.exit_code, facts.get("accuracy"),
        facts.get("redundancy_rate"), facts.get("n_supports"), change.get("gained"), change.get("lost"),
        change.get("drift"), ",".join(ran) or "-",
    ]  # fmt: skip
    return [_cell(value) for value in values]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command()
@opt.takes(constraints=opt.constraints, security=opt.security, storage=opt.storage)
def tune(
    store: opt.Store,
    n_features_to_select: opt.Supports = None,
    tau: Annotated[list[float] | None, typer.Option(help="Value to try; may be repeated.")] = None,
    C: Annotated[list[float] | None, typer.Option("--C", help="Value to try; may be repeated.")] = None,
    cut_size: Annotated[list[int] | None, typer.Option(help="Value to try; may be repeated.")] = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 3,
    samples: Annotated[int | None, typer.Option(min=20, help="Maximum number of samples to use.")] = None,
    scheduler: opt.Scheduler = None,
    workers: opt.Workers = None,
    memory_limit: opt.MemoryLimit = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the table, as JSON.")] = None,
    constraints: Any = None,
    storage: Any = None,
    security: Any = None,
) -> None:
    """Search for tau, C and cut_size by cross-validation on one store, and print the best values.

    gdm tune train.zarr -k 50 --tau 0.25 --tau 0.5 --C 10 --C 50 -o tuning.json

    Without values to try, tau is 0.1, 0.25 and 0.5.
    """
    from gdm_dask.analysis.cross_validation import tune as tune_store
    from gdm_dask.estimator import estimator_for
    from gdm_dask.store.folder import check_writable

    if output is not None:
        check_writable(output)
    given = {"tau": tau, "C": C, "cut_size": cut_size}
    grid: dict[str, Any] = {name: values for name, values in given.items() if values} or {"tau": list(DEFAULT_TAUS)}
    grid |= {"folds": folds} | ({} if samples is None else {"samples": samples})
    with opt.chosen_scheduler(scheduler, security) as chosen:
        parameters = {
            "n_features_to_select": n_features_to_select, "scheduler": chosen, "n_workers": workers,
            "memory_limit": memory_limit, **constraints,
        }  # fmt: skip
        opened = gdm_dask.open_store(store, storage)
        best = tune_store(opened, estimator_for(opened.own_target(), parameters), grid, output)
    show([(name, str(value)) for name, value in best.items()])
