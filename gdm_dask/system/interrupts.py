"""Ctrl-C and SIGTERM during parallel work: recorded at once, raised at a safe point.

A handler that raises at an arbitrary point of the main thread can leave a queue locked that the threads of a pool need.
So while the main thread waits for a pool, an exception from a handler is kept, and the waiting thread is woken.
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
#: A signal within this many seconds is an echo of the first; a later one means that the user does not want to wait.
_ECHO = 1.0


class Interrupted(BaseException):
    """A signal has arrived: unwind to `held_back`, which raises the exception of its handler."""


class Hold:
    """Keeps the exception of a handler until all tasks of the main thread have reached a safe point.

    `is_unwanted` returns whether nobody wants the result any more: a further reason to stop.
    """

    def __init__(self, is_unwanted: Callable[[], bool] = lambda: False) -> None:
        self.wakes: list[Callable[[], None]] = []
        self.error: BaseException | None = None
        self.is_unwanted = is_unwanted
        self._since = 0.0

    def keep(self, error: BaseException) -> None:
        """Keep the first error and wake the waiting thread; ignore its echoes, and raise a later error."""
        if self.error is None:
            self.error, self._since = error, time.monotonic()
            for wake in list(self.wakes):
                wake()
        elif time.monotonic() - self._since > _ECHO:
            raise error

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a task in a thread; within it, `check` raises after a signal."""
        _local.hold = self
        try:
            check()
            return function(*args)
        finally:
            _local.hold = None


_local = threading.local()
#: The hold of the main thread, and the handlers replaced by ours. Without a hold our handler calls them, so a signal
#: may arrive between any two steps of `held_back`.
_hold: Hold | None = None
_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}


def check() -> None:
    """Raise if a signal has arrived, or if nobody wants the result: a safe point, in the main thread or in a task."""
    hold = getattr(_local, "hold", None)
    if hold is not None and (hold.error is not None or hold.is_unwanted()):
        raise Interrupted


@contextmanager
def held_back(wake: Callable[[], None] = lambda: None) -> Iterator[Hold]:
    """Hold signals back until the body ends; within it, `check` raises.

    The handler calls `wake`, which ends the wait of the main thread soon.
    """
    global _hold
    outer: Hold | None = getattr(_local, "hold", None)
    if outer is not None or threading.current_thread() is not threading.main_thread():
        hold = outer or Hold()  # handlers run only in the main thread, which has installed them
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
            if callable(handler) and handler is not _handle:  # skip signals that are ignored or that end the process
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
    """Let other threads end the body at its next safe point, with the error passed to `Hold.keep`."""
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
