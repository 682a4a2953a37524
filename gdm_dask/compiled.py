"""How kernels are compiled: once on a machine, then kept on disk; without the GIL. Whoever waits for that is told."""

from __future__ import annotations

import logging
from typing import Any

from numba import njit
from numba.core import event

logger = logging.getLogger(__name__)

#: Decorates the kernels.
compiled: Any = njit(cache=True, nogil=True)


class _Notice(event.Listener):
    """Says once in a process that kernels are being compiled and not loaded."""

    def __init__(self) -> None:
        self._is_said = False

    def on_start(self, event: event.Event) -> None:
        module = event.data["dispatcher"].py_func.__module__ or ""  # what others make at run time may have none
        if self._is_said or not module.startswith("gdm_dask."):
            return
        self._is_said = True
        logger.info("compiling kernels: up to half a minute, once on this machine for each kind of data")

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Notice())
