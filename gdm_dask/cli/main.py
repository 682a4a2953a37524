"""``gdm``: the same words as the Python interface; each command is one call."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

import gdm_dask
from gdm_dask.cli.logs import LogFormat, set_up_logging
from gdm_dask.cli.markup import escape
from gdm_dask.errors import BadInput, GdmError, exit_code_of

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
#: Commands as the help lists them: from the data to the report, then on clusters, then what they can be tried with.
ORDER = (
    "ingest", "info", "verify", "fit", "evaluate", "predict", "groups", "report", "stability", "tune", "run", "history",
    "submit", "status", "logs", "cancel", "fetch", "synth", "demo",
)  # fmt: skip
out = Console()
err = Console(stderr=True)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"gdm {gdm_dask.__version__}")
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice for debugging.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="text, or json: one object a line, for machines.")
    ] = LogFormat.text,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    set_up_logging(verbose, quiet, log_format)


class Ended(BaseException):
    """Ctrl-C or SIGTERM: the command ends, and what is unfinished is left in a state to go on from."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)


def _end(number: int, frame: FrameType | None) -> None:
    raise Ended(number)


def run() -> None:
    """Run the command line: errors that the user can act on become one line and an exit code, never a traceback."""
    from gdm_dask.cli import (  # noqa: F401 (they register their commands)
        cluster_commands,
        demo_command,
        model_commands,
        pipeline_commands,
        report_commands,
        store_commands,
        synth_command,
    )

    app.registered_commands.sort(key=lambda command: ORDER.index(command.callback.__name__))  # type: ignore[union-attr]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    # a line of the log, without the place in our code that it comes from
    warnings.showwarning = lambda message, *_, **__: logging.getLogger(__name__).warning("%s", message)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except GdmError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(error.exit_code)
    except Ended as end:
        err.print(
            f"ended by {end.signal.name}: the same command goes on where it stopped (gdm fit with --resume)",
            highlight=False,
            soft_wrap=True,
        )
        sys.exit(128 + end.signal)
    except BrokenPipeError:  # the reader of a pipe, such as head, has gone
        _drop_output()
        sys.exit(0)
    except OSError as error:
        logging.getLogger(__name__).debug("", exc_info=True)
        place = f"{error.filename}: " if error.filename else ""
        err.print(f"[bold red]error:[/] {escape(place)}{escape(error.strerror or str(error))}", soft_wrap=True)
        try:
            sys.stdout.flush()
        except OSError:  # it is on the full disk; Python would try once more at its end, and say so
            _drop_output()
        sys.exit(exit_code_of(error))


def _drop_output() -> None:
    """Let what could not be written go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def existing(path: str) -> str:
    """A path or URL as given; a missing local one is refused by name."""
    if "://" not in path and not Path(path).exists():
        raise BadInput(f"{path}: there is no such file or folder")
    return path
