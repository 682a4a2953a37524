"""Progress of a fit as metrics for Prometheus: on the page of a Dask worker, and in a text file for node_exporter."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from gdm_dask.store.folder import write_whole
from gdm_dask.system.metrics import SOURCES, Metric, all_metrics, exposition, publish

if TYPE_CHECKING:
    from gdm_dask.cutting_plane.iteration import Iteration

logger = logging.getLogger(__name__)


class FitMetrics:
    """Metrics of a fit while the context lasts, each with these labels.

    The file is written when the fit begins, after each cut, and when it ends; atomically, because node_exporter may
    read it at any moment.
    """

    def __init__(self, labels: dict[str, str], file: str | os.PathLike[str] | None = None) -> None:
        self._labels = labels
        self._file = None if file is None else Path(file)
        self._last: Iteration | None = None
        self._state, self._read_bytes, self._failed = 0.0, 0, False
        self._began = self._updated = time.time()

    def __enter__(self) -> FitMetrics:
        SOURCES.append(self.metrics)
        if "prometheus_client" in sys.modules:
            publish()
        self._write()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._state = 1.0 if kind is None else -1.0
        self._write()
        SOURCES.remove(self.metrics)

    def after(self, iteration: Iteration) -> None:
        """Take the values of a cut."""
        self._last = iteration
        self._read_bytes += iteration.bytes_read
        self._write()

    def metrics(self) -> list[Metric]:
        """Return the current values."""
        values = {
            "state": ("0 while the fit runs, 1 when it has finished, -1 when it has failed.", self._state),
            "started_timestamp_seconds": ("When the fit began.", self._began),
            "updated_timestamp_seconds": ("When the values last changed.", self._updated),
            "memory_bytes": ("Memory of the driver's process.", psutil.Process().memory_info().rss),
        }
        if (cut := self._last) is not None:
            values |= {
                "cuts": ("Cuts so far.", cut.number),
                "supports": ("Supports so far.", cut.n_supports),
                "reads": ("Reads of the data so far.", cut.n_reads),
                "read_bytes": ("Decoded bytes read for the cuts of this process.", self._read_bytes),
                "lower_bound": ("Lower bound of the objective.", cut.lower),
                "upper_bound": ("Upper bound of the objective.", cut.upper),
                "gap": ("Relative gap between the bounds.", cut.gap),
            }
        return [Metric(f"gdm_fit_{name}", text, value, self._labels) for name, (text, value) in values.items()]

    def _write(self) -> None:
        self._updated = time.time()
        if self._file is None:
            return
        try:
            write_whole(self._file, exposition(all_metrics()).encode())
            self._failed = False
        except OSError as error:
            if not self._failed:  # once, not after each cut
                logger.warning("%s: the metrics cannot be written: %s", self._file, error.strerror or error)
            self._failed = True
