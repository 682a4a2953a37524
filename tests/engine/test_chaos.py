"""Chaos: many random faults strike a few fits on real processes, and every result is the same to the bit.

``GDM_CHAOS_FITS`` sets the number of fits (``make chaos`` runs many), ``GDM_CHAOS_SEED`` the seed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from helpers.clusters import Cluster, Started, same_model

pytestmark = pytest.mark.usefixtures("read_for_each_cut")

SETTINGS = {"tau": 0.4, "cut_size": 2, "max_cuts": 9, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--cut-size", "2", "--max-cuts", "9", "--tol", "0"]
N_FITS = int(os.environ.get("GDM_CHAOS_FITS", 3))
SEED = int(os.environ.get("GDM_CHAOS_SEED", 0))
FAULTS_PER_FIT = 14
AT_ONCE = 3
N_WORKERS = 3
#: The command line, with one read per cut, so that every fault finds a pass to strike.
PROGRAM = """
from gdm_dask.settings import settings
settings.CUTS_PER_READ = 1
from gdm_dask.cli.main import run
run()
"""


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", n_workers=N_WORKERS)
    yield cluster
    cluster.end()


class Chaos(threading.Thread):
    """Triggers faults one after the other, each once an earlier one has struck, and replaces dead workers."""

    def __init__(self, cluster: Cluster, rng: random.Random, n_faults: int) -> None:
        super().__init__(daemon=True)
        self._cluster, self._rng = cluster, rng
        self._left = n_faults
        self.over = threading.Event()

    def __enter__(self) -> Chaos:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self._cluster.replace_dead()
            for pid in self._cluster.stopped():
                self._wake(pid)
            if self._left and len(self._cluster.pending()) < AT_ONCE:
                phase = self._rng.choice(["read", "scores", "scores", "top", "top", "rows", "groups"])
                kind = self._rng.choice(["kill", "kill", "hang", "error" if phase == "read" else "slow"])
                if phase == "groups" and self._left > AT_ONCE:
                    phase = "top"  # groups come last: waiting would be in vain
                self._cluster.fault(phase, kind)
                self._left -= 1

    def _wake(self, pid: int) -> None:
        """Let a hanging worker rest for a while, then continue it."""
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_STOPPED and self._rng.random() < 0.01:
                process.send_signal(signal.SIGCONT)


def wait_or_kill(fit: Started, chaos: Chaos, cuts: int, rng: random.Random) -> bool:
    """Wait for a fit to end, or kill its driver after some cuts; returns True if it ended by itself."""
    while fit.process.poll() is None:
        if fit.text.count("cut ") >= cuts and rng.random() < 0.2:
            fit.end()
            return False
        chaos.over.wait(0.05)
    return True


@pytest.mark.slow
@pytest.mark.timeout(60 + 300 * N_FITS)
def test_chaos(store, expected, cluster, tmp_path: Path) -> None:
    struck: Counter[str] = Counter()
    for number in range(N_FITS):
        rng = random.Random(1000 * SEED + number)
        run = tmp_path / f"run-{number}"
        arguments = ["fit", store.url, "--run", run, "--resume", "--scheduler", cluster.address, *OPTIONS]
        env = {"DASK_GDM_DASK__SILENCE": "2", "DASK_GDM_DASK__WAIT_FOR_WORKERS": "60"}
        with Chaos(cluster, rng, FAULTS_PER_FIT) as chaos:
            for attempt, cuts in enumerate([3, 6, 10**6]):
                command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
                fit = Started(command, tmp_path / f"fit-{number}-{attempt}.log", env)
                if wait_or_kill(fit, chaos, cuts, rng):
                    assert fit.process.returncode == 0, fit.text
                    break
                struck["driver killed"] += 1
        same_model(run, expected)
        for pid in cluster.stopped():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for name in cluster.struck():
            struck[".".join(name.removeprefix("struck-").split(".")[:2])] += 1
        for path in cluster.faults.iterdir():
            path.unlink(missing_ok=True)  # a worker that continued may have triggered it
    print(f"{struck.total()} faults: {dict(struck)}")
    assert struck.total() >= 30 or N_FITS < 3
