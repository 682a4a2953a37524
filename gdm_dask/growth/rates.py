"""Measure the speed of this computer on given data, in a few seconds, with the code of the fit itself.

- Passes over some blocks of the store: blocks that are read, and of blocks in memory; then a search for groups.
  Each pass serves all problems that share the reads of the fit.
- The driver's work between passes, on the features that the score pass ranks first, with some of the samples. For more
  samples, it is measured at two numbers of samples, because the driver's time grows with the samples and with nothing
  else.

Times are processor seconds, which other work on this computer changes little.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gdm_dask.cutting_plane.fit import Fit, fit
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.trade_off import Trials, n_problems_of
from gdm_dask.cutting_plane.working_set import ROWS_SHARE, Seen, score_pass, seen_by
from gdm_dask.engine import Engine, open_engine
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.groups import GroupPass, prepare
from gdm_dask.features.moments import with_samples
from gdm_dask.features.passes import Pass, Together, share_out
from gdm_dask.features.ranking import ScorePass
from gdm_dask.settings.settings import Settings
from gdm_dask.settings.tasks import task_of
from gdm_dask.store import FeatureStore
from gdm_dask.store.memory import MemoryStore
from gdm_dask.store.reader import StoreReader, drop_buffers
from gdm_dask.system.resources import n_cores

#: Decoded bytes of the blocks whose best features stand for the best of all, and of the blocks that are timed.
RANKED_BYTES = 1 << 30
TIMED_BYTES = 256 << 20
#: Maximum samples, and values in the rows of the best features, for measuring the driver's work; a second measurement
#: uses a part of these samples.
MOST_SAMPLES = 400_000
MOST_VALUES = 12_000_000
SMALLER = 0.25
#: Phases of the driver between passes.
DRIVER_PHASES = ("matching", "master", "folds", "polish", "refit")


@dataclass(frozen=True)
class Rates:
    """Processor seconds of the parts of a fit."""

    read: float  # score pass, per decoded byte of blocks that it reads
    held: float  # the same, of blocks in memory
    groups: float  # search for groups in addition to the last scores, per decoded byte in memory
    rows: float  # extra cost of a score pass that returns rows, per value in the rows of one problem
    union: float  # rows returned by a pass for all problems, per row of one problem
    fixed: dict[str, float]  # of each phase of the driver, whatever the samples
    per_sample: dict[str, float]  # of each phase of the driver
    cores: float  # that the driver's phases keep busy
    densities: np.ndarray  # share of the samples in which each of the best features occurs, best first
    examined: float  # features of a working set that a cut uses up

    def driver(self, n_samples: int) -> dict[str, float]:
        """Return the processor seconds of the driver's phases."""
        return {phase: seconds + self.per_sample[phase] * n_samples for phase, seconds in self.fixed.items()}


class HeldReader(StoreReader):
    """Reads each block once and keeps it in memory, for the threads of this process."""

    def __init__(self, store: FeatureStore) -> None:
        super().__init__(store, attempts=1)
        self._blocks: dict[int, Block] = {}

    def blocks(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield blocks one after the other."""
        for number in numbers:
            if number not in self._blocks:
                self._blocks[number] = self._store.load_block(number)
            yield self._blocks[number]


class SampledData(Data):
    """Some blocks of a store, spread evenly."""

    def __init__(self, store: FeatureStore, engine: Engine, n_bytes: int, reader: StoreReader) -> None:
        sizes = [entry.nbytes for entry in store.manifest.blocks]
        super().__init__(engine, store.shape, store.block_starts, reader, sizes)
        n_blocks = min(len(sizes), max(1, round(n_bytes * len(sizes) / max(1, sum(sizes)))))
        self._numbers = np.unique(np.linspace(0, len(sizes) - 1, n_blocks).round().astype(int))
        self.n_bytes = sum(sizes[number] for number in self._numbers)

    def _parts(self) -> list[list[int]]:
        shared = share_out([self._sizes[number] for number in self._numbers], self._engine.n_workers)
        return [self._numbers[part.start : part.stop].tolist() for part in shared]


def measure(store: FeatureStore, settings: Settings, k: int, n_samples: int) -> Rates:
    """Measure the rates on a store with targets, for a fit with these settings that chooses `k` supports.

    The fit may have more samples than the store.
    """
    targets = store.outputs()
    n_timed = TIMED_BYTES // (1 + settings.n_folds)  # each fold processes every block
    with open_engine("threads", n_cores()) as engine:
        reader = StoreReader(store, attempts=1)
        data = SampledData(store, engine, RANKED_BYTES, reader)
        problems = problems_of(data, targets, settings)
        pass_ = score_pass([problems[0].question()])
        ranked = data.run(pass_)
        (seen,) = seen_by(data, pass_, ranked)
        work = measure_driver(seen, targets, settings, k, n_samples)
        data = SampledData(store, engine, n_timed, reader)
        questions, folds = zip(*((problem.question(), problem.fold) for problem in problems), strict=True)
        with_rows = score_pass(questions, folds, min(1.0, ROWS_SHARE / data.n_parts))
        score = ScorePass([replace(one, n_values=0, n_least=0) for one in with_rows.questions], with_rows.folds)
        data.run(score)  # fills the buffers
        read, _ = timed(lambda: data.run(score))
        drop_buffers()
        data = SampledData(store, engine, n_timed, HeldReader(store))
        data.run(score)  # reads the blocks
        held, _ = timed(lambda: data.run(score))
        rows, brought = timed(lambda: data.run(with_rows))
        joined, _ = timed(lambda: next(seen_by(data, with_rows, brought)))  # other problems belong to the folds
        groups, _ = timed(lambda: data.run(_last_pass(problems[0], seen.rows.rows(work.supports))))
        n_bytes = max(1, data.n_bytes)
    wanted = with_rows.questions[0].n_wanted(brought.rankings[0])
    return Rates(
        read=read / n_bytes,
        held=held / n_bytes,
        groups=groups / n_bytes,
        rows=max(0.0, rows + joined - held) / max(1, brought.rankings[0].lengths[:wanted].sum()),
        union=max(1.0, len(brought.features) / max(1, wanted)),
        fixed=work.fixed,
        per_sample=work.per_sample,
        cores=work.cores,
        densities=ranked.rankings[0].lengths / store.shape[1],
        examined=work.examined,
    )


def problems_of(data: Data, targets: np.ndarray, settings: Settings) -> list[Problem]:
    """Return the problems that share the reads of a fit."""
    if not settings.rivals:
        return [Problem(targets, settings)]
    trials = Trials(data, targets, settings, None)
    return [trials.problem(number) for number in range(n_problems_of(settings))]


def _last_pass(problem: Problem, supports: Block) -> Together:
    """Return the pass that finds groups and the last bound."""
    tau = problem.settings.tau
    passes: list[Pass[Any, Any]] = [ScorePass([problem.last_question()])]
    return Together([*passes, GroupPass(prepare(supports, correlation_limit(tau)))] if tau > 0 else passes, "groups")


class DriverWork(NamedTuple):
    """The driver's work (see `Rates`), and the positions of the chosen supports among its features."""

    fixed: dict[str, float]
    per_sample: dict[str, float]
    cores: float
    examined: float
    supports: np.ndarray


def measure_driver(seen: Seen, targets: np.ndarray, settings: Settings, k: int, n_samples: int) -> DriverWork:
    """Measure the driver's phases in fits of a working set, with fewer and with more samples."""
    n_there = targets.shape[1]
    most = min(n_there, MOST_SAMPLES, MOST_VALUES * n_there // max(1, seen.rows.n_values))
    few = max(2, round(SMALLER * most))
    with suppress(BadInput):  # features that are rare in few samples do not qualify for numbers
        _fit_some(seen, targets, settings.candidates[-1], k, few)  # loads the kernels
    larger, cores, found = _fit_some(seen, targets, settings, k, most)
    slopes = smaller = dict.fromkeys(larger, 0.0)
    if most < n_samples:
        try:
            smaller, *_ = _fit_some(seen, targets, settings, k, few)
        except BadInput:
            few = 0
        slopes = {phase: max(0.0, (larger[phase] - smaller[phase]) / max(1, most - few)) for phase in larger}
    fixed = {phase: larger[phase] - slopes[phase] * most for phase in larger}
    reads = max(iteration.n_reads for iteration in found.history)
    examined = max(iteration.n_examined for iteration in found.history) * reads / len(found.history)
    return DriverWork(fixed, slopes, cores, examined, found.support_features)


def _fit_some(
    seen: Seen, targets: np.ndarray, settings: Settings, k: int, n_samples: int
) -> tuple[dict[str, float], float, Fit]:
    """Return the processor seconds of each driver phase with some samples, the number of busy cores, and the fit."""
    samples = some_samples(task_of(settings.task).strata(targets), n_samples)
    memory = MemoryStore(with_samples(seen.rows, samples).matrix().T)
    with open_engine("synchronous") as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer supports than wanted
        data, began = Data.in_memory(memory, engine), time.perf_counter()
        used, found = timed(lambda: fit(data, targets[:, samples], settings, k, groups=False))
        rate = used / (time.perf_counter() - began)
    phases = {phase: rate * found.timings[phase] for phase in DRIVER_PHASES if phase in found.timings}
    return phases, max(1.0, rate), found


def some_samples(strata: np.ndarray, n_samples: int) -> np.ndarray:
    """Choose `n_samples` samples, increasing, with about the same share of each class as in all."""
    by_class = np.argsort(strata, kind="stable")
    return np.sort(by_class[np.linspace(0, len(strata) - 1, n_samples).astype(int)])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of all threads for a piece of work, and its result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result
