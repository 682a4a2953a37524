"""``gdm demo``: the main job on the paper's synthetic data, from nothing to groups."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gdm_dask.cli import options as opt
from gdm_dask.cli.main import app, out
from gdm_dask.cli.model_commands import show, summarise


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Option(help="Keep the stores and the result here.")] = None,
    n_features_to_select: Annotated[
        int, typer.Option("--n-features-to-select", "-k", help="Supports to select.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the generated data.")] = 0,
    overwrite: opt.Overwrite = False,
) -> None:
    """Generate the paper's synthetic data, ingest it, fit, evaluate, and compare the groups with the planted ones."""
    from gdm_dask import GroupDiscoveryMachine, ingest
    from gdm_dask.evaluation import evaluate
    from gdm_dask.synthetic import compare_groups, make_paper_data

    with tempfile.TemporaryDirectory(prefix="gdm-demo-") as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        out.print("[bold]generate[/]  2,048 samples x 10,000 features: 200 predictive groups, 30 with several members")
        data = make_paper_data(seed=seed)
        train = ingest(data.X, place / "train.zarr", data.y, overwrite=overwrite)
        test = ingest(data.X_test, place / "test.zarr", data.y_test, like=train, overwrite=overwrite)
        out.print(f"[bold]fit[/]       {n_features_to_select} supports, tau = 0.25")
        machine = GroupDiscoveryMachine(n_features_to_select, verbose=1).fit(train)
        machine.save(place / "run")
        summarise(machine, place / "run")
        assert machine.groups_ is not None
        facts = evaluate(machine, test)
        found = compare_groups(machine.groups_, data.groups)
        show(
            [
                ("test accuracy", f"{facts['accuracy']:.4f} with {facts['n_supports']} of 10,000 features"),
                (
                    "true groups",
                    f"{found.n_found} of {found.n_planted} found; {found.precision:.0%} of supports are in one",
                ),
                ("group members", f"recovered with a mean F1 of {found.f1:.3f}"),
            ]
        )
