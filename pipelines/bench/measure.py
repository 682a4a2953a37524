"""Measure the time, processor time and peak memory of a command and all its children."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Measured:
    """Time and memory that a command took, and its output."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu_seconds:.1f} s CPU), peak memory {self.peak_bytes / 1e6:.0f} MB"


class Failed(Exception):
    """A command ended with a code other than 0."""


def measure(command: list[str], env: dict[str, str] | None = None, time_limit: float = float("inf")) -> Measured:
    """Run a command to its end; memory is summed over its processes, and sampled every 50 ms.

    Raises
    ------
    Failed
        If the command ends with a code other than 0.
    TimeoutError
        After `time_limit` seconds; all processes of the command are killed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    tree = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            family = (tree, *tree.children(recursive=True))
            peak = max(peak, sum(one.memory_info().rss for one in family))
            if time.perf_counter() - began > time_limit:
                for one in family:
                    one.kill()
                process.communicate()
                raise TimeoutError
        except psutil.NoSuchProcess:
            continue
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    seconds = time.perf_counter() - began
    output, _ = process.communicate()
    if process.returncode:
        raise Failed(f"{' '.join(command)} failed with code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(seconds, cpu, peak, output)


def machine() -> str:
    """Describe the machine in one line, with a warning if it is too busy for reliable figures."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    busy = "" if load < 0.5 else f"; BUSY (load {load:.1f}): repeat on a quiet machine"
    return f"{cores} cores, {psutil.virtual_memory().total / 1e9:.0f} GB of memory{busy}"
