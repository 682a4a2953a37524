"""Run the paper's comparison.

    python -m pipelines.paper quick                                   (a minute: all methods on a small set)
    GDM_DATA=/data/sets python -m pipelines.paper run                 (hours: everything)
    GDM_DATA=/data/sets python -m pipelines.paper run --data mnist --methods gdm fgm --sizes 50 100
    GDM_DATA=/data/sets python -m pipelines.paper run --suite wide    (many sets, small and large; other peers)
    GDM_DATA=/data/sets python -m pipelines.paper fetch               (download more sets of the wide suite)
    GDM_DATA=/data/sets python -m pipelines.paper measure             (minutes: claims about the algorithm itself)
    python -m pipelines.paper page --results pipelines/paper/results  (redraw figures and page from results.parquet)
    python -m pipelines.paper findings                                (rewrite FINDINGS.md from the committed results)

Each cell (a method on a data set) writes a file to the results folder, and a stopped run resumes from these files.
`results.parquet` in the same folder collects the cells of all runs in one table; rows whose cells have no file stay.
`index.html` shows the figures.
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
from .figures import draw_all
from .figures.ranks import draw_ranks
from .findings import COMMITTED, Findings, fill, template, write_findings
from .grid import plan, run
from .measures import MEASURES, measure
from .page import write_page
from .suites import PAPER, QUICK, SUITES, WIDE, Part, part_name
from .table import DONE, collect, merged, missing, summary
from .wide.fetched import fetch

#: Cells run in parallel, so each gets one thread.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(arguments)
    if options.command in ACTIONS:
        ACTIONS[options.command](options.results)
        return
    try:
        cells = planned(options)
    except BadInput as error:
        sys.exit(str(error))
    os.environ.update(dict.fromkeys(THREADS, "1"))
    work(cells, options)
    note_command(options.results, sys.argv[1:] if arguments is None else arguments)
    table = update(options.results)
    if options.suite == PAPER:
        print_means(table)
    show(options.results)
    if options.command == QUICK and not options.methods:
        failures = broken(table)
        if failures:
            sys.exit("\n".join(["expected, but not found:", *failures]))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, limit in ((QUICK, 60.0), ("run", 3600.0)):
        command = commands.add_parser(name)
        command.add_argument("--methods", nargs="+", help="names of files in methods/; default: all of the suite")
        command.add_argument("--sizes", nargs="+", type=int, help="numbers of features")
        command.add_argument("--seeds", type=int, help="number of sets or splits if the data is random")
        command.add_argument("--samples", type=int, help="train on this many samples, drawn at random")
        command.add_argument("--results", type=Path, help="results folder")
        command.add_argument("--jobs", type=int, default=1 if name == QUICK else max(1, (os.cpu_count() or 2) // 2))
        command.add_argument("--time-limit", type=float, default=limit, help="seconds per cell")
        command.add_argument("--memory-limit", type=float, default=8.0, help="GB of address space per cell")
        command.add_argument("--retry", action="store_true", help="rerun cells that failed or ran out of time")
        command.set_defaults(suite=PAPER, data=None)
        if name == "run":
            command.add_argument("--suite", choices=sorted(SUITES), default=PAPER, help="suite to run")
            command.add_argument("--data", nargs="+", help="names of data sets; default: all whose files exist")
    for name in ACTIONS:
        command = commands.add_parser(name)
        folder = COMMITTED if name == "findings" else Path("runs/paper-run")
        command.add_argument("--results", type=Path, default=folder, help="results folder")
    options = parser.parse_args(arguments)
    if options.command not in ACTIONS:
        _complete(options)
    return options


def _complete(options: argparse.Namespace) -> None:
    """Fill in the defaults of the suite."""
    suite, is_quick = SUITES[options.suite], options.command == QUICK
    options.sizes = options.sizes or ((6, 12) if is_quick else suite.sizes)
    options.seeds = options.seeds or (1 if is_quick else suite.seeds)
    name = options.command if options.suite == PAPER else options.suite
    options.results = options.results or Path("runs") / f"paper-{name}"


def planned(options: argparse.Namespace) -> list[Cell]:
    """List all cells of a run, ordered by seed, so that a stopped run has results on all data sets."""
    suite = SUITES[options.suite]
    methods = options.methods or [*suite.methods, *suite.ablations]
    parts = [(QUICK, None)] if options.command == QUICK else available(suite.parts, options.data)
    cells = [
        cell
        for dataset, samples in parts
        for cell in plan([dataset], methods, options.sizes, options.seeds, options.samples or samples, options.suite)
    ]
    return sorted(cells, key=lambda cell: cell.seed)


def available(parts: Sequence[Part], wanted: Sequence[str] | None) -> list[Part]:
    """List the parts to run; by default all whose files exist, with a message for each of the others.

    `wanted` names single parts, or data sets, which stand for all their parts in the suite.
    """
    if wanted:
        parts = [part for name in wanted for part in _named(parts, name)]
    found = []
    for part in parts:
        reason = registry.missing(part[0])
        if reason and wanted:
            raise BadInput(reason)
        if reason:
            print(f"skipping {part_name(*part)}: {reason}", file=sys.stderr)
        else:
            found.append(part)
    return found


def _named(parts: Sequence[Part], name: str) -> list[Part]:
    """List the parts of a suite with this name; a data set outside the suite is taken whole."""
    return [part for part in parts if name in (part[0], part_name(*part))] or [(name, None)]


def work(cells: Sequence[Cell], options: argparse.Namespace) -> None:
    """Run the cells with a progress bar or, without a terminal, with a line per cell."""
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


def update(results: Path) -> pd.DataFrame:
    """Bring the table of a results folder up to date with its cells."""
    file = results / "results.parquet"
    table = collect(results / "cells")
    if file.exists():
        table = merged(pd.read_parquet(file), table)
    table.to_parquet(file, index=False)
    return table


def note_command(results: Path, arguments: Sequence[str]) -> None:
    """Add this run's command to the list in the results folder."""
    file = results / "commands.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [word for word in arguments if word not in ("--results", str(results))]
    line = shlex.join(["python", "-m", "pipelines.paper", *kept])
    file.write_text("\n".join(dict.fromkeys([*lines, line])) + "\n")


def print_means(table: pd.DataFrame) -> None:
    """Print the means and the failures."""
    columns = ["data", "size", "method", "runs", "n_features", "accuracy", "redundancy", "precision", "recall"]
    with pd.option_context("display.width", 160, "display.max_rows", None, "display.max_columns", None):
        print(summary(table)[[*columns, "seconds"]].round(4).to_string(index=False))
    print("\n".join(missing(table)))


def take_measures(results: Path) -> None:
    """Measure the paper's claims about the algorithm, on all available data."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    wanted = sorted({name for _, names in MEASURES.values() for name in names})
    found = measure([name for name in wanted if not registry.missing(name)])
    results.mkdir(parents=True, exist_ok=True)
    found.to_parquet(results / "measures.parquet", index=False)
    print(found.to_string(index=False))


def show(results: Path) -> None:
    """Draw the figures of a results folder, and write the page that shows them."""
    table = pd.read_parquet(results / "results.parquet")
    if set(table.get("suite", ())) == {WIDE}:
        print(fill(template(["WIDE"]), Findings(table, table, table)))
        figure = draw_ranks(table, SUITES[WIDE].methods, SUITES[WIDE].sizes, results / "figures")
        print(f"figure: {figure}" if figure else "no figure: fewer than two methods have results")
        return
    commands = (results / "commands.txt").read_text().splitlines()
    write_page(table, draw_all(table, results / "figures"), results / "index.html", commands)
    print(f"figures and tables: {results / 'index.html'}")


def download(results: Path) -> None:
    """Download the sets of the wide suite that are on OpenML."""
    del results
    try:
        fetch()
    except BadInput as error:
        sys.exit(str(error))


ACTIONS = {"page": show, "measure": take_measures, "findings": write_findings, "fetch": download}

if __name__ == "__main__":
    main()
