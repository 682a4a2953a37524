"""The memory plan: refused with numbers where it cannot be kept, and kept where it is given."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from clusters import Started, small_data
from large_stores import large_store

from gdm_dask import GroupDiscoveryMachine, ingest
from gdm_dask.errors import MemoryLimitTooLow
from gdm_dask.memory_plan import WORKER_PART, Work, plan_fit
from gdm_dask.store.block import Block
from gdm_dask.worker import BlockCache

MIB = 1 << 20


def work(n_blocks: int = 10, size: int = 64 * MIB, holders: int = 1, **options) -> Work:
    shares = [list(range(first, n_blocks, holders)) for first in range(holders)]
    facts = {"n_samples": 10_000, "n_supports": 100, "n_passes": 21} | options
    return Work([size] * n_blocks, [size // 100] * n_blocks, shares=shares, **facts)


def test_a_store_that_fits_is_read_once() -> None:
    plan = plan_fit(work(), 2, 0, 4 << 30, None)
    assert plan.kept_bytes == plan.read_bytes == 640 * MIB
    assert "10 blocks, 671 MB decoded" in str(plan)
    assert "all of it stays in memory after the first pass, about 21 passes read 671 MB" in str(plan)


def test_a_store_that_does_not_fit_is_read_again() -> None:
    plan = plan_fit(work(100), 2, 0, 4 << 30, None)
    assert 0 < plan.kept_bytes < plan.n_bytes
    assert plan.kept_bytes % (64 * MIB) == 0  # whole blocks
    assert plan.read_bytes == plan.n_bytes + 20 * (plan.n_bytes - plan.kept_bytes)
    assert "% of it stay in memory" in str(plan)


def test_blocks_are_kept_whole_in_each_process() -> None:
    two = plan_fit(work(7, holders=2), 2, 2, None, 1 << 30)
    assert two.kept_bytes <= 2 * two.cache_bytes
    assert two.kept_bytes % (64 * MIB) == 0


@pytest.mark.parametrize(("n_workers", "n_processes"), [(1, 0), (4, 0), (1, 1), (4, 4), (8, 2)])
def test_what_is_planned_is_within_the_limit(n_workers: int, n_processes: int) -> None:
    job = work(1000, holders=max(1, n_processes))
    for limit in range(1 << 30, 8 << 30, 100 * MIB):
        try:
            plan = plan_fit(job, n_workers, n_processes, limit, None)
        except MemoryLimitTooLow:
            continue
        tasks = n_workers * job.task_bytes
        assert job.driver_bytes + tasks + plan.n_processes * plan.cache_bytes <= limit


def test_many_samples_with_rare_features_fit_after_a_look_at_the_rows(tmp_path: Path) -> None:
    """The guess gives each of the supports a quarter of a vector over all samples."""
    rng, n_samples, limit = np.random.default_rng(0), 200_000, 800_000_000
    X = sp.random_array((n_samples, 400), density=2e-3, format="csr", rng=rng)
    store = ingest(X, tmp_path / "rare.zarr", np.arange(n_samples) % 2)
    sizes = [entry.nbytes for entry in store.manifest.blocks]
    guessed = Work(sizes, [400] * len(sizes), n_samples, 300, 21, [list(range(len(sizes)))])
    with pytest.raises(MemoryLimitTooLow):
        plan_fit(guessed, 2, 0, limit, None)
    plan_fit(replace(guessed, support_bytes=store.largest_rows(300)), 2, 0, limit, None)
    machine = GroupDiscoveryMachine(100, memory_limit=limit, groups=False, scheduler="threads").fit(store)
    assert len(machine.support_features_) == 100


@pytest.mark.parametrize("values", [1.0, 0.1])
def test_the_largest_rows_are_those_with_most_nonzeros(tmp_path: Path, values: float) -> None:
    X = (np.random.default_rng(0).random((40, 30)) < np.linspace(0.01, 0.6, 30)) * values
    X[:2, 0] = values, 0.0
    store = ingest(sp.csr_array(X), tmp_path / "x.zarr", np.arange(40) % 2, block_bytes=200)
    assert store.n_blocks > 1
    most = np.sort(np.count_nonzero(X, axis=0))[-7:].sum()
    assert store.largest_rows(7) == most * (4 if values == 1.0 else 12)
    assert store.largest_rows(1000) == np.count_nonzero(X) * (4 if values == 1.0 else 12)
    assert ingest(X, tmp_path / "dense.zarr", np.arange(40) % 2).largest_rows(7) == 7 * 40 * 8


def test_an_impossible_plan_is_refused_with_numbers_and_remedy() -> None:
    with pytest.raises(
        MemoryLimitTooLow,
        match=r"limit of 200 MB is too low: \d+ MB are needed for 2 tasks at once \(the largest block takes 67\.1 MB.*"
        "Raise --memory-limit, use fewer workers or the threads scheduler, or ingest with a smaller --block-size",
    ):
        plan_fit(work(), 2, 0, 200_000_000, None)


def test_a_workers_own_limit_is_kept_with_room_to_spare() -> None:
    job = work(100, holders=2)
    plan = plan_fit(job, 4, 2, None, 2 << 30)
    assert plan.cache_bytes + 2 * job.task_bytes < WORKER_PART * (2 << 30)
    with pytest.raises(MemoryLimitTooLow, match="a worker's memory limit of 210 MB"):
        plan_fit(job, 4, 2, None, 200 * MIB)


def test_a_fit_is_refused_before_its_first_task(tmp_path: Path) -> None:
    X, y = small_data()
    store = ingest(X, tmp_path / "data.zarr", y)
    began = time.monotonic()
    with pytest.raises(MemoryLimitTooLow, match="a memory limit of 100 MB is too low"):
        GroupDiscoveryMachine(memory_limit="100MB").fit(store)
    assert time.monotonic() - began < 1.0


def block(number: int, rows: int = 10) -> Block:
    return Block(number * rows, (number + 1) * rows, 3, np.zeros((rows, 3)), np.zeros(rows), np.zeros(rows))


def test_the_cache_keeps_what_is_used_and_lets_go_of_what_has_moved() -> None:
    cache, size = BlockCache(), block(0).nbytes
    for number in range(4):
        cache.put(("a", number), block(number), "pass 1", 3 * size)
    assert [number for number in range(4) if cache.get(("a", number), "pass 1")] == [0, 1, 2]
    for passed in ("pass 2", "pass 3"):  # block 0 has moved to another worker
        for number in (1, 2, 3):
            if cache.get(("a", number), passed) is None:
                cache.put(("a", number), block(number), passed, 3 * size)
    assert [number for number in range(4) if cache.get(("a", number), "pass 4")] == [1, 2, 3]
    cache.put(("b", 0), block(0), "other pass", 3 * size)  # another store makes room
    assert cache.get(("b", 0), "other pass")
    assert not cache.get(("a", 1), "pass 5")
    cache.forget("b")
    assert not cache.get(("b", 0), "other pass")
    assert cache._nbytes == 0


FIT = """
import sys
from gdm_dask import GroupDiscoveryMachine, open_store
machine = GroupDiscoveryMachine(
    4, cut_size=4, max_cuts=1, C=10.0, scheduler=sys.argv[2], n_workers=2, memory_limit=int(sys.argv[3])
).fit(open_store(sys.argv[1]))
print("read", machine.counts_["bytes_read"], machine.counts_["passes"], flush=True)
"""


class Watch(threading.Thread):
    """The most memory that a process and all that it started took together (proportional set size)."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.01):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        total = 0
        try:
            for process in (self._process, *self._process.children(recursive=True)):
                for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += 1024 * int(line.split()[1])
        except (psutil.Error, OSError):
            return 0
        return total

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.peak


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> None:
    """Kernels are compiled at their first use, which takes memory of its own; the limit is about the work."""
    folder = tmp_path_factory.mktemp("compiled")
    small = large_store(folder / "small.zarr", n_blocks=2, block_bytes=8 * MIB)
    fit = Started([sys.executable, "-c", FIT, small.url, "threads", "2000000000"], folder / "log")
    assert fit.wait() == 0, fit.text


@pytest.mark.parametrize(("scheduler", "limit"), [("threads", 400_000_000), ("processes", 640_000_000)])
@pytest.mark.usefixtures("compiled")
def test_all_processes_stay_below_the_limit(tmp_path: Path, scheduler: str, limit: int) -> None:
    large = large_store(tmp_path / "large.zarr", n_blocks=5 * limit // (8 * MIB) + 2, block_bytes=8 * MIB)
    assert large.nbytes > 5 * limit
    fit = Started([sys.executable, "-c", FIT, large.url, scheduler, str(limit)], tmp_path / "log", fresh=True)
    watch = Watch(fit.pid)
    watch.start()
    code = fit.wait()
    peak = watch.end()
    assert code == 0, fit.text
    n_read, n_passes = (int(word) for word in fit.text.split("read ")[-1].split())
    assert (n_passes - 1) * large.nbytes < n_read <= n_passes * large.nbytes  # hardly any of it is kept
    assert 200_000_000 < peak < limit
