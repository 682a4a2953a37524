"""Preload for Dask workers: carries out the faults in a folder, each once, on one worker.

A fault is a file ``PHASE.KIND.NUMBER``. The first worker to reach the phase renames it, and

- ``kill``: is killed;  ``hang``: is stopped;  ``memory``: takes more memory than it has;
- ``error``: fails to read, once;  ``slow``: takes a second longer;  ``stuck``: ten minutes;
- ``hold``: waits until the file is removed, or for the cancellation of its job.

With ``always`` as the number, the file stays and strikes every worker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdm_dask.cutting_plane.iteration import Iteration
    from gdm_dask.pipeline.fit_metrics import FitMetrics

#: Bytes that ``memory`` takes: above the worker's limit in the test, but no danger to the machine.
HOARD = 1 << 30


def strike(phase: str) -> None:
    folder = Path(os.environ["GDM_TEST_FAULTS"])
    for path in sorted(folder.glob(f"{phase}.*")):
        kind, number = path.name.split(".")[1:3]
        claimed = folder / f"struck-{path.name}.{os.getpid()}.{time.time_ns()}"
        if kind == "stuck" and number == "always":
            claimed.write_text(str(os.getpid()))
        elif number != "always":
            try:
                path.rename(claimed)
            except FileNotFoundError:
                continue
            claimed.write_text(str(os.getpid()))
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "memory":
            hoard = [bytearray(b"x") * HOARD]
            time.sleep(60.0)
            del hoard
        elif kind == "error":
            raise OSError(5, "Input/output error (made by the test)")
        elif kind == "hold":
            wait_for_removal(path)
        elif kind in ("slow", "stuck"):
            time.sleep({"slow": 1.0, "stuck": 600.0}[kind])
        return


def wait_for_removal(path: Path) -> None:
    from gdm_dask.system import interrupts

    while path.exists():
        interrupts.check()
        time.sleep(0.01)


def struck_by(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        strike(phase)
        return function(*args, **kwargs)

    return call


def dask_setup(worker: Any) -> None:
    from gdm_dask.features import groups, ranking
    from gdm_dask.pipeline.fit_metrics import FitMetrics
    from gdm_dask.settings import settings
    from gdm_dask.store.reader import StoredBlocks, StoreReader

    settings.CUTS_PER_READ = 1
    for phase, module, name in (
        ("scores", ranking, "scores"),
        ("top", ranking, "top_of_block"),
        ("groups", groups, "find_pairs"),
    ):
        setattr(module, name, struck_by(phase, getattr(module, name)))
    StoredBlocks.load_block = struck_by("read", StoredBlocks.load_block)
    StoreReader.rows = struck_by("rows", StoreReader.rows)
    after = FitMetrics.after

    def after_cut(metrics: FitMetrics, iteration: Iteration) -> None:
        """The driver of a job reaches the phases ``cut-1``, ``cut-2``, ..., with its progress known to all."""
        after(metrics, iteration)
        strike(f"cut-{iteration.number}")

    FitMetrics.after = after_cut
