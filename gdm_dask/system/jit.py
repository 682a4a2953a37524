"""Compilation of kernels: without the GIL, once per machine, cached on disk. A log line announces the wait."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import numba
import numba.extending
from numba.core import event

from gdm_dask.errors import GdmError
from gdm_dask.system.locks import user_folder
from gdm_dask.system.progress import set_compiling

logger = logging.getLogger(__name__)

# Compilation time grows with each statement, call and wrapper. No kernel is called by its address, and a kernel that
# allocates nothing has no references to count. Without _nrt=False, numba counts the references to its arguments,
# atomically, in every call. (The option is old but not documented. If a release of numba drops it, drop it here: the
# results stay the same, only slower.)
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_LEAN: Any = _OPTIONS | {"_nrt": False}
njit: Any = numba.njit  # the type hints of numba lack some options
#: Decorates LLVM code called by kernels; the type hints of numba count the typing context among the arguments.
intrinsic: Any = numba.extending.intrinsic

#: Decorates kernels that allocate nothing: most of them.
kernel: Any = njit(cache=True, **_LEAN)
#: For kernels that may sum in any order, so the compiler can choose the fastest.
reassociating: Any = njit(cache=True, fastmath={"reassoc", "nsz"}, **_LEAN)
#: For kernels that allocate memory.
allocating: Any = njit(cache=True, **_OPTIONS)
#: For functions called only by kernels.
inner: Any = njit(no_cpython_wrapper=True, **_LEAN)
#: For functions called for every number: the call would take longer than the work.
inlined: Any = njit(no_cpython_wrapper=True, forceinline=True, **_LEAN)


class _Compilations(event.Listener):
    """Stop the work clock during compilation, and log once per process that kernels are being compiled.

    numba compiles one kernel at a time; the time of a kernel includes the kernels that it calls.
    """

    def __init__(self) -> None:
        self._is_said = False
        self._depth = 0

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            set_compiling(True)
        self._depth += 1
        module = event.data["dispatcher"].py_func.__module__ or ""  # functions created at run time may have no module
        if self._is_said or not module.startswith("gdm_dask."):
            return
        self._is_said = True
        logger.info("compiling kernels: up to ten seconds, once on this machine for each kind of data")

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            set_compiling(False)


event.register("numba:compile", _Compilations())


# numba refuses to load a cached kernel if it can write neither beside the package nor to the user's cache folder. This
# happens for a service without a home directory that uses a package owned by root.
VARIABLE = "NUMBA_CACHE_DIR"


def ensure_kernel_cache() -> None:
    """Point numba to a private temporary folder if it would find no cache folder."""
    if any(map(_can_be_written, _usual_places())):
        return
    try:
        folder = str(user_folder("kernels"))
    except GdmError:  # cached kernels are run unchecked, so nobody else may have put them there
        folder = tempfile.mkdtemp(prefix="gdm_dask-")
    os.environ[VARIABLE] = folder
    numba.config.CACHE_DIR = os.environ[VARIABLE]  # type: ignore[attr-defined]


def _usual_places() -> list[Path]:
    """Return the cache folders tried by numba: the configured one, beside the source, and the user's."""
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    given = os.environ.get(VARIABLE)
    places = [Path(__file__).parent / "__pycache__", Path(user) / "numba"]
    return [Path(given), *places] if given else places


def _can_be_written(folder: Path) -> bool:
    if folder.parts[0] == "~":  # a user without a home directory
        return False
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


ensure_kernel_cache()
