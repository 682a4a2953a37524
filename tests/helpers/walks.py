"""Count the files of the package that a piece of work passes through: ``python walks.py report|iteration|cut FOLDER``.

A file counts if one of its functions or compiled kernels runs. Prints one file per line.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gdm_dask

PACKAGE = str(Path(gdm_dask.__file__).parent)


class Walk:
    """Records which files run while it is active, in all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._is_on = False
        sys.setprofile(self._see)
        threading.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._is_on and event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE):
                self.files.add(name)

    def start(self) -> None:
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False

    def names(self, kernels: bool) -> list[str]:
        """Return the files, relative to the package, including those whose kernels were loaded in this process."""
        found = self.files | (used_kernel_files() if kernels else set())
        return sorted(str(Path(name).relative_to(PACKAGE)) for name in found)


def used_kernel_files() -> set[str]:
    from numba.core.dispatcher import Dispatcher

    return {
        kernel.py_func.__code__.co_filename
        for name, module in list(sys.modules.items())
        if name.startswith("gdm_dask")
        for kernel in vars(module).values()
        if isinstance(kernel, Dispatcher)
        and kernel.nopython_signatures
        and kernel.py_func.__code__.co_filename.startswith(PACKAGE)
    }


def write_text(path: Path, n_samples: int = 60, n_features: int = 30) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        for number in range(n_samples):
            label = 1 if number % 2 else -1
            present = np.flatnonzero(rng.random(n_features) < (0.5 + 0.2 * label * (np.arange(n_features) % 3 == 0)))
            pairs = " ".join(f"{feature + 1}:{rng.random():.3f}" for feature in present)
            file.write(f"{label} {pairs}\n")


def walk_to_report(folder: Path) -> list[str]:
    """Take a line of svmlight text to report.html, by the command line."""
    from gdm_dask.cli.main import run

    write_text(folder / "train.svm")
    walk = Walk()
    walk.start()
    for arguments in (
        ["ingest", folder / "train.svm", folder / "train.zarr", "--scheduler", "synchronous"],
        ["fit", folder / "train.zarr", "--run", folder / "run", "-k", "3", "--scheduler", "synchronous"],
        ["report", folder / "run", "-o", folder / "report.html"],
    ):
        sys.argv = ["gdm", *map(str, arguments)]
        try:
            run()
        except SystemExit as end:
            if end.code:
                raise
    walk.stop()
    return walk.names(kernels=True)


def walk_of_iteration(folder: Path) -> list[str]:
    """Take a cut on a cluster with a read of the data: the driver's part and a task's part."""
    return walk_of_second_cut(folder, cuts_per_read=1)


def walk_of_cut(folder: Path) -> list[str]:
    """Take a cut from a working set."""
    return walk_of_second_cut(folder, cuts_per_read=2)


def walk_of_second_cut(folder: Path, cuts_per_read: int) -> list[str]:
    import distributed

    from gdm_dask import GroupDiscoveryMachine, ingest
    from gdm_dask.settings import settings

    settings.CUTS_PER_READ = cuts_per_read
    write_text(folder / "train.svm")
    store = ingest(folder / "train.svm", folder / "train.zarr", scheduler="synchronous")
    walk = Walk()
    cuts = []

    def after_cut(iteration: Any) -> None:
        cuts.append(iteration)
        (walk.start if len(cuts) == 1 else walk.stop)()

    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        GroupDiscoveryMachine(cut_size=2, max_cuts=3, tol=1e-9, scheduler=client).fit(store, callback=after_cut)
    assert len(cuts) >= 2
    return walk.names(kernels=False)


WALKS: dict[str, Callable[[Path], list[str]]] = {
    "report": walk_to_report,
    "iteration": walk_of_iteration,
    "cut": walk_of_cut,
}

if __name__ == "__main__":
    print("\n".join(WALKS[sys.argv[1]](Path(sys.argv[2]))))
