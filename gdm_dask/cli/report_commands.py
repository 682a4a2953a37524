"""Commands that show what a fit found: report, stability."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gdm_dask
from gdm_dask.cli import options as opt
from gdm_dask.cli.main import app, out
from gdm_dask.cli.markup import escape
from gdm_dask.cli.model_commands import RUN, show
from gdm_dask.errors import BadInput
from gdm_dask.resources import format_bytes

if TYPE_CHECKING:
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.stability import Stability

logger = logging.getLogger(__name__)

Test = Annotated[str | None, typer.Option(help="A store to measure accuracy and importance on.")]
Train = Annotated[str | None, typer.Option(help="The training store: mean images, and a model on all members.")]
ImageShape = Annotated[str | None, typer.Option(help="Rows x columns where features are pixels, such as 28x28.")]
Other = Annotated[Path | None, typer.Option(help="Another run on the same features, to compare with.")]

#: Where `gdm stability` leaves what it found.
STABILITY_FILE = "stability.json"


@app.command()
def report(
    run: Annotated[Path, RUN],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .html, .md or .json.")],
    store: Train = None,
    test: Test = None,
    image_shape: ImageShape = None,
    compare: Other = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Permutations for the importance of groups.")] = 5,
) -> None:
    """Write a page about a fitted machine: one file that opens from disk and fetches nothing.

    gdm report runs/first -o report.html

    gdm report runs/first -o report.html --store train.zarr --test test.zarr --image-shape 28x28

    gdm report runs/second -o report.html --compare runs/first
    """
    from gdm_dask.report.images import parse_shape

    machine = gdm_dask.GroupDiscoveryMachine.load(run)
    text = machine.report(
        output,
        title=title or f"{run.resolve().name}: supports and their groups",
        run=run_facts(run),
        store=None if store is None else gdm_dask.open_store(store),
        test=None if test is None else gdm_dask.open_store(test),
        image_shape=None if image_shape is None else parse_shape(image_shape),
        compare=None if compare is None else gdm_dask.GroupDiscoveryMachine.load(compare),
        compare_name=str(compare),
        stability=_saved_stability(run, machine),
        n_repeats=repeats,
    )
    out.print(f"{escape(str(output))}: {format_bytes(len(text.encode()))}", highlight=False, soft_wrap=True)


def run_facts(run: Path) -> dict[str, Any]:
    """Store and fingerprint of a fit, where its run directory has them."""
    try:
        document = json.loads((run / "run.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: document[key] for key in ("store", "fingerprint") if key in document}


def _saved_stability(run: Path, machine: GroupDiscoveryMachine) -> Stability | None:
    from gdm_dask.stability import Stability

    path = run / STABILITY_FILE
    if not path.exists():
        return None
    found = Stability.load(path)
    if not found.is_about(machine):
        logger.warning("%s is of an earlier fit and is left out: run 'gdm stability' again", path)
        return None
    return found


@app.command()
@opt.takes(security=opt.security)
def stability(
    run: Annotated[Path, RUN],
    store: opt.Store,
    repeats: Annotated[int, typer.Option(min=2, help="Fits on subsamples.")] = 20,
    fraction: Annotated[float, typer.Option(help="Part of the samples of each class in a subsample.")] = 0.5,
    overlap: Annotated[float, typer.Option(help="Part of the smaller group that two equal groups share.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Of the subsamples.")] = 0,
    scheduler: opt.Scheduler = None,
    workers: opt.Workers = None,
    memory_limit: Annotated[str | None, typer.Option(help="Memory of all processes; that of the fit.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    security: Any = None,
) -> None:
    """Fit again on subsamples of the training store and tell how often each group is found.

    The result is kept in the run directory, and gdm report shows it.
    """
    from gdm_dask.stability import stability_selection

    machine = gdm_dask.GroupDiscoveryMachine.load(run)
    opened = gdm_dask.open_store(store)
    fitted_on = run_facts(run).get("fingerprint")
    if fitted_on not in (None, opened.fingerprint):
        raise BadInput(f"{store}: the run was fitted on another store. Give the one that it was fitted on.")
    with opt.chosen_scheduler(scheduler, security) as chosen:
        given = {"n_workers": workers, "memory_limit": memory_limit}
        machine.set_params(scheduler=chosen, **{name: value for name, value in given.items() if value is not None})
        found = stability_selection(
            machine, opened, n_repeats=repeats, fraction=fraction, overlap=overlap, seed=seed, callback=_log_repeat
        )
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
            ("found again", f"{often} of {len(found.group_frequency)} groups in at least 80 % of the fits"),
            ("kept in", str(run / STABILITY_FILE)),
        ]
    )


def _log_repeat(number: int, total: int) -> None:
    logger.info("subsample %d of %d", number, total)
