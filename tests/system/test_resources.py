"""The memory that this process may use, as its control groups limit it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from gdm_dask.system.resources import is_in_memory, machine_memory

GB = 10**9


def fake_root(folder: Path, groups: str, limits: dict[str, str]) -> Path:
    """Make a tree with ``/proc/self/cgroup`` and limits below ``/sys/fs/cgroup``."""
    for name, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": text for name, text in limits.items()},
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


V1 = "4:memory:/slurm/job_7/step_0\n1:cpu,cpuacct:/slurm/job_7\n0::/"


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        # of systemd: the limit of the unit, of a slice above it, of the root
        ("0::/system.slice/gdm.service", {"system.slice/gdm.service/memory.max": "1000000000"}, GB),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "2000000000", "memory.max": "3000000000"}, 2 * GB),
        ("0::/", {"memory.max": "1000000000"}, GB),
        # of Slurm, version 1: the job's limit above the step
        (V1, {"memory/slurm/job_7/step_0/memory.limit_in_bytes": "9223372036854771712",
              "memory/slurm/job_7/memory.limit_in_bytes": "1000000000"}, GB),
        # a container that sees its own group as the root, but the host's path of it
        (V1, {"memory/memory.limit_in_bytes": "1000000000"}, GB),
        ("0::/../../elsewhere", {"memory.max": "1000000000", "elsewhere/memory.max": "5"}, GB),
    ],
)  # fmt: skip
def test_the_lowest_limit_on_the_way_to_the_root_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int
) -> None:
    assert machine_memory(fake_root(tmp_path, groups, limits)) == expected


def test_without_limits_it_is_all_of_the_machine(tmp_path: Path) -> None:
    assert machine_memory(tmp_path) == psutil.virtual_memory().total
    assert machine_memory(fake_root(tmp_path, "0::/a", {"a/memory.max": "max"})) == psutil.virtual_memory().total


def test_files_in_memory() -> None:
    kinds = {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}
    assert is_in_memory(Path("/dev/shm/any/folder")) == (kinds.get("/dev/shm") == "tmpfs")
    assert not is_in_memory(Path("/usr"))
