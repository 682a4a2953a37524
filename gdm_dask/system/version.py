"""The version of the package, and everything besides the data that results depend on."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

VERSION = version("gdm_dask")
#: Numerical libraries: another version may give other bits.
LIBRARIES = ("numpy", "scipy", "numba")


@cache
def fingerprint() -> dict[str, str]:
    """Return the version, a hash of the package's code, and the versions of the numerical libraries."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return {"gdm_dask": VERSION, "code": digest.hexdigest()[:12], **{name: version(name) for name in LIBRARIES}}
