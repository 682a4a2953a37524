"""Progress of long work: a bar on a terminal, plain log lines elsewhere.

Compilation time is not counted as working time: a first fit should not look slow.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gdm_dask.system.resources import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 10.0


class _Lines:
    """Log a line every ten seconds, and one at the end."""

    def __init__(self, stage: str, total: int | None) -> None:
        self.stage, self.total = stage, total
        self.done = 0
        self.began = self.last = work_clock()

    def __call__(self, n_bytes: int) -> None:
        self.done += n_bytes
        now = work_clock()
        if self.total is not None and now - self.last >= _SECONDS_BETWEEN_LINES and self.done < self.total:
            self.last = now
            rate = self.done / (now - self.began)
            left = (self.total - self.done) / max(rate, 1.0)
            logger.info(
                "%s: %s of %s, %s/s, %.0f s left",
                self.stage, format_bytes(self.done), format_bytes(self.total), format_bytes(rate), left,
            )  # fmt: skip

    def close(self) -> None:
        seconds = work_clock() - self.began
        if self.total is None:
            logger.info("%s: done in %.1f s", self.stage, seconds)
            return
        rate = format_bytes(self.done / max(seconds, 1e-9))
        logger.info("%s: %s in %.1f s (%s/s)", self.stage, format_bytes(self.done), seconds, rate)


@contextmanager
def report(stage: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show the progress of a stage of `total` bytes; on a terminal, a bar with bytes, rate and time left.

    Yields a function to call with the number of bytes that are done since its last call. `total` is None if unknown.
    """
    lines = _Lines(stage, total)
    console = log_console() if logger.isEnabledFor(logging.INFO) else None
    if console is None:
        yield lines
        lines.close()
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description:>9}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(stage, total=total)

        def advance(n_bytes: int) -> None:
            lines.done += n_bytes
            bar.advance(task, n_bytes)

        yield advance
    lines.close()


def log_console() -> Console | None:
    """Return the terminal that shows the log; a progress bar must share it to keep the output apart.

    Return None if there is no terminal, or if the log is written for machines.
    """
    if not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.logging import RichHandler

    handlers = logging.getLogger("gdm_dask").handlers
    for handler in handlers:
        if isinstance(handler, RichHandler):
            return handler.console
    return None if handlers else Console(stderr=True)


#: Fields of every line of a log in JSON, such as the id of the run.
log_fields: dict[str, str] = {}


#: Seconds of finished compilations, and the start of the current one: replaced together, because any thread may read.
_state: tuple[float, float | None] = (0.0, None)


def work_clock() -> float:
    """Return the seconds of a clock that stops while this process compiles kernels."""
    return time.perf_counter() - compile_seconds()


def compile_seconds() -> float:
    """Return the seconds this process has spent compiling kernels."""
    done, began = _state
    return done if began is None else done + time.perf_counter() - began


def set_compiling(is_on: bool) -> None:
    """Stop the clock, or restart it."""
    global _state
    _state = (compile_seconds(), time.perf_counter() if is_on else None)
