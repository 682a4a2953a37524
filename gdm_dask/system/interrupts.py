"""Ctrl-C and SIGTERM while others work for us: noted at once, raised at a safe point.

A handler that raises wherever the main thread happens to be can leave the lock of a queue behind that a pool's threads
wait for. So while the main thread waits for a pool, what a handler raises is kept, and the waiting side is woken.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds after which another signal is no echo of the first, but somebody who does not want to wait.
_ECHO = 1.0


class Interrupted(BaseException):
    """A signal has arrived: unwind to `held_back`, which raises what its handler raised."""


class Hold:
    """Keeps what a handler raises until those who work for the main thread have come to a safe point."""

    def __init__(self) -> None:
        self.wakes: list[Callable[[], None]] = []
        self.error: BaseException | None = None
        self._since = 0.0

    def keep(self, error: BaseException) -> None:
        """Keep the first error, and wake who waits; raise a later one."""
        if self.error is None:
            self.error, self._since = error, time.monotonic()
            for wake in list(self.wakes):
                wake()
        elif time.monotonic() - self._since > _ECHO:
            raise error

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a task in a thread; within it, `check` raises where a signal has arrived."""
        _local.hold = self
        try:
            check()
            return function(*args)
        finally:
            _local.hold = None


_local = threading.local()
#: The hold of the main thread, and the handlers that ours stands in for. With no hold it is as if they were there, so
#: a signal may come between any two steps of `held_back`.
_hold: Hold | None = None
_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}


def check() -> None:
    """A safe point, in the main thread or in a task: raise where a signal has arrived."""
    hold = getattr(_local, "hold", None)
    if hold is not None and hold.error is not None:
        raise Interrupted


@contextmanager
def held_back(wake: Callable[[], None] = lambda: None) -> Iterator[Hold]:
    """Hold signals back until the body ends; within it, `check` raises.

    Parameters
    ----------
    wake : callable
        Called by the handler: makes the main thread's wait end soon.
    """
    global _hold
    outer: Hold | None = getattr(_local, "hold", None)
    if outer is not None or threading.current_thread() is not threading.main_thread():
        hold = outer or Hold()  # handlers run in the main thread alone, which has seen to it
        hold.wakes.append(wake)
        try:
            yield hold
        finally:
            hold.wakes.remove(wake)
        return
    hold = Hold()
    hold.wakes.append(wake)
    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and handler is not _handle:  # not where the signal is ignored, or ends the process
                _handlers[number] = handler
                signal.signal(number, _handle)
        _local.hold = _hold = hold
        yield hold
    except BaseException:
        if hold.error is None:
            raise
    finally:
        _local.hold = _hold = None
        for number in _SIGNALS:
            if signal.getsignal(number) is _handle:
                signal.signal(number, _handlers[number])
    if hold.error is not None:
        raise hold.error.with_traceback(None)


@contextmanager
def stoppable() -> Iterator[Hold]:
    """Let other threads end the body, at its next safe point, with the error that they give to `Hold.keep`."""
    _local.hold = hold = Hold()
    try:
        yield hold
    except Interrupted:
        assert hold.error is not None
        raise hold.error from None
    finally:
        _local.hold = None


def _handle(number: int, frame: FrameType | None) -> None:
    hold = _hold
    try:
        _handlers[number](number, frame)
    except BaseException as error:
        if hold is None:
            raise
        hold.keep(error)
