"""Real Dask processes on this machine, for the tests: a scheduler, workers, and faults that strike them."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.pipeline.run_directory import RunDirectory
from helpers.forks import PATH, Fork

PATIENCE = 120.0
PRELOAD = Path(__file__).with_name("fault_preload.py")
FOREVER = 10**6
#: A worker too small for any task; Dask itself would pause it once it checks its memory.
TINY = {"memory_limit": "100MB", "env": {"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False"}}


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Tell whether a process is running. Its entry in /proc does not tell: it stays until the process is reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def family(pid: int) -> list[int]:
    """Return a process and its descendants, without looking at all others: that takes milliseconds."""
    found = [pid]
    for parent in found:  # grows meanwhile
        with suppress(OSError):
            for path in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, path.read_text().split())
    return found


def catches(pid: int, number: int) -> bool:
    """Tell whether a running process has a handler of its own for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(int(re.search(r"SigCgt:\s+(\w+)", status)[1], 16) >> (number - 1) & 1)


class Started:
    """A process that leads its own session, with its output in a file.

    Python programs are forks (see `forks`); with ``fresh`` they start as new processes.
    """

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None, fresh: bool = False) -> None:
        self.log = log
        log.touch()
        env = {**os.environ, **(env or {})}
        self.process: Fork | subprocess.Popen
        if command[0] == sys.executable and not fresh:
            self.process = Fork(command[1:], log, env)
        else:
            with open(log, "ab") as file:
                self.process = subprocess.Popen(
                    command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=env
                )
        self.pid = self.process.pid

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str) -> str:
        """Wait until `pattern` is in the output, and return its first group."""

        def there() -> bool:
            assert self.process.poll() is None or re.search(pattern, self.text), self.text
            return re.search(pattern, self.text) is not None

        until(there, f"{pattern} in\n{self.text}")
        found = re.search(pattern, self.text)
        assert found is not None
        return found.group(1)

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(PATIENCE)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        """Kill the process and its children."""
        with suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.kill(self.pid, signal.SIGKILL)  # it may not lead a group yet
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


class Cluster:
    """A scheduler and its workers; `end` kills them all.

    Parameters
    ----------
    folder : Path
        Folder for logs, and for the faults that will strike the workers.
    n_workers : int
    prefix : list of str
        Prefix of the commands, such as ``ip netns exec NAME``.
    options : tuple of str
        Options of scheduler and workers, such as certificates.
    """

    def __init__(
        self, folder: Path, n_workers: int = 0, prefix: list[str] | None = None, options: tuple[str, ...] = (),
        host: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        self.folder = folder
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        self.host, self.options = host, options
        self.workers: list[Started] = []
        self._numbers = itertools.count()
        self.scheduler = self.start_scheduler("0", prefix)
        self.address = self.scheduler.wait_for(r"Scheduler at:\s+((?:tcp|tls)://\S+)")
        starting = [self.start_worker() for _ in range(n_workers)]
        for worker in starting:
            worker.wait_for(r"(Registered to)")

    def start_scheduler(self, port: str, prefix: list[str] | None = None) -> Started:
        command = [
            *(prefix or []), sys.executable, "-m", "dask", "scheduler", "--host", self.host, "--port", port,
            "--no-dashboard", "--no-show", *self.options,
        ]  # fmt: skip
        return Started(command, self.folder / "scheduler.log", {"PYTHONPATH": PATH})

    def restart_scheduler(self) -> None:
        """Start a new scheduler at the address of the killed one."""
        self.scheduler.end()
        self.scheduler = self.start_scheduler(self.address.rsplit(":", 1)[1])

    def start_worker(
        self, *options: str, nanny: bool = False, memory_limit: str = "0", env: dict[str, str] | None = None,
        prefix: list[str] | None = None, host: str | None = None, nthreads: int = 1, fresh: bool = False,
    ) -> Started:  # fmt: skip
        """Start a worker, without waiting for it."""
        command = [
            *(prefix or []), sys.executable, "-m", "dask", "worker", self.address, "--host", host or self.host,
            "--nthreads", str(nthreads), "--no-dashboard", "--memory-limit", memory_limit, "--nanny" if nanny else
            "--no-nanny", "--preload", str(PRELOAD), "--local-directory", str(self.folder), *self.options, *options,
        ]  # fmt: skip
        env = {"GDM_TEST_FAULTS": str(self.faults), "PYTHONPATH": PATH, **(env or {})}
        worker = Started(command, self.folder / f"worker-{next(self._numbers)}.log", env, fresh)
        self.workers.append(worker)
        return worker

    def add_worker(self, **options) -> Started:
        """Start a worker, and wait until it is up."""
        worker = self.start_worker(**options)
        worker.wait_for(r"(Registered to)")
        return worker

    def refresh(self, n_workers: int) -> None:
        """Restore exactly `n_workers` healthy workers, and remove pending faults."""
        for path in self.faults.iterdir():
            if path.name.startswith("struck-") and path.read_text():
                for worker in self.workers:
                    if worker.pid == int(path.read_text()):
                        worker.end()
            path.unlink(missing_ok=True)
        alive = [worker for worker in self.workers if worker.process.poll() is None]
        for worker in alive[n_workers:]:
            worker.end()
        starting = [self.start_worker() for _ in range(n_workers - len(alive))]
        for worker in starting:
            worker.wait_for(r"(Registered to)")

    def replace_dead(self) -> None:
        """Replace each worker that has ended."""
        for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
            self.workers.remove(worker)
            self.start_worker()

    def fault(self, phase: str, kind: str, times: int = 1) -> None:
        """Plan a fault for the workers that next reach a phase (see ``fault_preload.py``)."""
        for number in range(min(times, 50)):
            name = f"{phase}.{kind}.{number if times < FOREVER else 'always'}"
            temporary = self.faults / f"new-{name}"
            temporary.touch()
            temporary.rename(self.faults / name)
            if times >= FOREVER:
                break

    def mend(self, phase: str, kind: str) -> None:
        """Remove a fault that strikes forever."""
        (self.faults / f"{phase}.{kind}.always").unlink()

    def pending(self) -> list[str]:
        """List the faults that have not struck yet."""
        return sorted(path.name for path in self.faults.iterdir() if not path.name.startswith("struck-"))

    def struck(self) -> list[str]:
        return sorted(path.name for path in self.faults.iterdir() if path.name.startswith("struck-"))

    def stopped(self) -> list[int]:
        """Return the process ids of hanging workers."""
        found = [int(path.read_text()) for path in self.faults.glob("struck-*.hang.*") if path.read_text()]
        return [pid for pid in found if Path(f"/proc/{pid}").exists()]

    def end(self) -> None:
        for started in (*self.workers, self.scheduler):
            started.end()


def gdm(*arguments: object, log: Path, env: dict[str, str] | None = None, prefix: list[str] | None = None) -> Started:
    """Start the command line in a separate process."""
    program = "from gdm_dask.cli.main import run; run()"
    return Started([*(prefix or []), sys.executable, "-c", program, *map(str, arguments)], log, env)


#: A command line that pauses while a file exists, once a number of tasks of a stage have ended.
HELD = """
import sys, time
from pathlib import Path
from gdm_dask.cli.main import run
from gdm_dask.system import progress
stage, left, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
del sys.argv[1:4]
plain = progress._Lines.__call__
def held(self, n_bytes):
    global left
    plain(self, n_bytes)
    left -= self.stage == stage
    if left == 0:
        print("held", flush=True)
        while file.exists():
            time.sleep(0.01)
progress._Lines.__call__ = held
run()
"""


@contextmanager
def held_gdm(stage: str, n_done: int, *arguments: object, log: Path) -> Iterator[Started]:
    """Start the command line in a separate process, and pause it in the body, with `n_done` tasks of a stage done."""
    hold = log.with_suffix(".hold")
    hold.touch()
    started = Started([sys.executable, "-c", HELD, stage, str(n_done), str(hold), *map(str, arguments)], log)
    try:
        started.wait_for("(held)")
        yield started
    finally:
        hold.unlink()


class Stop(Exception):
    """Ends a fit in a callback."""


def stop_after(cut: int) -> Callable[[Iteration], None]:
    """Return a callback that ends a fit after a cut."""

    def callback(iteration: Iteration) -> None:
        if iteration.number == cut:
            raise Stop

    return callback


def same_model(one: Path, other: Path) -> None:
    """Check that two run directories have identical array files."""
    if (one / "model.npz").read_bytes() != (other / "model.npz").read_bytes():
        with np.load(one / "model.npz") as mine, np.load(other / "model.npz") as theirs:
            differing = {
                name: (mine[name].tolist(), theirs[name].tolist())
                for name in theirs
                if mine[name].tobytes() != theirs[name].tobytes()
            }
        raise AssertionError(f"{one} differs from {other}: {differing}")


def same_fit(one: GroupDiscoveryMachine, other: GroupDiscoveryMachine) -> None:
    """Check that fits are the same to the bit, from supports to groups."""
    for name in ("support_features_", "weights_", "coef_", "intercept_", "lower_bounds_", "upper_bounds_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.gap_, one.redundancy_rate_) == (other.gap_, other.redundancy_rate_)
    pd.testing.assert_frame_equal(one.affiliations_, other.affiliations_, check_exact=True)
    assert [iteration.cut for iteration in one.history_] == [iteration.cut for iteration in other.history_]


def small_data(m: int = 300, n: int = 200, seed: int = 11) -> tuple[sp.csr_array, np.ndarray]:
    """Make sparse counts (samples x features) with groups, and labels that some of them predict."""
    from helpers.instances import informative

    X, y = informative(m, n, seed, "counts")
    X[m // 3 : m // 2] = X[: m // 2 - m // 3] + (np.random.default_rng(0).random((m // 2 - m // 3, n)) < 0.05)
    return sp.csr_array(X.T), y


def small_store(folder: Path, **options) -> FeatureStore:
    """`small_data` in a dozen blocks."""
    X, y = small_data()
    store = ingest(X, folder / "data.zarr", y, block_bytes=20_000, **options)
    assert store.n_blocks >= 8
    return store


def undisturbed(store: FeatureStore, settings: dict, folder: Path) -> Path:
    """Run an undisturbed fit, and return its run directory."""
    RunDirectory(folder / "run").fit(GroupDiscoveryMachine(**settings, scheduler="synchronous"), store)
    return folder / "run"
