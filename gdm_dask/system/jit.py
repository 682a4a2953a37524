"""How kernels are compiled: without the GIL, once on a machine, and then kept on disk. Whoever waits for it is told."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import numba
import numba.extending
from numba.core import event

from gdm_dask.system.progress import begin_compiling, end_compiling

logger = logging.getLogger(__name__)

# A compilation takes time for each statement, each call and each wrapper. No kernel is called by its address, and a
# kernel that allocates nothing has no references to count: without _nrt=False numba counts those to its arguments,
# atomically, in every call. (The option is old, but not documented: should a release of numba drop it, drop it here,
# and all is the same but slower.)
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_LEAN: Any = _OPTIONS | {"_nrt": False}
njit: Any = numba.njit  # its types know fewer options than it takes
#: Decorates code in terms of LLVM that kernels call; its own type counts the typing context among their arguments.
intrinsic: Any = numba.extending.intrinsic

#: Decorates kernels that allocate nothing: the usual ones.
kernel: Any = njit(cache=True, **_LEAN)
#: For kernels whose sums may be taken in any order, as the processor likes them best.
reassociating: Any = njit(cache=True, fastmath={"reassoc", "nsz"}, **_LEAN)
#: For kernels that allocate memory.
allocating: Any = njit(cache=True, **_OPTIONS)
#: For what only kernels call.
inner: Any = njit(no_cpython_wrapper=True, **_LEAN)
#: For what kernels call for every number: to call it takes longer than what it does.
inlined: Any = njit(no_cpython_wrapper=True, forceinline=True, **_LEAN)


class _Compilations(event.Listener):
    """Stops the clock while kernels are compiled, and says once in a process that they are, and not loaded.

    numba compiles one kernel at a time; those that it calls are compiled within its time.
    """

    def __init__(self) -> None:
        self._is_said = False
        self._depth = 0

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            begin_compiling()
        self._depth += 1
        module = event.data["dispatcher"].py_func.__module__ or ""  # what others make at run time may have none
        if self._is_said or not module.startswith("gdm_dask."):
            return
        self._is_said = True
        logger.info("compiling kernels: up to ten seconds, once on this machine for each kind of data")

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            end_compiling()


event.register("numba:compile", _Compilations())


# numba refuses to load a kernel that it can keep nowhere: neither beside the package nor in the user's cache folder. A
# service without a home, below a package that belongs to root, has no such place.
VARIABLE = "NUMBA_CACHE_DIR"


def ensure_kernel_cache() -> None:
    """Give numba a private folder among the temporary ones where it would find none."""
    if any(map(_can_be_written, _usual_places())):
        return
    os.environ[VARIABLE] = str(_private_folder(Path(tempfile.gettempdir()) / f"gdm_dask-{os.getuid()}"))
    numba.config.CACHE_DIR = os.environ[VARIABLE]  # type: ignore[attr-defined]


def _usual_places() -> list[Path]:
    """Those that numba looks at: the one it was told, beside the source, and the user's."""
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    given = os.environ.get(VARIABLE)
    places = [Path(__file__).parent / "__pycache__", Path(user) / "numba"]
    return [Path(given), *places] if given else places


def _can_be_written(folder: Path) -> bool:
    if folder.parts[0] == "~":  # a user without a home
        return False
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _private_folder(wanted: Path) -> Path:
    """A folder that nobody else can have put kernels into: they are run as they are found."""
    try:
        wanted.mkdir(mode=0o700, exist_ok=True)
        found = wanted.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="gdm_dask-"))
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return wanted if private else Path(tempfile.mkdtemp(prefix="gdm_dask-"))


ensure_kernel_cache()
