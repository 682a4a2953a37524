"""Framework of the speed benchmarks: data sets x competitors, one process per cell.

    python pipelines/bench/fits.py                     run cells without a result, print the ratios
    python pipelines/bench/fits.py --only enron        run only cells of this data set or competitor
    python pipelines/bench/fits.py --again             measure everything again, so that all ratios are from one run
    python pipelines/bench/fits.py --compare REV       also run the cells with the package of another revision
    python pipelines/bench/fits.py --plot times.png    draw the seconds as bars

Running out of memory or time is a result, too. Results of our own cells are kept until the package's code changes,
results of peers until `--again`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from datasets import Dataset
from measure import Failed, machine, measure

HERE = Path(__file__).parents[2]
#: Address space of a cell, as a share of the machine's memory.
MEMORY_PART = 0.85
#: A ratio of seconds above this counts as a regression.
SLOWER = 1.1

Results = dict[tuple[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Line:
    """A ratio, or another measure, and its bounds."""

    text: str
    ratio: float
    at_least: float | None = None
    at_most: float | None = None
    measure: str = "ratio"
    digits: int = 2

    def __str__(self) -> str:
        bounds = [("at least", self.at_least, self.ratio >= (self.at_least or 0))]
        bounds += [("at most", self.at_most, self.ratio <= (self.at_most or 0))]
        said = [
            f"{word} {bound:g}: {'holds' if holds else 'DOES NOT HOLD'}"
            for word, bound, holds in bounds
            if bound is not None
        ]
        return f"{self.text}: {self.measure} {self.ratio:.{self.digits}f}" + (f" ({', '.join(said)})" if said else "")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its cells and the ratios that it prints.

    Attributes
    ----------
    name : str
    datasets : sequence of str
    ours, peers : dict
        Competitors: name -> function that takes a `Dataset` and returns figures, among them ``seconds``.
    lines : callable
        Computes the ratios from the available results.
    stored : bool
        Whether the data sets are defined in `datasets`; if not, the competitors generate their own.
    competes : callable
        Whether a competitor, by name, runs on a data set, by name; all run on all by default.
    """

    name: str
    datasets: Sequence[str]
    ours: dict[str, Callable[[Dataset], dict[str, Any]]]
    peers: dict[str, Callable[[Dataset], dict[str, Any]]]
    lines: Callable[[Results], Iterator[Line]]
    stored: bool = True
    competes: Callable[[str, str], bool] = lambda dataset, competitor: True

    @property
    def cells(self) -> list[tuple[str, str]]:
        """All cells as (data set, competitor)."""
        pairs = [(dataset, name) for dataset in self.datasets for name in (*self.ours, *self.peers)]
        return [pair for pair in pairs if self.competes(*pair)]


def main(benchmark: Benchmark) -> None:
    """Run the command line of a benchmark."""
    options = _parse(benchmark)
    if options.cell:
        _be_cell(benchmark, options)
        return
    print(machine())
    cells = [cell for cell in benchmark.cells if not options.only or set(cell) & set(options.only)]
    if benchmark.stored:
        missing = {dataset for dataset, _ in cells if not Dataset(dataset, options.data).is_available}
        cells = [cell for cell in cells if cell[0] not in missing]
        print("".join(f"skipping {dataset}: set GDM_DATA to the folder of its files\n" for dataset in missing), end="")
    results = _run(benchmark, cells, HERE, options)
    for line in benchmark.lines(results):
        print(line, flush=True)
    if options.compare:
        with _checked_out(options.compare) as tree:
            _print_comparison(results, _run(benchmark, cells, tree, options), options.compare)
    if options.plot:
        _plot(results, options.plot)


def _parse(benchmark: Benchmark) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "runs" / "bench", help="folder of data sets and results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run only these data sets or competitors")
    parser.add_argument("--again", action="store_true", help="measure cells again that have a result")
    parser.add_argument("--minutes", type=float, default=30.0, help="time limit per cell")
    parser.add_argument("--compare", metavar="REV", help="git revision to compare with")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the seconds of all cells")
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def _be_cell(benchmark: Benchmark, options: argparse.Namespace) -> None:
    """Run one cell in this process and print its figures as the last line."""
    limit = int(MEMORY_PART * psutil.virtual_memory().total)
    dataset, competitor = options.cell
    try:
        if competitor == "prepare":
            Dataset(dataset, options.data).prepare()
            figures = {}
        else:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            figures = {"status": "ok"} | (benchmark.ours | benchmark.peers)[competitor](Dataset(dataset, options.data))
    except (MemoryError, ImportError) as error:
        figures = {"status": "out of memory" if isinstance(error, MemoryError) else str(error)}
    print("\n" + json.dumps(figures))


def _run(benchmark: Benchmark, cells: list[tuple[str, str]], tree: Path, options: argparse.Namespace) -> Results:
    """Measure the cells with the package of a tree, except cells whose results are on file."""
    path = options.data / f"{benchmark.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    code = _code_of(tree)
    found = {(one["dataset"], one["competitor"]): one for one in known if one["code"] in (code, "any")}
    results: Results = {}
    for dataset, competitor in cells:
        stored = found.get((dataset, competitor))
        if stored is None or (options.again and tree == HERE):
            if tree != HERE:
                _measure(benchmark, dataset, competitor, tree, options)  # compiles the kernels of the new tree
            stored = {
                "dataset": dataset,
                "competitor": competitor,
                **_measure(benchmark, dataset, competitor, tree, options),
            }
            stored["code"] = code if competitor in benchmark.ours else "any"
            with path.open("a") as file:
                file.write(json.dumps(stored) + "\n")
        results[dataset, competitor] = stored
        print(_described(stored), flush=True)
    return results


def _measure(
    benchmark: Benchmark, dataset: str, competitor: str, tree: Path, options: argparse.Namespace
) -> dict[str, Any]:
    command = [sys.executable, os.path.abspath(sys.argv[0]), "--data", str(options.data), "--cell", dataset]
    env = os.environ | {"PYTHONPATH": str(tree)}
    if benchmark.stored and not Dataset(dataset, options.data).is_ready:
        measure([*command, "prepare"], env)
    try:
        measured = measure([*command, competitor], env, 60 * options.minutes)
    except TimeoutError:
        return {"status": f"over {options.minutes:g} minutes"}
    except Failed as error:  # also if the kernel killed it because memory ran out
        return {"status": "out of memory" if str(error).endswith("-9") else str(error)}
    return {**json.loads(measured.output.splitlines()[-1]), "peak_bytes": measured.peak_bytes}


def _described(result: dict[str, Any]) -> str:
    parts = [f"{result['dataset']:<12} {result['competitor']:<28}"]
    if result["status"] == "ok":
        parts.append(f"{result['seconds']:9.3f} s  {result['peak_bytes'] / 1e9:5.2f} GB")
        shown = ("dataset", "competitor", "status", "seconds", "peak_bytes", "code")
        parts += [f"{name} {value}" for name, value in result.items() if name not in shown]
    else:
        parts.append(result["status"])
    return "  ".join(parts)


def _code_of(tree: Path) -> str:
    """Return a hash of the package's code."""
    content = hashlib.sha256()
    for path in sorted((tree / "gdm_dask").rglob("*.py")):
        content.update(path.read_bytes())
    return content.hexdigest()[:12]


@contextmanager
def _checked_out(revision: str) -> Iterator[Path]:
    """Check out another revision of the project into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="gdm-bench-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "-C", HERE, "worktree", "add", "--quiet", "--detach", tree, revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", tree], check=True)


def _print_comparison(now: Results, then: Results, revision: str) -> None:
    for cell, result in now.items():
        other = then[cell]
        if result["code"] != "any" and result["status"] == other["status"] == "ok":
            ratio = result["seconds"] / other["seconds"]
            verdict = "SLOWER" if ratio > SLOWER else "faster" if ratio < 1 / SLOWER else "as before"
            print(f"{' '.join(cell)}: {ratio:.2f} times the seconds of {revision}: {verdict}")


def _plot(results: Results, path: Path) -> None:
    """Draw seconds as bars, one panel per data set."""
    import matplotlib.pyplot as plt

    done = [result for result in results.values() if result["status"] == "ok"]
    names = list(dict.fromkeys(result["dataset"] for result in done))
    figure, panels = plt.subplots(len(names), 1, figsize=(8, 1 + 0.35 * len(done)), squeeze=False)
    for name, panel in zip(names, panels[:, 0], strict=True):
        mine = [result for result in done if result["dataset"] == name][::-1]
        colours = ["tab:grey" if result["code"] == "any" else "tab:blue" for result in mine]
        bars = panel.barh([result["competitor"] for result in mine], [one["seconds"] for one in mine], color=colours)
        panel.bar_label(bars, fmt=" %.2f s")
        panel.set(title=name, xscale="log", xlabel="seconds")
    figure.tight_layout()
    figure.savefig(path)
