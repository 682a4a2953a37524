"""Run the paper's comparison.

    python -m pipelines.paper quick                                   (a minute: a small set, all methods)
    GDM_DATA=/data/sets python -m pipelines.paper run                 (hours: everything)
    GDM_DATA=/data/sets python -m pipelines.paper run --data mnist --methods gdm fgm --sizes 50 100
    GDM_DATA=/data/sets python -m pipelines.paper measure             (minutes: the claims about the algorithm itself)
    python -m pipelines.paper page --results pipelines/paper/results  (figures and page again, from results.parquet)
    python -m pipelines.paper findings                                (FINDINGS.md again, from the committed results)

Each cell (a method on a data set) leaves a file in the folder of results, and a run that was stopped goes on from
there. `results.parquet` in the same folder has the cells of all runs as one table, and `index.html` shows the figures.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gdm_dask.errors import BadInput

from . import registry
from .cell import Cell
from .checks import broken
from .criteria import SIZES
from .figures import draw_all
from .findings import COMMITTED, write_findings
from .grid import plan, run
from .measures import MEASURES, measure
from .page import write_page
from .table import DONE, collect, missing, summary

QUICK = "quick"
#: Cells run side by side, so each of them has one thread.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry of the command line."""
    options = parse(arguments)
    if options.command in ACTIONS:
        ACTIONS[options.command](options.results)
        return
    try:
        datasets = [QUICK] if options.command == QUICK else available(options.data)
        methods = options.methods or registry.method_names()
        cells = list(plan(datasets, methods, options.sizes, options.seeds, options.samples))
    except BadInput as error:
        sys.exit(str(error))
    os.environ.update(dict.fromkeys(THREADS, "1"))
    work(cells, options)
    note_command(options.results, sys.argv[1:] if arguments is None else arguments)
    table = collect(options.results / "cells")
    table.to_parquet(options.results / "results.parquet", index=False)
    print_means(table)
    show(options.results)
    if options.command == QUICK and not options.methods:
        failures = broken(table)
        if failures:
            sys.exit("\n".join(["not as expected:", *failures]))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, sizes, seeds, limit in ((QUICK, (6, 12), 1, 60.0), ("run", SIZES, 5, 3600.0)):
        command = commands.add_parser(name)
        command.add_argument("--methods", nargs="+", help="names of files in methods/; all by default")
        command.add_argument("--sizes", nargs="+", type=int, default=sizes, help="numbers of features")
        command.add_argument("--seeds", type=int, default=seeds, help="sets or splits, where the data is random")
        command.add_argument("--samples", type=int, help="train on so many samples only, drawn at random")
        command.add_argument("--results", type=Path, default=Path("runs") / f"paper-{name}", help="folder of results")
        command.add_argument("--jobs", type=int, default=1 if name == QUICK else max(1, (os.cpu_count() or 2) // 2))
        command.add_argument("--time-limit", type=float, default=limit, help="seconds for a cell")
        command.add_argument("--memory-limit", type=float, default=8.0, help="GB of address space for a cell")
        command.add_argument("--retry", action="store_true", help="run cells again that failed or ran out of time")
        if name == "run":
            command.add_argument("--data", nargs="+", help="names of files in datasets/; all that are there by default")
    for name in ACTIONS:
        command = commands.add_parser(name)
        folder = COMMITTED if name == "findings" else Path("runs/paper-run")
        command.add_argument("--results", type=Path, default=folder, help="folder of results")
    return parser.parse_args(arguments)


def available(wanted: Sequence[str] | None) -> list[str]:
    """The data sets to run; without a wish, all whose files are there, and a line for each other."""
    found = []
    for name in wanted or [name for name in registry.dataset_names() if name != QUICK]:
        reason = registry.missing(name)
        if reason and wanted:
            raise BadInput(reason)
        if reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
        else:
            found.append(name)
    return found


def work(cells: Sequence[Cell], options: argparse.Namespace) -> None:
    """Run the cells behind a progress bar; where there is no terminal, a line for each cell."""
    console = Console(stderr=True)
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bar, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("cells", total=len(cells))

        def report(cell: Cell, status: str) -> None:
            progress.update(task, advance=1, description=cell.name)
            if not console.is_terminal or status not in DONE:
                print(f"{cell.name}: {status}", file=sys.stderr, flush=True)

        limit = int(options.memory_limit * 1e9)
        run(cells, options.results / "cells", options.jobs, options.time_limit, limit, options.retry, report)


def note_command(results: Path, arguments: Sequence[str]) -> None:
    """Keep the commands of all runs that have filled a folder."""
    file = results / "commands.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [word for word in arguments if word not in ("--results", str(results))]
    line = shlex.join(["python", "-m", "pipelines.paper", *kept])
    file.write_text("\n".join(dict.fromkeys([*lines, line])) + "\n")


def print_means(table: pd.DataFrame) -> None:
    """Print the means, and what failed."""
    columns = ["data", "size", "method", "runs", "n_features", "accuracy", "redundancy", "precision", "recall"]
    with pd.option_context("display.width", 160, "display.max_rows", None, "display.max_columns", None):
        print(summary(table)[[*columns, "seconds"]].round(4).to_string(index=False))
    print("\n".join(missing(table)))


def take_measures(results: Path) -> None:
    """Measure what the paper says of the algorithm, on the data that is there."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    wanted = sorted({name for _, names in MEASURES.values() for name in names})
    found = measure([name for name in wanted if not registry.missing(name)])
    results.mkdir(parents=True, exist_ok=True)
    found.to_parquet(results / "measures.parquet", index=False)
    print(found.to_string(index=False))


def show(results: Path) -> None:
    """Draw the figures of a folder of results, and write the page that shows them."""
    table = pd.read_parquet(results / "results.parquet")
    commands = (results / "commands.txt").read_text().splitlines()
    write_page(table, draw_all(table, results / "figures"), results / "index.html", commands)
    print(f"figures and tables: {results / 'index.html'}")


ACTIONS = {"page": show, "measure": take_measures, "findings": write_findings}

if __name__ == "__main__":
    main()
