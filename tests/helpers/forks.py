"""Start Python programs quickly, as forks of a mother process that has loaded the libraries.

The mother loads nothing of this package, so a program reads its environment as a new process would.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from functools import cache
from multiprocessing import connection, forkserver
from pathlib import Path
from unittest import mock

#: Lets processes started from here import the tests' modules, too.
PATH = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))


#: Two threads that wait for a process at the same time would steal its exit code from each other.
_lock = threading.Lock()


@cache
def warm_context() -> multiprocessing.context.ForkServerContext:
    """Starts processes as forks of the mother."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["helpers.warm"])
    with mock.patch.dict(os.environ, PYTHONPATH=PATH):
        forkserver.ensure_running()
    return context


class Fork:
    """``python ARGUMENTS...`` in its own session, with its output in a file; otherwise like `subprocess.Popen`.

    Parameters
    ----------
    arguments : list of str
        ``-c PROGRAM ...`` or ``-m MODULE ...``.
    log : Path
        File to append the output to.
    env : dict
        The whole environment.
    """

    def __init__(self, arguments: list[str], log: Path, env: dict[str, str]) -> None:
        self._process = warm_context().Process(target=_run, args=(arguments, log, env))
        with _lock:
            self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        with _lock:
            return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def wait(self, timeout: float) -> int:
        connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code


def _end_with_starter() -> None:
    starter = multiprocessing.parent_process()
    assert starter is not None
    starter.join()
    os.killpg(0, signal.SIGKILL)


def _run(arguments: list[str], log: Path, env: dict[str, str]) -> None:
    os.setsid()
    # Leave nothing behind if the tests are killed: not even the children.
    threading.Thread(target=_end_with_starter, daemon=True).start()
    with open(log, "ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(env)
    import dask.config

    dask.config.refresh()
    flag, program, *rest = arguments
    sys.argv = [program if flag == "-m" else flag, *rest]
    try:
        if flag == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(program, {"__name__": "__main__"})
    finally:  # end like an interpreter does; multiprocessing skips this
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
