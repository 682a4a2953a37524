"""``gdm synth``: generated sets with the shape of large public ones, and the truth beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gdm_dask.cli.main import app, out
from gdm_dask.cli.markup import escape


@app.command()
def synth(
    path: Annotated[Path, typer.Argument(metavar="OUT", help="File.svm for svmlight text, or store.zarr.")],
    like: Annotated[str, typer.Option(help="webspam, kdd2010, url, news20, or paper.")],
    scale: Annotated[float, typer.Option(help="Of the numbers of samples and features.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another set.")] = 0,
    test: Annotated[Path | None, typer.Option(help="Make a test set too, here.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Parallel tasks; one per core.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Make a set with the size and statistics of a public one, with planted groups.

    What was planted is written beside it (OUT.truth.json, OUT.truth.npz). The same for any number of workers.

      gdm synth --like kdd2010 --scale 0.01 train.zarr --test test.zarr
    """
    from gdm_dask.twin_files import synthesise

    facts = synthesise(like, path, scale, seed, test, workers, overwrite)
    out.print(
        f"{escape(str(path))}: {facts['n_features']:,} features x {facts['n_samples']:,} samples like {like}; "
        f"what was planted is in {escape(str(path))}.truth.npz",
        highlight=False,
        soft_wrap=True,
    )
