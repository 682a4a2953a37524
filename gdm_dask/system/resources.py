"""Resources of the machine: memory and cores, byte sizes as text, and the share of a budget."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import IO

import numpy as np
import psutil

from gdm_dask.errors import BadInput

#: Errors besides ValueError for a broken ``.npy`` or ``.npz`` file: their headers are Python literals.
BAD_ARRAYS = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, TypeError, OverflowError, SyntaxError, TokenError,
    RuntimeError, MemoryError,
)  # fmt: skip
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@cache
def n_cores() -> int:
    """Return the number of cores this process may use, given its affinity and its container's quota."""
    from dask.system import cpu_count  # slow to import, and not needed for --help

    return int(cpu_count())


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory this process may use: the machine's, or the lowest limit of its control groups.

    `root` contains the folders ``proc`` and ``sys``.
    """
    limits = [psutil.virtual_memory().total]
    for folder, name in _memory_groups(root):
        with suppress(OSError, ValueError):  # no such file here, or "max"
            limits.append(int((folder / name).read_text()))
    return min(limits)


def _memory_groups(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders of this process's control groups, versions 1 and 2, and the file with the limit in each."""
    mounts = {"": (root / "sys/fs/cgroup", "memory.max"),
              "memory": (root / "sys/fs/cgroup/memory", "memory.limit_in_bytes")}  # fmt: skip
    yield from mounts.values()
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        controllers, path = line.split(":", 2)[1:]
        for controller in set(controllers.split(",")) & set(mounts):
            mount, name = mounts[controller]
            group = PurePosixPath(path.lstrip("/"))
            if ".." not in group.parts:  # a group outside this container
                yield from ((mount / folder, name) for folder in (group, *group.parents))


def is_in_memory(folder: Path) -> bool:
    """Return whether the files in a folder take memory and not a disk."""
    place = folder.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if place.is_relative_to(one.mountpoint)]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype in ("tmpfs", "ramfs") if mounts else False


def default_memory_limit() -> int:
    """Return a quarter of the machine's memory."""
    return machine_memory() // 4


def check_archive(file: IO[bytes], most: int, names: Collection[str] | None = None) -> None:
    """Raise ValueError if the arrays of an ``.npz`` file take more than `most` bytes, or other sizes than declared.

    `names` are the arrays to look at; by default all.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = [one for one in archive.infolist() if names is None or one.filename.removesuffix(".npy") in names]
            total = sum(member.file_size for member in members)
            if total > most:
                raise ValueError(f"its arrays take {format_bytes(total)}, more than {format_bytes(most)}")
            for member in members:
                with archive.open(member) as array:
                    shape, _, dtype = read_header(array)
                    if math.prod(shape) * dtype.itemsize != member.file_size - array.tell() or dtype.hasobject:
                        raise ValueError(f"{member.filename} is not an array of shape {shape}")
    except BAD_ARRAYS as error:
        raise ValueError(f"it is not a complete .npz file: {error}") from error


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the header of an array in NumPy's format: its shape, whether it is stored by columns, and its type."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


def parse_bytes(size: int | str) -> int:
    """Return the bytes given by a number or a text such as ``"2GB"`` or ``"512 MiB"``.

    Examples
    --------
    >>> parse_bytes("1.5 GB"), parse_bytes("64MiB"), parse_bytes(10)
    (1500000000, 67108864, 10)
    """
    if not isinstance(size, str):
        value = float(size)
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?\s*", size.lower())
        if match is None or match.group(2) not in _UNITS:
            raise BadInput(f"{size!r} is not a size: write 2GB, 512MB or 64MiB")
        value = float(match.group(1)) * _UNITS[match.group(2)]
    if not 1 <= value < float("inf"):
        raise BadInput(f"{size!r} is not a size: it must be at least one byte, and finite")
    return int(value)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "cut"), plural(2000, "cut")
    ('1 cut', '2,000 cuts')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_bytes(size: float) -> str:
    """Return a size as readable text.

    >>> format_bytes(1234567), format_bytes(12)
    ('1.23 MB', '12 B')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{int(size)} B"


def level(sizes: np.ndarray, budget: int) -> int:
    """Return the largest length, at least 1, such that lists of these sizes fit into a budget when cut at it.

    Examples
    --------
    >>> level(np.array([2, 3, 100]), 25), level(np.array([2, 3]), 25)
    (20, 3)
    """
    order = np.sort(np.asarray(sizes, np.int64))
    if len(order) == 0 or order.sum() <= budget:
        return int(order.max(initial=1))
    before = np.concatenate([[0], np.cumsum(order)[:-1]])
    room = (budget - before) // np.arange(len(order), 0, -1)  # for each of the remaining lists
    return max(1, int(room[np.argmax(room < order)]))
