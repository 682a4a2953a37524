"""Commands that fit machines and use them: fit, predict, evaluate, groups."""

from __future__ import annotations

import json
import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import gdm_dask
from gdm_dask.cli import options as opt
from gdm_dask.cli.live import live_cuts
from gdm_dask.cli.main import app, out
from gdm_dask.cli.markup import escape, plain
from gdm_dask.errors import BadInput

if TYPE_CHECKING:
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.machine_state import Iteration

logger = logging.getLogger(__name__)

RUN = typer.Argument(metavar="RUN", help="Folder of a finished fit.")


class TableFormat(StrEnum):
    """How a table is printed."""

    table = "table"
    tsv = "tsv"
    json = "json"


def show(facts: list[tuple[str, str]]) -> None:
    """Print names and values below each other, a line for each however long: a log must not break paths."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        out.print(f"[bold]{name:<{width}}[/]  {escape(value)}", highlight=False, soft_wrap=True)


@app.command()
@opt.takes(parameters=opt.machine_parameters, security=opt.security)
def fit(
    store: opt.Store,
    run: Annotated[Path, typer.Option(help="Folder for the result.")],
    parameters: Any = None,
    scheduler: opt.Scheduler = None,
    workers: opt.Workers = None,
    resume: opt.Resume = False,
    overwrite: opt.Overwrite = False,
    security: Any = None,
) -> None:
    """Select support features of a store and find their groups.

    gdm fit train.zarr --run runs/first --n-features-to-select 100
    """
    from gdm_dask.run_directory import RunDirectory
    from gdm_dask.selection import settings_for

    opened = gdm_dask.open_store(store)
    with opt.chosen_scheduler(scheduler, security) as chosen:
        machine = gdm_dask.GroupDiscoveryMachine(scheduler=chosen, n_workers=workers, **parameters)
        enough = settings_for(machine, *opened.shape).n_supports
        with live_cuts(opened.shape[0], enough, machine.tol, log_iteration) as on_cut:
            machine = RunDirectory(run).fit(machine, opened, resume, overwrite, callback=on_cut)
    summarise(machine, run)


def log_iteration(iteration: Iteration) -> None:
    """Log the line of a cut."""
    logger.info("%s", iteration)


def summarise(machine: GroupDiscoveryMachine, run: Path) -> None:
    """Print what a fit found."""
    groups = "not searched for"
    if machine.groups_ is not None:
        sizes = [len(members) for members in machine.groups_.values()]
        groups = f"{sum(size > 1 for size in sizes):,} with affiliated features, {sum(sizes):,} members in all"
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in machine.timings_.items() if name != "total")
    state = "converged" if machine.converged_ else f"stopped: {machine.stopped_}"
    entered = machine.history_[-1].n_supports
    show(
        [
            ("run", str(run)),
            ("supports", f"{len(machine.support_features_):,} of {machine.n_features_in_:,} features"),
            ("groups", groups),
            ("redundancy", f"{machine.redundancy_rate_:.4f}"),
            ("cuts", f"{machine.n_cuts_}, gap {machine.gap_:.3g} over the {entered:,} supports that entered ({state})"),
            ("seconds", f"{machine.timings_['total']:.2f} ({parts})"),
        ]
    )


@app.command()
def predict(
    run: Annotated[Path, RUN],
    store: opt.Store,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output otherwise.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print decision values beside the labels.")] = False,
) -> None:
    """Print the predicted label of every sample of a store, one per line."""
    machine = gdm_dask.GroupDiscoveryMachine.load(run)
    decision = machine.decision_function(gdm_dask.open_store(store))
    labels = machine.classes_[(decision > 0).astype(int)]
    values = decision.tolist()
    lines = [f"{label}\t{value!r}" if scores else str(label) for label, value in zip(labels, values, strict=True)]
    text = "\n".join(lines) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command()
def evaluate(
    run: Annotated[Path, RUN],
    store: opt.Store,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print accuracy, balanced accuracy, AUC, redundancy rate and sizes of a fitted machine on a store."""
    from gdm_dask.evaluation import evaluate as evaluate_machine

    facts = evaluate_machine(gdm_dask.GroupDiscoveryMachine.load(run), gdm_dask.open_store(store))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    show([(name.replace("_", " "), _plain(value)) for name, value in facts.items()])


def _plain(value: Any) -> str:
    if value is None:
        return "not defined: the store has samples of one class only"
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


@app.command()
def groups(
    run: Annotated[Path, RUN],
    form: Annotated[TableFormat, typer.Option("--format", "-f", help="How to print.")] = TableFormat.table,
    members: Annotated[int, typer.Option(min=0, help="Members shown for each support in the table; 0 for all.")] = 8,
) -> None:
    """Print the supports, strongest first, with their groups.

    TSV has a line for each pair: support, its name, feature, its name, correlation, owner.
    """
    machine = gdm_dask.GroupDiscoveryMachine.load(run)
    if machine.affiliations_ is None or machine.groups_ is None:
        raise BadInput(f"{run}: the groups were not searched for. Fit again with --groups.")
    name = machine.name_of
    if form is TableFormat.table:
        _print_groups(machine, members)
        return
    rows = [
        {
            "support": int(support), "support_name": name(support), "feature": int(feature),
            "feature_name": name(feature), "correlation": float(rho), "owner": bool(owner),
        }
        for support, feature, rho, owner in machine.affiliations_.itertuples(index=False)
    ]  # fmt: skip
    if form is TableFormat.json:
        typer.echo(json.dumps(rows, indent=1))
        return
    lines = ["\t".join(rows[0])] + ["\t".join(_cell(value) for value in row.values()) for row in rows]
    sys.stdout.write("\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    """A value in TSV: no tab, line break or other control character may come from a name."""
    return plain(str(value).replace("\\", "\\\\").replace("\n", "\\n"))


def _print_groups(machine: GroupDiscoveryMachine, members: int) -> None:
    assert machine.affiliations_ is not None
    assert machine.groups_ is not None
    table = Table("support", "weight", "members", "affiliated features (correlation)", box=None, pad_edge=False)
    by_support = dict(list(machine.affiliations_.groupby("support")))
    for support, weight in zip(machine.support_features_, machine.weights_, strict=True):
        pairs = by_support[support]
        others = pairs[pairs["feature"] != support]
        order = (-others["correlation"].abs()).argsort(kind="stable")
        shown = others.iloc[order[: members or None]]
        text = ", ".join(
            f"{machine.name_of(f)} ({rho:+.2f})" for f, rho in zip(shown["feature"], shown["correlation"], strict=True)
        )
        more = f", and {len(others) - len(shown):,} more" if len(others) > len(shown) else ""
        table.add_row(escape(machine.name_of(support)), f"{weight:+.4g}", f"{len(pairs):,}", escape(text + more))
    out.print(table)
