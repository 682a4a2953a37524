"""Logging of the command line, with the standard library."""

from __future__ import annotations

import json
import logging
import sys
import time
from enum import StrEnum

from rich.console import Console
from rich.logging import RichHandler

from gdm_dask.system.names import new_run_id
from gdm_dask.system.progress import log_fields


class LogFormat(StrEnum):
    """Format of the log."""

    text = "text"
    json = "json"


class JsonLines(logging.Formatter):
    """Format each record as a JSON object on one line: time, level, logger, message, run, and further fields."""

    _OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= log_fields
        line |= {key: value for key, value in vars(record).items() if key not in self._OWN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def is_json() -> bool:
    """Return whether the log is written as JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger("gdm_dask").handlers)


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Whether a line of Dask's client says more than our own error, which follows it with the remedy."""
    return not str(record.msg).startswith("Failed to reconnect to scheduler")


def set_up_logging(verbose: int, quiet: bool, form: LogFormat = LogFormat.text) -> None:
    """Send the package's log to standard error: plain lines, coloured lines on a terminal, or JSON."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose > 1 else logging.INFO
    handler: logging.Handler
    if form is LogFormat.json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        log_fields["run"] = new_run_id()
    elif sys.stderr.isatty():
        console = Console(stderr=True)
        handler = RichHandler(console=console, show_path=verbose > 1, show_time=verbose > 0, show_level=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        line = "%(asctime)s %(levelname)s %(name)s: %(message)s" if verbose else "%(message)s"
        handler.setFormatter(logging.Formatter(line))
    package = logging.getLogger("gdm_dask")
    package.handlers[:] = [handler]
    package.setLevel(level)
    package.propagate = False
    logging.getLogger("distributed.client").addFilter(_is_not_ours)
