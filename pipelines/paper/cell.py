"""One cell of the comparison: a method on a data set, in its own process."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import registry
from .columns import Matrix
from .criteria import MIN_ACCURACY
from .problem import Problem, Training
from .suites import PAPER, SUITES


@dataclass(frozen=True)
class Cell:
    """One selection; nested methods serve all numbers of features with it."""

    dataset: str
    seed: int
    method: str
    sizes: tuple[int, ...]
    samples: int | None = None
    suite: str = PAPER

    @property
    def name(self) -> str:
        """Name of its file, without the suffix."""
        sizes = f"k{self.sizes[0]}" if len(self.sizes) == 1 else f"k{self.sizes[0]}-{self.sizes[-1]}x{len(self.sizes)}"
        part = "" if self.samples is None else f"-n{self.samples}"
        return f"{self.dataset}{part}-s{self.seed}-{self.method}-{sizes}"


def run_cell(cell: Cell, path: Path, memory_limit: int | None = None) -> None:
    """Run a cell and write its file, also if the method fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its cells
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    try:
        rows = measure(cell)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        rows = failed(cell, "failed", f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})")
    write_cell(cell, rows, path)


def _end_with_parent() -> None:
    """End this process when its parent dies."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """Select and judge; returns one row for each number of features.

    Seconds are processor time: a cell has one thread, and other work on the machine must not count.
    """
    method = registry.method(cell.method)
    problem = registry.dataset(cell.dataset).load(cell.seed).sample(cell.samples, cell.seed)
    if method.NEEDS_TRUTH and not problem.groups:
        return failed(cell, "not applicable", "the true groups of this data are not known")
    training = problem.training
    tuned = method.tune(training.X, training.y) if hasattr(method, "tune") else {}
    _warm_up(method, training.X)
    reset_peak_memory()
    clock = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps = [(*step, time.process_time() - clock) for step in choose(method, training, cell.sizes, tuned)]
    messages = {f"{warning.category.__name__}: {warning.message}" for warning in caught}
    messages |= {f"{name} = {value}" for name, value in tuned.items()}
    spent = {"peak_memory": peak_memory(), "message": "; ".join(sorted(messages))}
    if all(len(features) == 0 for _, features, _ in steps):
        return failed(cell, "failed", "no feature was selected")
    return [{**_row(cell, problem, size, features), "seconds": seconds, **spent} for size, features, seconds in steps]


def choose(
    method: Any, training: Training, sizes: Sequence[int], tuned: dict[str, Any] | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each number of features with the features that a method selects."""
    if hasattr(method, "path"):
        steps = method.path(training.X, training.y, sizes, **(tuned or {}))
        yield from ((size, training.kept[features]) for size, features in steps)
        return
    truth = [training.redundant] if method.NEEDS_TRUTH else []
    features = training.kept[method.select(training.X, training.y, min(max(sizes), len(training.kept)), *truth)]
    yield from ((size, features[:size] if method.NESTED else features) for size in sizes)


def _row(cell: Cell, problem: Problem, size: int, features: np.ndarray) -> dict[str, Any]:
    found = SUITES[cell.suite].judge(problem, features)
    status = "weak" if found["accuracy"] < MIN_ACCURACY else "ok"
    if len(features) < size:
        status = "fewer"
    return {"size": size, "status": status, **found, "features": [int(feature) for feature in features]}


def failed(cell: Cell, status: str, message: str) -> list[dict[str, Any]]:
    """Return the rows of a cell without a result."""
    return [{"size": size, "status": status, "message": message} for size in cell.sizes]


def write_cell(cell: Cell, rows: list[dict[str, Any]], path: Path) -> None:
    """Write the file of a cell atomically."""
    part = path.with_suffix(f".{os.getpid()}.part")
    of = {**asdict(cell), "lookalike": registry.is_lookalike(cell.dataset)}
    part.write_text(json.dumps({"cell": of, "rows": rows}))
    part.replace(path)


def _warm_up(method: Any, like: Matrix) -> None:
    """Load the compiled code for this kind of matrix before the clock starts."""
    y = np.repeat([-1, 1], 15)
    values = np.random.default_rng(0).uniform(1, 100, (30, 4))
    values[:, 0] += 50 * y + 50
    X = sp.csr_array(values.astype(like.dtype)) if sp.issparse(like) else values.astype(like.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method.select(X, y, 2, *([np.zeros(0, np.int64)] if method.NEEDS_TRUTH else []))


def reset_peak_memory() -> None:
    """Restart the count of `peak_memory`, if Linux allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, data included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
