"""Single-threaded BLAS: with several threads, sums and therefore solutions depend on the number of cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_n_inside = 0
_limiter: Any = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread in the whole process, as a context.

    Several threads may be inside; the last one to leave restores the threads of BLAS.
    """
    global _n_inside, _limiter
    with _lock:
        if _n_inside == 0:
            _free_control()
            _limiter = _blas().limit(limits=1, user_api="blas")
        _n_inside += 1
    try:
        yield
    finally:
        with _lock:
            _n_inside -= 1
            if _n_inside == 0:
                _free_control()
                _limiter.restore_original_limits()
                _free_control()


def _free_control() -> None:
    """Let this thread set the limit.

    Since version 3.8, threadpoolctl lets only the first thread that limited OpenBLAS change the limit.
    """
    for library in _blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries once: the search takes milliseconds."""
    import scipy.linalg  # noqa: F401  (loads a BLAS of its own)

    return ThreadpoolController().select(user_api="blas")
