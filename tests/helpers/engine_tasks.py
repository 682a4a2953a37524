"""Tasks for the tests of engines. Processes import only this file to run one, which is quick."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from gdm_dask.features.block import Block


GATE = threading.Event()


def wait_at_gate(item: int) -> int:
    """Wait until the gate opens, in the process of the test."""
    assert GATE.wait(60)
    return item


def count_running(item: int, folder: Path) -> int:
    """Return how many of these tasks run at the same time."""
    mine = folder / str(item)
    mine.touch()
    time.sleep(0.1)
    running = len(list(folder.iterdir()))
    mine.unlink()
    return running


def square(item: int, array: np.ndarray, block: Block | None = None) -> float:
    return item * float(array.sum()) + (0.0 if block is None else float(block.means.sum()))


def add_up(parts: list[float], array: np.ndarray) -> float:
    return sum(parts)


def fail_at_two(item: int) -> int:
    if item == 2:
        raise FileNotFoundError(2, "No such file", "part-2")
    return item


def die_once(item: int, marker: Path) -> int:
    try:
        marker.rename(marker.with_name(f"died-{item}"))
    except FileNotFoundError:
        return item
    os.kill(os.getpid(), signal.SIGKILL)
    return -1


def spin(folder: Path) -> None:
    """Work until somebody stops it at a safe point."""
    from gdm_dask.system import interrupts

    (folder / "begun").touch()
    try:
        while True:
            interrupts.check()
            time.sleep(0.01)
    except interrupts.Interrupted:
        (folder / "stopped").touch()
        raise


def die(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
