"""Where compiled kernels are kept when neither the package nor the user's cache folder can be written to.

numba refuses to load a kernel that it can keep nowhere. A service without a home, below a package that belongs to
root, has no such place.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def ensure_kernel_cache() -> None:
    """Give numba a private folder among the temporary ones where it would find none."""
    if any(map(_can_be_written, _usual_places())):
        return
    os.environ[VARIABLE] = str(_private_folder(Path(tempfile.gettempdir()) / f"gdm_dask-{os.getuid()}"))
    if "numba" in sys.modules:  # which has read the variable already
        sys.modules["numba"].config.CACHE_DIR = os.environ[VARIABLE]


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
