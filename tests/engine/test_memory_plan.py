"""The memory plan: refused with numbers if it is impossible, and kept otherwise."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.clusters import Started, family, small_data
from helpers.large_stores import large_store

from gdm_dask import GroupDiscoveryMachine, ingest
from gdm_dask.cutting_plane.memory import JOBS_PART, WORKER_BYTES, WORKER_PART, FitPlan, FitWork
from gdm_dask.engine import Worker
from gdm_dask.engine.data import Data
from gdm_dask.engine.local import LocalEngine
from gdm_dask.errors import MemoryLimitTooLow
from gdm_dask.features.passes import BYTES_PER_TASK, MANY_TASKS, MAX_TASKS, share_out
from gdm_dask.store.memory import MemoryStore

MIB = 1 << 20


def work(n_blocks: int = 10, size: int = 64 * MIB, **options) -> FitWork:
    facts = {"n_samples": 10_000, "n_supports": 100, "n_passes": 21} | options
    return FitWork([size] * n_blocks, [100_000] * n_blocks, **facts)


def threads(n_threads: int = 2) -> list[Worker]:
    return [Worker("this process", n_threads)]


def test_every_pass_reads_everything() -> None:
    line = work().plan(4 << 30, True).describe()
    assert line == "10 blocks, 671 MB decoded; limit 4.29 GB, about 21 passes read 14.1 GB"


@pytest.mark.parametrize(("n_threads", "n_processes"), [(1, 0), (4, 0), (1, 1), (1, 4), (4, 2)])
def test_planned_memory_is_within_the_limit(n_threads: int, n_processes: int) -> None:
    job = work(1000, bytes_ahead=MIB)
    workers = [Worker(str(number), n_threads) for number in range(n_processes)] or threads(n_threads)
    n_planned = 0
    for limit in range(1 << 30, 8 << 30, 100 * MIB):
        plan = job.plan(limit, n_processes == 0)
        try:
            assert plan.usable(workers) == workers
        except MemoryLimitTooLow:
            continue
        n_planned += 1
        assert job.driver_bytes + len(workers) * n_threads * job.task_bytes <= limit
    assert n_planned > 10


@pytest.mark.parametrize(
    ("n_blocks", "n_threads", "n_tasks"), [(3, 2, 3), (10, 2, 8), (40, 2, 10), (100, 2, 25), (100, 20, 80)]
)
def test_tasks_are_few_balanced_and_not_too_large(n_blocks: int, n_threads: int, n_tasks: int) -> None:
    parts = share_out([64 * MIB] * n_blocks, n_threads)
    assert len(parts) == n_tasks
    assert [number for numbers in parts for number in numbers] == list(range(n_blocks))
    sizes = [len(numbers) * 64 * MIB for numbers in parts]
    assert max(sizes) <= BYTES_PER_TASK
    assert max(sizes) - min(sizes) <= 64 * MIB


@pytest.mark.parametrize(("n_threads", "n_tasks"), [(2, MAX_TASKS), (5000, 5000)])
def test_tasks_follow_threads_and_not_blocks(n_threads: int, n_tasks: int) -> None:
    """A scheduler takes half a millisecond for each."""
    assert len(share_out([64 * MIB] * 100_000, n_threads)) == n_tasks


@pytest.mark.parametrize(
    ("n_threads", "n_tasks"), [(64, 256), (256, MANY_TASKS), (1000, MANY_TASKS), (1024, MANY_TASKS), (2000, 2000)]
)
def test_many_threads_get_fewer_tasks_each(n_threads: int, n_tasks: int) -> None:
    parts = share_out([MIB] * 10_000, n_threads)
    assert len(parts) == n_tasks
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_smallest_worker_is_left_out() -> None:
    plan = work(100).plan(None, False)
    workers = [Worker("large", 1, 8 << 30), Worker("small", 1, 1 << 30), Worker("tiny", 1, 100 * MIB)]
    assert [worker.name for worker in plan.usable(workers)] == ["large", "small"]


def test_workers_that_join_a_fit_do_not_exceed_its_limit() -> None:
    plan = work(8).plan(None, False)
    first, second, third = (Worker(name, 1) for name in ("first", "second", "third"))
    plan = replace(plan, limit=plan.driver_bytes + 2 * plan.needed(first))
    engine = FakeEngine([first, second])
    data = Data(engine, (8, 1), np.arange(9), MemoryStore(np.ones((1, 8))), plan.block_bytes, plan)  # type: ignore[arg-type]
    assert data.n_parts == 8
    engine.present = [first, second, third]
    assert data.n_parts == 8
    assert engine.left_out == {"third": "joined when the memory limit was used up"}
    engine.present = [second, third]
    assert data.n_parts == 4  # the third one stays out
    with pytest.raises(MemoryLimitTooLow, match=r"a memory limit of .* is too low"):
        plan.usable([first, second, third])


class FakeEngine:
    """An engine whose workers come and go."""

    def __init__(self, present: list[Worker]) -> None:
        self.present, self.left_out = present, dict[str, str]()

    def workers(self) -> list[Worker]:
        return [worker for worker in self.present if worker.name not in self.left_out]

    def leave_out(self, worker: Worker, why: str) -> None:
        self.left_out[worker.name] = why


def test_the_driver_of_a_job_counts_on_its_worker() -> None:
    plan = work(100, 4 * MIB).plan(None, False)
    tasks, driver = plan.needed(Worker("a", 1, memory=1)), plan.driver_bytes - WORKER_BYTES
    enough = int((tasks + driver) / JOBS_PART) + 2
    assert tasks < WORKER_PART * enough
    assert plan.fits(Worker("a", 1, enough, drivers=1))
    assert plan.fits(Worker("a", 1, enough, drivers=0))
    assert not plan.fits(Worker("a", 1, enough, drivers=2))
    assert not plan.fits(Worker("a", 1, enough - 4, drivers=1))
    hosts, other = Worker("a", 1, enough - 4, drivers=1), Worker("b", 1, enough)
    assert plan.usable([hosts, other]) == [other]  # the tasks go to the other one
    with pytest.raises(MemoryLimitTooLow, match="a worker's memory limit of"):
        plan.usable([hosts])
    with pytest.raises(MemoryLimitTooLow, match="a worker's memory limit of"):
        plan.usable([Worker("a", 1, int(driver / JOBS_PART), drivers=1), other])  # too small for the driver alone


def test_many_samples_with_rare_features_fit_after_a_look_at_the_rows(tmp_path: Path) -> None:
    """The guess gives each of the supports a quarter of a vector over all samples."""
    rng, n_samples, limit = np.random.default_rng(0), 200_000, 800_000_000
    X = sp.random_array((n_samples, 400), density=2e-3, format="csr", rng=rng)
    store = ingest(X, tmp_path / "rare.zarr", np.arange(n_samples) % 2)
    sizes = [entry.nbytes for entry in store.manifest.blocks]
    guessed = FitWork(sizes, [400] * len(sizes), n_samples, 300, 21)
    with pytest.raises(MemoryLimitTooLow):
        guessed.plan(limit, True).usable(threads())
    replace(guessed, support_bytes=store.largest_rows(300)).plan(limit, True).usable(threads())
    machine = GroupDiscoveryMachine(100, memory_limit=limit, groups=False, scheduler="threads").fit(store)
    assert len(machine.support_features_) == 100


@pytest.mark.parametrize("rows", [1_000, 10**9])
def test_a_refusal_names_the_least_limit_that_is_accepted(rows: int) -> None:
    """A look at the rows may find more bytes than the guess, which was enough for higher limits."""
    guessed = FitWork([4 * MIB] * 8, [400] * 8, 100_000, 300, 21)

    def plan(limit: int) -> FitPlan:
        return guessed.fitted(threads(), limit, True, lambda _: rows)

    refused = plan(1)
    least = refused.driver_bytes + sum(map(refused.needed, threads()))
    plan(least).usable(threads())
    with pytest.raises(MemoryLimitTooLow, match=r"a memory limit of .* is too low"):
        plan(least - 1).usable(threads())


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
        work().plan(200_000_000, True).usable(threads())


def test_a_workers_own_limit_is_kept_with_room_to_spare() -> None:
    plan = work(100).plan(None, False)
    needed = plan.needed(Worker("a", 2, memory=1))
    assert 2 * work(100).task_bytes + WORKER_BYTES == needed
    enough = int(needed / WORKER_PART)
    assert plan.fits(Worker("a", 2, enough + 2))
    assert not plan.fits(Worker("a", 2, enough - 2))
    with pytest.raises(MemoryLimitTooLow, match=r"a worker's memory limit of 210 MB .* Start workers with a higher"):
        plan.usable([Worker("a", 2, 200 * MIB)])


def test_a_fit_is_refused_before_its_first_task(tmp_path: Path, monkeypatch) -> None:
    X, y = small_data()
    store = ingest(X, tmp_path / "data.zarr", y)
    monkeypatch.setattr(LocalEngine, "map", None)
    with pytest.raises(MemoryLimitTooLow, match="a memory limit of 100 MB is too low"):
        GroupDiscoveryMachine(memory_limit="100MB").fit(store)


FIT = """
import sys
from gdm_dask import GroupDiscoveryMachine, open_store
machine = GroupDiscoveryMachine(
    4, cut_size=4, max_cuts=1, C=10.0, scheduler=sys.argv[2], n_workers=2, memory_limit=int(sys.argv[3])
).fit(open_store(sys.argv[1]))
print("read", machine.counts_["bytes_read"], machine.counts_["passes"], flush=True)
"""


class Watch(threading.Thread):
    """Return the peak memory of a process and its children together (proportional set size)."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.01):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        total = 0
        try:
            for pid in family(self._pid):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += 1024 * int(line.split()[1])
        except OSError:
            return 0
        return total

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.peak


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> None:
    """Compile the kernels first: compiling takes memory, too, but the limit is about the work."""
    folder = tmp_path_factory.mktemp("compiled")
    small = large_store(folder / "small.zarr", n_blocks=2, block_bytes=8 * MIB)
    fit = Started([sys.executable, "-c", FIT, small.url, "threads", "2000000000"], folder / "log")
    assert fit.wait() == 0, fit.text


@pytest.mark.slow
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


def test_rows_of_ones_need_a_third_of_the_memory() -> None:
    """19 million samples of the size of kdd2010 fit into 8 GB."""
    full = work(80, n_samples=19_264_097, n_supports=300, support_bytes=800_000_000)
    with pytest.raises(MemoryLimitTooLow):
        full.plan(8 * 10**9, True).usable(threads(2))
    replace(full, value_bytes=4).plan(8 * 10**9, True).usable(threads(2))
