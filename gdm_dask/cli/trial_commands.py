"""Commands for a trial: generated data with the planted groups, and a whole job on it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gdm_dask.cli import options as opt
from gdm_dask.cli.app import app
from gdm_dask.cli.console import escape, out, show
from gdm_dask.cli.model_commands import summarise


@app.command()
def synth(
    path: Annotated[
        Path, typer.Argument(metavar="OUT", help="Output: name.svm for svmlight text, or name.zarr for a store.")
    ],
    like: Annotated[str, typer.Option(help="Set to resemble: webspam, kdd2010, url, news20 or paper.")],
    scale: Annotated[float, typer.Option(help="Factor for the number of samples and features.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    test: Annotated[Path | None, typer.Option(help="Where to write a test set.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel tasks; by default one per core.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Generate data with the size and statistics of a public set, with planted groups.

    The planted groups are written beside it (OUT.truth.json, OUT.truth.npz). The result is the same for any number of
    workers.

      gdm synth --like kdd2010 --scale 0.01 train.zarr --test test.zarr
    """
    from gdm_dask.ingestion.sources.lookalikes.files import synthesise

    facts = synthesise(like, path, scale, seed, test, workers, overwrite)
    out.print(
        f"{escape(str(path))}: {facts['n_features']:,} features x {facts['n_samples']:,} samples like {like}; "
        f"the planted groups are in {escape(str(path))}.truth.npz",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Option(help="Folder to keep the stores, the model and its report in.")] = None,
    n_features_to_select: Annotated[
        int, typer.Option("--n-features-to-select", "-k", min=1, help="Number of supports to select.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the generated data.")] = 0,
    overwrite: opt.Overwrite = False,
) -> None:
    """Generate the paper's synthetic data, ingest it, fit, evaluate, and compare the groups with the planted ones."""
    from gdm_dask import GroupDiscoveryMachine, ingest
    from gdm_dask.analysis.metrics import evaluate
    from gdm_dask.ingestion.sources.lookalikes.paper_data import compare_groups, make_paper_data

    with tempfile.TemporaryDirectory(prefix="gdm-demo-") as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        show([("generate", "2,048 samples x 10,000 features: 200 predictive groups, 30 with several members")])
        data = make_paper_data(seed=seed)
        train = ingest(data.X, place / "train.zarr", data.y, overwrite=overwrite)
        test = ingest(data.X_test, place / "test.zarr", data.y_test, like=train, overwrite=overwrite)
        show([("fit     ", f"{n_features_to_select} supports, tau = 0.25")])
        model = GroupDiscoveryMachine(n_features_to_select, verbose=1).fit(train)
        model.save(place / "run")
        model.report(place / "report.html", test=test)
        summarise(model, folder and place / "run")
        assert model.groups_ is not None
        facts = evaluate(model, test)
        found = compare_groups(model.groups_, data.groups)
        show(
            [
                ("test accuracy", f"{facts['accuracy']:.4f} with {facts['n_supports']} of 10,000 features"),
                (
                    "true groups",
                    f"{found.n_found} of {found.n_planted} found; {found.precision:.0%} of supports are in one",
                ),
                ("group members", f"recovered with a mean F1 of {found.f1:.3f}"),
                *([("report", str(place / "report.html"))] if folder else []),
            ]
        )
