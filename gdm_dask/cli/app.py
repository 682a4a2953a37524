"""The command-line application: the same words as the Python interface, one call per command."""

from __future__ import annotations

from typing import Annotated

import typer

import gdm_dask
from gdm_dask.cli.logs import LogFormat, set_up_logging

app = typer.Typer(
    name="gdm",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Find support features and their groups among millions of columns (Group Discovery Machine).

    A first job: [bold]gdm ingest train.svm train.zarr[/bold], [bold]gdm fit train.zarr --run first -k 100[/bold],
    [bold]gdm groups first[/bold]. To see it work: [bold]gdm demo[/bold].""",
)
#: Commands in the order of the help: from the data to the report, then clusters, then generated data to try them on.
ORDER = (
    "ingest", "info", "verify", "plan", "fit", "evaluate", "predict", "groups", "report", "stability", "tune", "run",
    "history", "submit", "status", "logs", "cancel", "fetch", "synth", "demo", "warm",
)  # fmt: skip


def _version(show: bool) -> None:
    if show:
        typer.echo(f"gdm {gdm_dask.__version__}")
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Print more; twice for debugging.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="text, or json for one object per line.")] = LogFormat.text,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    set_up_logging(verbose, quiet, log_format)
