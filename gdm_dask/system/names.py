"""Names: feature names are untrusted text, made safe to print; runs get ids of their own."""

from __future__ import annotations

import os
import socket
import time


def new_run_id() -> str:
    """Return an id of a run: when and where it began. Ids sort by time."""
    now = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f"{int(now % 1 * 1e6):06d}"
    return f"{stamp}-{socket.gethostname()}-{os.getpid()}"


def printable(text: str, limit: int | None = None) -> str:
    r"""Return a name with control characters escaped, cut at a length.

    >>> print(printable("a\tb"), printable("abcdef", 4))
    a\tb abc…
    """
    cut = text if limit is None else text[: limit + 1]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"
