"""A pool of processes that end with their parent and ignore Ctrl-C, and arguments shared by all of them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle

from gdm_dask.system.temporary import temporary_folder

_main_lock = threading.Lock()


def start_pool(n_processes: int, preload: list[str]) -> ProcessPoolExecutor:
    """Return a pool and start all of its processes at once.

    On Linux, they are forks of a server that has imported the modules `preload`. It starts with the first pool and ends
    with this process.
    """
    # Never fork this process: its threads may hold locks. Other systems spawn: their libraries may not survive a fork.
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(preload)
    pool = ProcessPoolExecutor(n_processes, context, initializer=_begin, initargs=(dict(os.environ),))
    # All of them now: those that the pool starts with later tasks would import the main module.
    pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
    # They inherit a signal mask, so they leave Ctrl-C to the driver from the start.
    with without_main_module():
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            pool.submit(os.getpid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pool


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the main module from the processes that start while the body runs.

    A new process imports the main module of its parent. Ours need nothing from it, and a script without a main guard
    would start its fit again in each of them.
    """
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def kill_pool(pool: ProcessPoolExecutor) -> None:
    """Kill the processes of a pool, so that waiting for them ends at once."""
    results = pool._result_queue
    for process in list((pool._processes or {}).values()):  # None after a shutdown
        process.kill()
    if results is not None:
        # Otherwise the pool waits forever for the rest of a partly written result.
        results._writer.close()  # type: ignore[attr-defined]


def _begin(environment: dict[str, str]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ.clear()  # the server may be older than credentials that were set since
    os.environ.update(environment)
    # Locks created by libraries then have no names, which a killed process would leave behind.
    multiprocessing.set_start_method("fork", force=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with the driver, even if it is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def written(args: tuple[Any, ...]) -> Iterator[Path]:
    """Write arguments shared by many calls to a file that exists as long as the body runs."""
    with temporary_folder("gdm-pass-") as folder:
        path = folder / "arguments"
        path.write_bytes(cloudpickle.dumps(args))
        yield path


def call_with(path: Path, function: Callable[..., Any], item: Any) -> Any:
    """Run a function whose other arguments are in a file; each process reads the file once."""
    return function(item, *_arguments(path))


@lru_cache(maxsize=1)
def _arguments(path: Path) -> tuple[Any, ...]:
    with open(path, "rb") as file:
        args: tuple[Any, ...] = pickle.load(file)
    return args
