"""``gdm``: run a command. Every error ends in one line and an exit code, never in a traceback.

Signal handlers are installed first: before `run`, only the modules they need are loaded.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds that a signalled command has to clean up. Then it exits at once; unfinished work is redone, as after a
#: power failure.
_GRACE = 4.0
#: Seconds during which a second signal is taken for an echo of the first by the parent process, and ignored.
_ECHO = 1.0
#: New objects before the garbage collector runs. A start creates modules and classes, which stay; with Python's
#: default of 700 the collector scans all of them again and again, which takes a sixth of a second.
_COLLECTED_AFTER = 100_000


class Ended(BaseException):
    """Ctrl-C or SIGTERM: the command ends, and unfinished work can be resumed."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)


class _Ending:
    """End the command at the first signal: raise `Ended`, and make sure that it takes effect."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._hook = sys.unraisablehook

    def begin(self) -> None:
        """Install the signal handlers."""
        for number in _SIGNALS:
            signal.signal(number, self._end)
        sys.unraisablehook = self._unraisable
        # Runs last. Python then removes the handlers, and an alarm without one would kill the process.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.0)

    def finish(self, code: int) -> None:
        """Let Python exit: a further signal only limits the time that the exit may take."""
        for number in _SIGNALS:
            signal.signal(number, lambda *_: self._alarm(_GRACE, lambda *_: os._exit(code)))
        sys.unraisablehook = self._hook

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._began is None:
            self._began = time.monotonic()
            self._alarm(_GRACE, lambda *_: self._end_now(number))
            raise Ended(number)
        if time.monotonic() - self._began > _ECHO:
            self._end_now(number)

    def _unraisable(self, lost: Any) -> None:
        """Repeat the signal if `Ended` was raised in a destructor or a callback, where Python ignores exceptions."""
        if isinstance(lost.exc_value, Ended):
            number, self._began = lost.exc_value.signal, None
            self._alarm(0.01, lambda *_: signal.raise_signal(number))  # after that destructor has returned
        else:
            self._hook(lost)

    @staticmethod
    def _alarm(seconds: float, handler: Any) -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    @staticmethod
    def _end_now(number: int) -> NoReturn:
        with suppress(OSError):
            os.write(2, f"{_farewell(number)}\n".encode())
        os._exit(128 + number)


def run() -> None:
    """Run the command line."""
    _prepare_streams()
    ending = _Ending()
    ending.begin()
    try:
        try:
            _run()
        except SystemExit as end:
            ending.finish(int(end.code or 0))
            raise
    except Ended as end:
        _tell(_farewell(end.signal), 128 + end.signal)
        sys.exit(128 + end.signal)


def _prepare_streams() -> None:
    """Open the standard streams that are closed, and escape characters that the encoding of the terminal lacks."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # else the next file would get the output of a stream
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as Python does for standard error


def _tell(text: str, code: int, mark: str = "") -> None:
    """Print why the command ends, if that is possible."""
    with suppress(OSError):
        _print(text, code, mark)


def _print(text: str, code: int, mark: str) -> None:
    """Print an error, as a line of the log if the log is written as JSON."""
    if "gdm_dask.cli.logs" in sys.modules and sys.modules["gdm_dask.cli.logs"].is_json():
        import logging

        logging.getLogger(__name__).error("%s", text, extra={"exit_code": code})
    elif mark:
        from gdm_dask.cli.console import err, escape

        err.print(f"[bold red]{mark}:[/] {escape(text)}", soft_wrap=True, highlight=False)
    else:
        print(text, file=sys.stderr, flush=True)


def _farewell(number: int) -> str:
    name = signal.Signals(number).name
    return f"ended by {name}: the same command resumes where it stopped (gdm fit with --resume)"


def _run() -> None:
    """Run the command line; errors that the user can act on become one line and an exit code."""
    import gc
    import logging
    import warnings

    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    from gdm_dask.cli import (  # noqa: F401 (imported to register their commands)
        cluster_commands,
        model_commands,
        pipeline_commands,
        plan_commands,
        store_commands,
        trial_commands,
        warm_commands,
    )
    from gdm_dask.cli.app import ORDER, app
    from gdm_dask.errors import GdmError, exit_code_of

    app.registered_commands.sort(key=lambda command: ORDER.index(command.callback.__name__))  # type: ignore[union-attr]
    # Log only the message, without the place in the package that issued it.
    warnings.showwarning = lambda message, *_, **__: logging.getLogger(__name__).warning("%s", message)
    output = os.dup(1)  # Rich replaces a pipe without a reader
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except GdmError as error:
        _tell(str(error), error.exit_code, "error")
        sys.exit(error.exit_code)
    except MemoryError as error:
        _tell(
            f"the memory of this computer does not suffice: {error or 'it is exhausted'}", GdmError.exit_code, "error"
        )
        sys.exit(GdmError.exit_code)
    except (BrokenPipeError, SystemExit) as error:
        is_pipe = isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)
        if not (is_pipe and _has_no_reader(output)):
            raise
        _drop_output()
        sys.exit(0)  # the reader, such as head, has seen enough; Typer ends with 1
    except OSError as error:
        logging.getLogger(__name__).debug("", exc_info=True)
        place = f"{error.filename}: " if error.filename else ""
        _tell(f"{place}{error.strerror or error}", exit_code_of(error), "error")
        try:
            sys.stdout.flush()
        except OSError:  # the disk is full; otherwise Python would retry at exit and print another error
            _drop_output()
        sys.exit(exit_code_of(error))
    finally:
        os.close(output)


def _has_no_reader(stream: int) -> bool:
    """Return whether the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(stream, 0)
    return bool(poll.poll(0))


def _drop_output() -> None:
    """Discard output that could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
