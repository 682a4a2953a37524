"""Plan the cells of a comparison, and run them in parallel with a time limit each; stopped runs resume."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from . import registry
from .cell import Cell, failed, run_cell, write_cell
from .suites import PAPER


def plan(
    datasets: Sequence[str],
    methods: Sequence[str],
    sizes: Sequence[int],
    seeds: int,
    samples: int | None = None,
    suite: str = PAPER,
) -> Iterator[Cell]:
    """List the cells of a comparison: one for all sizes if the method allows it, one seed unless the data is random."""
    for dataset in datasets:
        for seed in range(seeds if registry.dataset(dataset).RANDOM or samples else 1):
            for method in methods:
                parts = [tuple(sizes)] if registry.serves_all(method) else [(size,) for size in sizes]
                yield from (Cell(dataset, seed, method, part, samples, suite) for part in parts)


def run(
    cells: Sequence[Cell],
    folder: Path,
    jobs: int,
    time_limit: float,
    memory_limit: int | None = None,
    retry: bool = False,
    report: Callable[[Cell, str], None] = lambda cell, status: None,
) -> None:
    """Run the cells without a file, and with `retry` also the failed ones.

    Parameters
    ----------
    cells : sequence of Cell
    folder : Path
        Holds one JSON file per cell.
    jobs : int
        Number of cells to run in parallel.
    time_limit : float
        Seconds per cell, including the time to load its data.
    memory_limit : int, optional
        Bytes of address space per cell.
    retry : bool
    report : callable
        Called with each cell and its status.
    """
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gdm_dask.estimator", *{registry.preloaded(cell.method) for cell in cells}])

    stopped = threading.Event()
    running: set[Any] = set()

    def one(cell: Cell) -> str:
        path = folder / f"{cell.name}.json"
        if not (path.exists() and not (retry and _unfinished(path))):
            process = context.Process(target=run_cell, args=(cell, path, memory_limit))
            path.unlink(missing_ok=True)
            process.start()
            running.add(process)
            process.join(time_limit)
            running.discard(process)
            if stopped.is_set():  # killed by us: no result, the next run repeats it
                return "stopped"
            if process.is_alive():
                process.kill()
                process.join()
                write_cell(cell, failed(cell, "time", f"stopped after {time_limit:g} seconds"), path)
            elif not path.exists():
                write_cell(cell, failed(cell, "failed", f"the process ended with code {process.exitcode}"), path)
        return read_cell(path)[0]["status"]

    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(one, cell): cell for cell in cells}
        try:
            for future in as_completed(futures):
                report(futures[future], future.result())
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.kill()
            raise


def read_cell(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a cell, each with the fields of the cell."""
    content = json.loads(path.read_text())
    cell = {name: value for name, value in content["cell"].items() if name != "sizes"}
    return [{**cell, **row} for row in content["rows"]]


def _unfinished(path: Path) -> bool:
    return read_cell(path)[0]["status"] in ("time", "failed")
