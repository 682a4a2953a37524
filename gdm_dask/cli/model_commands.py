"""Commands that fit models and use them: fit, predict, evaluate, groups, report, stability."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.table import Table

import gdm_dask
from gdm_dask.cli import options as opt
from gdm_dask.cli.app import app
from gdm_dask.cli.console import escape, live_cuts, out, plain, show
from gdm_dask.errors import BadInput
from gdm_dask.system.resources import format_bytes, plural

if TYPE_CHECKING:
    from gdm_dask.analysis.stability import Stability
    from gdm_dask.cutting_plane.iteration import Iteration
    from gdm_dask.model import FittedModel

logger = logging.getLogger(__name__)
OnCut: TypeAlias = "Callable[[Iteration], None]"

RUN = typer.Argument(metavar="RUN", help="Run directory of a finished fit.")
Train = Annotated[str | None, typer.Option(help="Training store, for mean images and a model on all group members.")]
ImageShape = Annotated[
    str | None, typer.Option(help="Rows x columns of an image if features are pixels, such as 28x28.")
]
Other = Annotated[Path | None, typer.Option(help="Run directory of another fit on the same features, to compare with.")]

#: Number of supports in the summary of a fit, and the longest name there.
N_STRONGEST, LONGEST_NAME = 5, 24
#: File in the run directory with the result of `gdm stability`.
STABILITY_FILE = "stability.json"


class TableFormat(StrEnum):
    """Format of a printed table."""

    table = "table"
    tsv = "tsv"
    json = "json"


@app.command()
@opt.takes(parameters=opt.fit_parameters, security=opt.security, storage=opt.storage)
def fit(
    store: opt.Store,
    run: Annotated[Path, typer.Option(help="Run directory: the folder for the result.")],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Labels or numbers to fit instead of the store's target: .npy, .csv, .tsv, text, or a column of a "
            "table (cells.csv:cell_type).",
        ),
    ] = None,
    task: opt.Task = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Regression: ignore errors up to this many standard deviations.")
    ] = None,
    parameters: Any = None,
    scheduler: opt.Scheduler = None,
    workers: opt.Workers = None,
    resume: opt.Resume = False,
    overwrite: opt.Overwrite = False,
    metrics_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write metrics for Prometheus after each cut, as a file for node_exporter."),
    ] = None,
    storage: Any = None,
    security: Any = None,
) -> None:
    """Select support features of a store and find their groups.

    gdm fit train.zarr --run runs/first --n-features-to-select 100

    gdm fit prices.zarr --run runs/prices --n-features-to-select 50 --task regression
    """
    from gdm_dask.estimator import estimator_for
    from gdm_dask.inputs import settings_of, target_of_task
    from gdm_dask.pipeline.run_directory import RunDirectory
    from gdm_dask.store.target_files import check_targets

    opened = gdm_dask.open_store(store, storage)
    y = None if target is None else check_targets(target, opened.shape[1], store, opened.sample_ids)
    with opt.chosen_scheduler(scheduler, security) as chosen:
        known = target_of_task(opened, y, task, str(target))
        outputs = known.encode(opened.y if y is None else y)
        given = parameters | {"epsilon": epsilon, "scheduler": chosen, "n_workers": workers}
        estimator = estimator_for(known, given)
        enough = settings_of(estimator, opened, known, outputs).n_supports
        with (
            live_cuts(opened.shape[0], enough, estimator.tol, log_iteration) as on_cut,
            _measured(run, metrics_file, on_cut) as callback,
        ):
            model = RunDirectory(run).fit(estimator, opened, resume, overwrite, callback, y=y)
    summarise(model, run)


@contextmanager
def _measured(run: Path, file: Path | None, on_cut: OnCut) -> Iterator[OnCut]:
    """Keep a metrics file up to date, if one is wanted."""
    if file is None:
        yield on_cut
        return
    from gdm_dask.pipeline.fit_metrics import FitMetrics

    with FitMetrics({"run": str(run)}, file) as metrics:

        def callback(iteration: Iteration) -> None:
            on_cut(iteration)
            metrics.after(iteration)

        yield callback


def log_iteration(iteration: Iteration) -> None:
    """Log a line for a cut."""
    logger.info("%s", iteration)


def summarise(model: FittedModel, run: Path | None, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print the result of a fit, and more facts; `run` is None if its files are not kept."""
    from gdm_dask.report.summary import certificate, outcome, trade_off

    groups = "not searched for"
    if model.groups_ is not None:
        sizes = [len(members) for members in model.groups_.values()]
        groups = f"{sum(size > 1 for size in sizes):,} with affiliated features, {sum(sizes):,} members in total"
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in model.timings_.items() if name != "total")
    entered, proved = model.history_[-1].n_supports, certificate(model)
    gap = f"gap {model.gap_:.3g}, " if model.get_params()["n_features_to_select"] is None else ""
    names = model.supports_["name"].head(N_STRONGEST)
    strongest = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in names]
    prints_all = "" if run is None else f"; gdm groups {shlex.quote(str(run))} prints all"
    show(
        [
            *([] if run is None else [("run", str(run))]),
            ("supports", f"{len(model.support_features_):,} of {model.n_features_in_:,} features" + _demanded(model)),
            ("strongest", ", ".join(strongest) + prints_all),
            ("groups", groups),
            ("redundancy", f"{model.redundancy_rate_:.4f}"),
            ("cuts", f"{model.n_cuts_}, {entered:,} supports entered, {gap}{outcome(model)}"),
            ("C", f"{model.C_:.3g}, {trade_off(model)}"),
            *([] if proved is None else [("certificate", proved)]),
            ("seconds", f"{model.timings_['total']:.2f} ({parts})"),
            *more,
        ]
    )


def _demanded(model: FittedModel) -> str:
    """Tell how many supports were included, and how many variables they make up."""
    included = f", {len(model.included_):,} included" if len(model.included_) else ""
    return included + (f", {plural(len(model.variables_), 'variable')}" if model.variables_ else "")


@app.command()
@opt.takes(storage=opt.storage)
def predict(
    run: Annotated[Path, RUN],
    store: opt.Store,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output by default.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print decision values as well.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Print the id of each sample first.")] = False,
    storage: Any = None,
) -> None:
    """Print the predicted label or numbers of every sample of a store, one sample per line."""
    model, opened = gdm_dask.load_model(run), gdm_dask.open_store(store, storage)
    values = model.decision_values(opened)
    found = model.target_.decode(values)
    lines = ["\t".join(map(str, row.tolist())) for row in found.reshape(len(found), -1)]
    if scores:
        lines = ["\t".join([line, *map(repr, row)]) for line, row in zip(lines, values.T.tolist(), strict=True)]
    if ids:
        if opened.sample_ids is None:
            raise BadInput(f"{store}: the samples have no ids: leave out --ids")
        lines = [f"{_cell(name)}\t{line}" for name, line in zip(opened.sample_ids, lines, strict=True)]
    text = "\n".join(lines) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command()
@opt.takes(storage=opt.storage)
def evaluate(
    run: Annotated[Path, RUN],
    store: opt.Store,
    as_json: opt.AsJson = False,
    storage: Any = None,
) -> None:
    """Print accuracy or R2, redundancy rate and sizes of a fitted model on a store."""
    from gdm_dask.analysis.metrics import evaluate as evaluate_model

    facts = evaluate_model(gdm_dask.load_model(run), gdm_dask.open_store(store, storage))
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
    form: Annotated[TableFormat, typer.Option("--format", "-f", help="Output format.")] = TableFormat.table,
    members: Annotated[int, typer.Option(min=0, help="Members to show per support in the table; 0 shows all.")] = 8,
) -> None:
    """Print the supports, strongest first, with their groups.

    TSV has a line for each pair: support, its name, feature, its name, correlation, owner.
    """
    model = gdm_dask.load_model(run)
    if model.affiliations_ is None or model.groups_ is None:
        raise BadInput(f"{run}: the fit has no groups. Fit again with --groups.")
    name = model.name_of
    if form is TableFormat.table:
        _print_groups(model, members)
        return
    rows = [
        {
            "support": int(support), "support_name": name(support), "feature": int(feature),
            "feature_name": name(feature), "correlation": float(rho), "owner": bool(owner),
        }
        for support, feature, rho, owner in model.affiliations_.itertuples(index=False)
    ]  # fmt: skip
    if form is TableFormat.json:
        typer.echo(json.dumps(rows, indent=1))
        return
    lines = ["\t".join(rows[0])] + ["\t".join(_cell(value) for value in row.values()) for row in rows]
    sys.stdout.write("\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    """Format a value for TSV: names must not add tabs, line breaks or other control characters."""
    return plain(str(value).replace("\\", "\\\\").replace("\n", "\\n"))


def _print_groups(model: FittedModel, members: int) -> None:
    assert model.affiliations_ is not None
    assert model.groups_ is not None
    names = ("support", "weight", "speaks for", "members", "affiliated features (correlation)")
    table = Table(*names, box=None, pad_edge=False)
    by_support = dict(list(model.affiliations_.groupby("support")))
    for support in model.supports_.to_dict("records"):
        pairs = by_support[support["feature"]]
        others = pairs[pairs["feature"] != support["feature"]]
        order = (-others["correlation"].abs()).argsort(kind="stable")
        shown = others.iloc[order[: members or None]]
        text = ", ".join(
            f"{model.name_of(f)} ({rho:+.2f})" for f, rho in zip(shown["feature"], shown["correlation"], strict=True)
        )
        more = f", and {len(others) - len(shown):,} more" if len(others) > len(shown) else ""
        name, side = escape(support["name"]), escape(str(support["speaks_for"]))
        table.add_row(name, f"{support['weight']:+.4g}", side, f"{len(pairs):,}", escape(text + more))
    out.print(table)


@app.command()
@opt.takes(storage=opt.storage)
def report(
    run: Annotated[Path, RUN],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .html, .md or .json.")],
    store: Train = None,
    test: Annotated[str | None, typer.Option(help="Test store, to measure accuracy and importance.")] = None,
    image_shape: ImageShape = None,
    compare: Other = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Permutations per group, for its importance.")] = 5,
    storage: Any = None,
) -> None:
    """Write a report on a fitted model: one self-contained page that needs no network.

    gdm report runs/first -o report.html

    gdm report runs/first -o report.html --store train.zarr --test test.zarr --image-shape 28x28

    gdm report runs/second -o report.html --compare runs/first
    """
    from gdm_dask.report.images import parse_shape

    model = gdm_dask.load_model(run)
    model.report(
        output,
        title=title or f"{run.resolve().name}: supports and their groups",
        run=run_facts(run),
        store=None if store is None else gdm_dask.open_store(store, storage),
        test=None if test is None else gdm_dask.open_store(test, storage),
        image_shape=None if image_shape is None else parse_shape(image_shape),
        compare=None if compare is None else gdm_dask.load_model(compare),
        compare_name=str(compare),
        stability=_saved_stability(run, model),
        n_repeats=repeats,
    )
    out.print(f"{escape(str(output))}: {format_bytes(output.stat().st_size)}", highlight=False, soft_wrap=True)


def run_facts(run: Path) -> dict[str, Any]:
    """Return the store and fingerprint of a fit, if the run directory records them."""
    try:
        document = json.loads((run / "run.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: document[key] for key in ("store", "fingerprint") if key in document}


def _saved_stability(run: Path, model: FittedModel) -> Stability | None:
    from gdm_dask.analysis.stability import Stability

    path = run / STABILITY_FILE
    if not path.exists():
        return None
    found = Stability.load(path)
    if not found.is_about(model):
        logger.warning("ignoring %s, which belongs to an earlier fit: run 'gdm stability' again", path)
        return None
    return found


@app.command()
@opt.takes(security=opt.security, storage=opt.storage)
def stability(
    run: Annotated[Path, RUN],
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="The training store; by default where the run found it.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Number of subsamples.")] = 20,
    fraction: Annotated[float, typer.Option(help="Fraction of the samples of each class in a subsample.")] = 0.5,
    overlap: Annotated[
        float, typer.Option(help="Fraction of the smaller group that two groups must share to count as the same.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the subsamples.")] = 0,
    scheduler: opt.Scheduler = None,
    workers: opt.Workers = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Memory limit of all processes; by default the limit of the fit.")
    ] = None,
    as_json: opt.AsJson = False,
    storage: Any = None,
    security: Any = None,
) -> None:
    """Fit on subsamples of the training store and count how often each group is found.

    The result is saved in the run directory; gdm report shows it.
    """
    from gdm_dask.analysis.stability import stability_selection
    from gdm_dask.store.folder import check_writable

    model = gdm_dask.load_model(run)
    check_writable(run / STABILITY_FILE)
    fitted_on = run_facts(run)
    place = store or fitted_on.get("store")
    if place is None:
        raise BadInput(f"{run}: the run does not say where its training store is. Pass the training store.")
    opened = gdm_dask.open_store(place, storage)
    if fitted_on.get("fingerprint", opened.fingerprint) != opened.fingerprint:
        raise BadInput(f"{place}: the run was fitted on another store. Pass the training store.")
    with opt.chosen_scheduler(scheduler, security) as chosen:
        given = {"n_workers": workers, "memory_limit": memory_limit}
        model.set_params(scheduler=chosen, **{name: value for name, value in given.items() if value is not None})
        found = stability_selection(
            model, opened, n_repeats=repeats, fraction=fraction, overlap=overlap, seed=seed,
            callback=lambda number, total: logger.info("subsample %d of %d", number, total),
        )  # fmt: skip
    found.save(run / STABILITY_FILE)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
        return
    often = sum(frequency >= 0.8 for frequency in found.group_frequency)
    show(
        [
            ("fits", f"{found.n_repeats} on {found.fraction:.0%} of the samples"),
            ("groups", f"Jaccard {found.group_jaccard:.3f}, Kuncheva {found.group_kuncheva:.3f}"),
            ("single supports", f"Jaccard {found.support_jaccard:.3f}, Kuncheva {found.support_kuncheva:.3f}"),
            ("found again", f"{often} of {len(found.group_frequency)} groups in at least 80% of the fits"),
            ("kept in", str(run / STABILITY_FILE)),
        ]
    )
