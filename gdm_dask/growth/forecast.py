"""Forecast the cost of a fit: reads, bytes, memory, traffic and seconds, from the size of the data and measured rates.

Reads, tasks and memory come from the plan that the fit itself makes (`cutting_plane/memory.py`). Seconds are the
processor seconds of `Rates`, shared among the threads, or the network time if that is longer.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from math import ceil, log
from typing import Any

import numpy as np

from gdm_dask.cutting_plane.memory import PROCESS_BYTES, VALUE_BYTES, planned_work
from gdm_dask.cutting_plane.problem import LEAST_CUTS
from gdm_dask.cutting_plane.trade_off import n_problems_of
from gdm_dask.cutting_plane.working_set import ROWS_SHARE
from gdm_dask.engine import FAN_IN, Worker
from gdm_dask.features.passes import share_out
from gdm_dask.features.ranking import WORKING_VALUES
from gdm_dask.growth.rates import Rates, measure
from gdm_dask.growth.size import Size, limits, size_of, small_lookalike
from gdm_dask.settings.settings import Settings, choose_settings, expected_supports
from gdm_dask.store import FeatureStore

#: Bytes of a feature in a ranking, and of a value of a support sent to each worker by the search for groups.
RANKED_BYTES = 24
SUPPORT_BYTES = 24
#: Processor seconds and bytes of a scheduler and its client per task of a pass, merges included; measured by
#: `make bench-plan`.
SCHEDULED_SECONDS = 0.8e-3
SCHEDULED_BYTES = 9_000

_REMEDIES = {
    "workers": "reading, decoding and scoring on the workers: more workers or threads share it",
    "store": "the bandwidth from the store to the workers: more workers, a faster network, or the codec zstd",
    "network": "vectors and rows between driver and workers: a faster network; they grow with the samples alone",
    "scheduler": "scheduling: larger blocks make fewer tasks",
    "driver": "the driver, which works alone between reads: its time grows with the samples, whatever the workers",
    "start": "the start of Python and its libraries: a fit in a running process has none",
}


@dataclass(frozen=True)
class Cluster:
    """Where a fit will run."""

    n_workers: int  # processes on a cluster; 0 for the threads of one process, which hold blocks
    threads: int  # of each worker, or of the process
    memory: int  # bytes of each worker and of the driver, or of the process
    bandwidth: float | None = None  # bytes per second of each worker's network, also from the store; None: no limit

    @property
    def n_processes(self) -> int:
        """Number of processes that run tasks."""
        return max(1, self.n_workers)

    @property
    def n_threads(self) -> int:
        """Number of threads of all processes."""
        return self.n_processes * self.threads

    def workers(self) -> list[Worker]:
        """Return the processes, for the memory plan."""
        if not self.n_workers:
            return [Worker("this process", self.threads)]
        return [Worker(f"worker {number}", self.threads, self.memory) for number in range(self.n_workers)]

    def transfer(self, n_bytes: float) -> float:
        """Seconds to send bytes through the network of one worker."""
        return n_bytes / self.bandwidth if self.bandwidth and self.n_workers else 0.0


@dataclass(frozen=True)
class Forecast:
    """Forecast of a fit; bytes and seconds refer to the whole fit."""

    data: dict[str, Any]
    cluster: dict[str, Any]
    problems: int  # more than one if folds choose C
    at_once: int  # problems that may share a read
    reads: int  # of the data
    tasks: int  # of each read
    decoded_bytes: int  # read in all
    stored_bytes: int
    memory: dict[str, int]  # of a worker, of the scheduler and of the driver
    traffic: dict[str, int]  # bytes to the workers (vectors, supports), among workers (rows, rankings), to the driver
    seconds: dict[str, float]  # of each phase
    processor_seconds: float  # of all threads
    spent: dict[str, float]  # seconds by activity
    limits: list[str]  # that are exceeded, each with its remedy
    bottleneck: str  # the first limit, or the activity that takes most of the time

    @property
    def total_seconds(self) -> float:
        """Seconds of the whole fit."""
        return sum(self.seconds.values())

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return {**asdict(self), "total_seconds": self.total_seconds}


def plan_store(
    store: FeatureStore, k: int, cluster: Cluster, tau: float = 0.25, groups: bool = True, start: float | None = None
) -> Forecast:
    """Forecast a fit of `k` supports, with or without groups, on a store with targets.

    `start` are the seconds before the fit reads anything; by default the time this process has taken so far.
    """
    start = time.process_time() if start is None else start
    return _plan(store, size_of(store), k, cluster, tau, groups, start)


def plan_lookalike(
    name: str, scale: float, k: int, cluster: Cluster, tau: float = 0.25, groups: bool = True
) -> Forecast:
    """Forecast the fit of a lookalike at any scale from a small one; see `plan_store` for the parameters."""
    start = time.process_time()
    with small_lookalike(name, scale) as (store, size):
        return _plan(store, size, k, cluster, tau, groups, start)


def _plan(
    store: FeatureStore, size: Size, k: int, cluster: Cluster, tau: float, groups: bool, start: float
) -> Forecast:
    settings = choose_settings(
        size.n_features, size.n_samples, counts=size.class_counts, k=k, tau=tau, C="auto", task=size.task,
        n_outputs=size.n_outputs,
    )  # fmt: skip
    return forecast(size, settings, k, measure(store, settings, k, size.n_samples), cluster, groups, start)


def forecast(
    size: Size, settings: Settings, k: int, rates: Rates, cluster: Cluster, groups: bool = True, start: float = 0.0
) -> Forecast:
    """Forecast a fit; see `plan_store` for the parameters."""
    dense = None if size.is_sparse else size.largest_rows(expected_supports(settings))
    work = planned_work(
        size.block_bytes,
        size.block_rows,
        size.n_samples,
        settings,
        dense,
        bytes_ahead=size.bytes_ahead,
        value_bytes=size.value_bytes,
    )
    limit = None if cluster.n_workers else cluster.memory
    plan = work.fitted(cluster.workers(), limit, not cluster.n_workers, size.largest_rows)
    passes = Passes.of(size, settings, rates, k, plan.n_problems, finds=int(groups and settings.tau > 0))
    tasks = len(share_out(size.block_bytes, cluster.n_threads))
    memory = {
        "worker": plan.needed(cluster.workers()[0]),
        "scheduler": PROCESS_BYTES + tasks * SCHEDULED_BYTES + 2 * passes.vectors if cluster.n_workers else 0,
        "driver": plan.driver_bytes,
    }
    seconds, spent, used = _seconds(size, rates, cluster, passes, tasks, start)
    found = limits(size, cluster.memory, memory, not cluster.n_workers)
    facts = {name: getattr(size, name) for name in ("name", "n_features", "n_samples", "nnz", "decoded_bytes")}
    return Forecast(
        data={**facts, "stored_bytes": size.stored_bytes, "n_blocks": len(size.block_bytes)},
        cluster=asdict(cluster),
        problems=passes.n_problems,
        at_once=passes.at_once,
        reads=passes.n_passes,
        tasks=tasks,
        decoded_bytes=size.decoded_bytes * passes.n_passes,
        stored_bytes=size.stored_bytes * passes.n_passes,
        memory=memory,
        traffic=_traffic(settings, cluster, passes, tasks),
        seconds=seconds,
        processor_seconds=used,
        spent=spent,
        limits=found,
        bottleneck=found[0] if found else _REMEDIES[max(spent, key=lambda what: spent[what])],
    )


@dataclass(frozen=True)
class Passes:
    """Passes of a fit, and the rows they return."""

    n_problems: int
    at_once: int  # problems that share a read
    n_solved: float  # share of the problems that is solved: without room for all, only the winner on all samples
    n_turns: int  # of problems that share the reads
    n_reads: int  # score passes of each turn
    finds: int  # searches for groups
    n_values: float  # mean number of values in the rows that a score pass returns for one problem
    union: float  # rows for all problems, per row of one problem
    vector_bytes: int  # of the vectors of a problem
    support_bytes: int  # of the supports, as the search for groups sends them

    @classmethod
    def of(cls, size: Size, settings: Settings, rates: Rates, k: int, at_once: int, finds: int) -> Passes:
        """Return the passes of a fit with memory for `at_once` of its problems at a time."""
        lengths = np.maximum(1.0, rates.densities * size.n_samples)
        largest = max(settings.candidates, key=expected_supports)
        n_reads, n_values = working_rows(lengths, largest, rates.examined, size.n_features)
        n_problems, n_turns, n_solved = n_problems_of(settings), 1, 1.0
        if at_once < n_problems:
            on_folds = len(settings.candidates) * settings.n_folds
            n_turns, n_solved = ceil(on_folds / at_once) + 1, (on_folds + 1) / n_problems
        return cls(
            n_problems, min(at_once, n_problems), n_solved, n_turns, n_reads, finds, n_values, rates.union,
            8 * size.n_samples * size.n_outputs, round(SUPPORT_BYTES * k * lengths.mean()),
        )  # fmt: skip

    @property
    def n_scores(self) -> int:
        """Number of score passes."""
        return self.n_turns * self.n_reads

    @property
    def n_passes(self) -> int:
        """Number of all passes."""
        return self.n_scores + self.finds

    @property
    def vectors(self) -> int:
        """Bytes of the vectors of a score pass."""
        return self.at_once * self.vector_bytes

    @property
    def row_bytes(self) -> float:
        """Bytes of the rows that a score pass returns."""
        return VALUE_BYTES * self.union * self.n_values


def working_rows(lengths: np.ndarray, settings: Settings, examined: float, n_features: int) -> tuple[int, float]:
    """Reads for one problem, and values in the rows of each: with long rows, fewer rows are read and serve fewer cuts.

    Each read starts where the previous cuts ended in the ranking, whose first features are often the longest.
    """
    ends = np.cumsum(lengths)
    n_cuts, least = ceil(expected_supports(settings) / settings.cut_size), LEAST_CUTS * settings.cut_size
    n_reads, n_values, cuts = 0, 0.0, 0.0
    while cuts < n_cuts:
        place = min(int(cuts * examined), len(ends) - 1)
        before = ends[place] - lengths[place]
        n_fitting = int(np.searchsorted(ends, before + WORKING_VALUES, side="right")) - place
        if place + n_fitting == len(ends):
            n_fitting += int((before + WORKING_VALUES - ends[-1]) / lengths[-1])
        n_rows = min(settings.n_working, n_features, max(least, n_fitting))
        last = min(place + n_rows, len(ends))
        n_values += ends[last - 1] - before + (place + n_rows - last) * lengths[-1]
        cuts += min(settings.cuts_per_read, max(LEAST_CUTS, n_rows / max(1.0, examined)))
        n_reads += 1
    return n_reads, n_values / n_reads


def _levels(tasks: int) -> int:
    """Number of merges between a part of a result and the whole."""
    return ceil(log(max(2, tasks), FAN_IN))


def _traffic(settings: Settings, cluster: Cluster, passes: Passes, tasks: int) -> dict[str, int]:
    """Bytes sent through the network, except blocks."""
    if not cluster.n_workers:
        return {"to workers": 0, "among workers": 0, "to driver": 0}
    ranking = RANKED_BYTES * settings.n_working
    sent = passes.vectors * passes.n_scores + passes.finds * (passes.vector_bytes + passes.support_bytes)
    merged = passes.n_scores * (ROWS_SHARE + _levels(tasks) - 1) * passes.row_bytes + passes.n_passes * tasks * ranking
    return {
        "to workers": sent * (cluster.n_workers + 1),
        "among workers": round(merged),
        "to driver": round(passes.n_scores * passes.row_bytes + passes.n_passes * ranking),
    }


def _seconds(
    size: Size, rates: Rates, cluster: Cluster, passes: Passes, tasks: int, start: float
) -> tuple[dict[str, float], dict[str, float], float]:
    """Seconds of each phase, the same by activity, and processor seconds."""
    n_bytes, n_scores, decoded = size.decoded_bytes, passes.n_scores, rates.read - rates.held
    scored = passes.n_solved * passes.n_reads * (n_bytes * rates.held + passes.n_values * rates.rows)
    scores = n_bytes * n_scores * decoded + scored
    search = passes.finds * n_bytes * (rates.groups + decoded)
    driver = rates.driver(size.n_samples)

    waves = ceil(tasks / cluster.n_threads) * cluster.n_threads / tasks  # the last tasks leave threads idle
    fetched = cluster.transfer(size.stored_bytes / cluster.n_processes)
    hops = 2 + ceil(log(cluster.n_processes, 2))  # from the scheduler to a worker, then from worker to worker
    merged = cluster.transfer(passes.row_bytes) * (1 + _levels(tasks))
    scheduled = SCHEDULED_SECONDS * tasks if cluster.n_workers else 0.0

    spent = {"workers": 0.0, "store": 0.0, "network": 0.0, "scheduler": 0.0, "driver": 0.0, "start": start}
    seconds = {"start": start}
    for phase, times, work, carried in (
        ("scores", n_scores, scores, cluster.transfer(passes.vectors) * hops + merged),
        ("groups", passes.finds, search, cluster.transfer(passes.vector_bytes + passes.support_bytes) * hops),
    ):
        computed, read = work * waves / cluster.n_threads, times * fetched
        spent["workers" if computed >= read else "store"] += max(computed, read)
        spent["network"] += times * carried
        spent["scheduler"] += times * scheduled
        seconds[phase] = max(computed, read) + times * (carried + scheduled)
    for phase, used in driver.items():
        seconds[phase] = used / rates.cores
        spent["driver"] += seconds[phase]
    return seconds, spent, start + scores + search + sum(driver.values())
