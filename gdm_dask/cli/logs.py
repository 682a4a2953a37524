"""Logging of the command line, through the standard library."""

from __future__ import annotations

import logging
import sys

from rich.console import Console
from rich.logging import RichHandler


def set_up_logging(verbose: int, quiet: bool) -> None:
    """Send the package's log to standard error: plain lines, or coloured ones on a terminal."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose > 1 else logging.INFO
    handler: logging.Handler
    if sys.stderr.isatty():
        console = Console(stderr=True)
        handler = RichHandler(console=console, show_path=verbose > 1, show_time=verbose > 0, show_level=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s" if verbose else "%(message)s"
        handler.setFormatter(logging.Formatter(form))
    package = logging.getLogger("gdm_dask")
    package.handlers[:] = [handler]
    package.setLevel(level)
    package.propagate = False
