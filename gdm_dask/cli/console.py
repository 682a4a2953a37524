"""Terminal output: results, safe display of text from files and clusters, and a view of the cuts of a running fit.

On a terminal the view is redrawn; elsewhere each cut is a line of the log.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich import markup
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gdm_dask.system.progress import log_console
from gdm_dask.system.resources import format_bytes

if TYPE_CHECKING:
    from gdm_dask.cutting_plane.iteration import Iteration

logger = logging.getLogger(__name__)

#: Number of cuts in view.
SHOWN = 8
_BLOCKS = "▁▂▃▄▅▆▇█"

out = Console()
err = Console(stderr=True)


def plain(text: str) -> str:
    r"""Escape control characters except line breaks, so that none reaches a terminal.

    >>> plain("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "replace").decode() for c in text)


def escape(text: str) -> str:
    r"""Apply `plain` and escape brackets, so that they are not markup.

    >>> escape("[bold]\r")
    '\\[bold]\\r'
    """
    return markup.escape(plain(text))


def show(facts: list[tuple[str, str]]) -> None:
    """Print names and values, one unwrapped line each: a log must not break paths."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        out.print(f"[bold]{name:<{width}}[/]  {escape(value)}", highlight=False, soft_wrap=True)


def show_columns(rows: list[list[str]]) -> None:
    """Print rows in columns, one unwrapped line each: on a narrow terminal or in a log, a rich table cuts cells off."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class CutView:
    """The last cuts of a running fit, and its progress: up to `n_supports`, or to the gap `tol` if that is None.

    Each pass scores `n_features`; `clock` returns the seconds since any fixed moment.
    """

    def __init__(
        self, n_features: int, n_supports: int | None, tol: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.n_features, self.n_supports, self.tol = n_features, n_supports, tol
        self._clock = clock
        self._began = clock()
        self._cuts: deque[Iteration] = deque(maxlen=SHOWN)
        self._gaps: deque[float] = deque(maxlen=40)
        self._scoring = 0.0  # seconds of the last read

    def add(self, iteration: Iteration) -> None:
        """Add a finished cut."""
        self._cuts.append(iteration)
        self._gaps.append(iteration.gap)
        self._scoring = iteration.seconds.get("scores") or self._scoring

    def done(self) -> float:
        """Progress from 0 to 1: by supports, or by the gap on a logarithmic scale."""
        if not self._cuts:
            return 0.0
        last = self._cuts[-1]
        if self.n_supports is not None:
            return min(1.0, last.n_supports / self.n_supports)
        if last.gap <= self.tol or self.tol <= 0:
            return float(last.gap <= self.tol)
        return max(0.0, min(1.0, math.log(max(last.gap, 1e-300)) / math.log(self.tol)))

    def seconds_left(self) -> float | None:
        """Estimate the remaining seconds from the progress so far; None before the first cut."""
        done = self.done()
        return None if done <= 0 else (self._clock() - self._began) * (1 - done) / done

    def __rich__(self) -> Group:
        return Group(self._table(), self._status())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        bounds = () if self.n_supports is not None else ("lower", "upper", "gap")
        for name in ("cut", "supports", "new", "best score", *bounds, "read", "seconds"):
            table.add_column(name, justify="right")
        for cut in self._cuts:
            values = (f"{cut.lower:.5g}", f"{cut.upper:.5g}", f"{cut.gap:.2%}")[: len(bounds)]
            table.add_row(
                str(cut.number), f"{cut.n_supports:,}", f"+{cut.n_new}", f"{cut.best_score:.4g}", *values,
                format_bytes(cut.bytes_read), f"{sum(cut.seconds.values()):.2f}",
            )  # fmt: skip
        return table

    def _status(self) -> Table:
        elapsed = self._clock() - self._began
        left = self.seconds_left()
        line = Table.grid(padding=(0, 2))
        parts: list[Any] = [ProgressBar(total=1.0, completed=self.done(), width=24), Text(f"{elapsed:.0f} s")]
        parts.append(Text("finding the first cut" if left is None else f"about {left:.0f} s left"))
        if self._cuts:
            parts.append(Text(f"{self.n_features / max(self._scoring, 1e-9):,.0f} features/s"))
            if self.n_supports is None:
                parts.append(Text(f"gap {sparkline(list(self._gaps))}"))
        line.add_row(*parts)
        return line


def sparkline(values: list[float]) -> str:
    """Draw values as a row of bars.

    >>> sparkline([1.0, 0.5, 0.0])
    '█▅▁'
    """
    high = max(values, default=0.0) or 1.0
    return "".join(_BLOCKS[min(7, round(7 * max(0.0, value) / high))] for value in values)


@contextmanager
def live_cuts(
    n_features: int,
    n_supports: int | None,
    tol: float,
    otherwise: Callable[[Iteration], None],
    console: Console | None = None,
) -> Iterator[Callable[[Iteration], None]]:
    """Return a callback for each cut: a view on a terminal, `otherwise` elsewhere."""
    console = console or log_console()
    if console is None or not console.is_terminal or not logger.isEnabledFor(logging.INFO):
        yield otherwise
        return
    view = CutView(n_features, n_supports, tol)
    with Live(view, console=console, refresh_per_second=4, transient=True):
        yield view.add
