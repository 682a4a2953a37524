"""A fit from data to result: settings, cutting plane, choice of supports, groups, refit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.certificate import certify as certify_choice
from gdm_dask.cutting_plane.checkpoint import Checkpoint
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.cutting_plane.linkage import Linker
from gdm_dask.cutting_plane.memory import planned_work
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.selection import select, warn_of_fewer
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.cutting_plane.trade_off import TradeOff, Trials
from gdm_dask.cutting_plane.working_set import seen_by
from gdm_dask.engine import Engine
from gdm_dask.engine.data import Data
from gdm_dask.features.block import Block
from gdm_dask.features.correlation import correlation_limit, correlations, mean_redundancy
from gdm_dask.features.groups import GroupPass, Pairs
from gdm_dask.features.measures import MEASURES, PEARSON
from gdm_dask.features.passes import Pass, Together
from gdm_dask.features.ranking import ALL_SAMPLES, ScorePass
from gdm_dask.settings.settings import Settings, expected_supports
from gdm_dask.store import FeatureStore
from gdm_dask.system.progress import work_clock
from gdm_dask.system.resources import default_memory_limit

logger = logging.getLogger(__name__)


@contextmanager
def stored_data(
    store: FeatureStore, engine: Engine, limit: int | None, settings: Settings, n_problems: int | None = None
) -> Iterator[Data]:
    """Open the features of a store for `n_problems` problems that share the reads, or as many as fit into memory.

    The default is the number of problems that the choice of C needs. The plan is logged; it is refused if there is no
    room for a single problem.
    """
    workers = engine.workers()
    if limit is None and any(worker.memory is None for worker in workers):
        limit = default_memory_limit()
    blocks = store.manifest.blocks
    sizes, rows = [entry.nbytes for entry in blocks], [entry.stop - entry.start for entry in blocks]
    dense = None if store.is_sparse else store.largest_rows(expected_supports(settings))
    work = planned_work(sizes, rows, store.shape[1], settings, dense, n_problems, store.bytes_ahead, store.value_bytes)
    plan = work.fitted(workers, limit, engine.shares_memory, store.largest_rows)
    logger.info("plan: %s", plan.describe())
    with Data.stored(store, engine, plan) as data:
        yield data


@dataclass(frozen=True)
class Fit:
    """Result of a fit. `GroupDiscoveryMachine` describes the attributes that both have."""

    support_features: np.ndarray
    weights: np.ndarray
    rows: Block  # raw rows of the supports
    rho: np.ndarray  # correlations of the supports, by the measure of the fit, (k, k)
    redundancy_rate: float
    groups: dict[int, np.ndarray] | None
    affiliations: pd.DataFrame | None
    coef: np.ndarray
    intercept: np.ndarray
    lower_bounds: np.ndarray
    upper_bounds: np.ndarray
    gap: float
    certified_share: float | None
    stopped: str
    n_cuts: int
    history: list[Iteration]
    timings: dict[str, float]
    counts: dict[str, int]
    trade_off: TradeOff


def fit(
    data: Data,
    targets: np.ndarray,
    settings: Settings,
    k: int | None,
    groups: bool = True,
    checkpoint: Checkpoint | None = None,
    on_cut: Callable[[Iteration], None] | None = None,
    certify: bool = False,
    weights: np.ndarray | None = None,
) -> Fit:
    """Select supports, `k` of those that enter, find their groups, and refit; weights of 2 count a sample twice.

    `targets` (K, n) are -1 or +1 for classes, standardised values for numbers. Groups take one more pass over the data.
    The fit starts from the state of the checkpoint if there is one, and saves its state there after each cut. `on_cut`
    is called with an `Iteration` after each cut. `certify` proves which share of the best possible gain of `k` features
    the supports reach, and takes more passes.
    """
    measure = MEASURES[settings.measure]
    if settings.tau > 0 and measure.check is not None:
        data.run(measure.check)
    clock = work_clock()
    problem, trade_off = search(data, targets, settings, checkpoint, on_cut, weights)
    seconds = {part: sum(it.seconds[part] for it in problem.iterations) for part in ("scores", "matching", "master")}
    if settings.rivals:  # the other problems took the remaining time
        seconds["folds"] = max(0.0, work_clock() - clock - sum(seconds.values()))
    clock = work_clock()
    supports, rows, feature_weights = select(problem, k)
    if k is not None:
        warn_of_fewer(problem, k)
    seconds["polish"] = work_clock() - clock
    searched, rows = rows, problem.unbalanced(rows)
    rho = measure.compare(rows, rows)
    linear = rho if measure is PEARSON else correlations(rows, rows)
    clock = work_clock()
    found, table = find_groups(data, supports, rows, settings, problem) if groups else (None, None)
    seconds["groups"] = work_clock() - clock
    clock = work_clock()
    most_C = problem.task.refit_limit(settings.n_effective, rows.n_rows)
    coef, intercept = refit(rows, targets, problem.task.refit, most_C, feature_weights)
    seconds["refit"] = work_clock() - clock
    certificate = None
    if certify and k is not None:
        clock = work_clock()
        problem.working_set = None  # make room for the working sets of the certificate
        certificate = certify_choice(data, targets, problem.settings, k, supports, searched, weights)
        seconds["certify"] = work_clock() - clock
    counts = asdict(data.counts)
    if certificate is not None:
        counts["certify_passes"] = certificate.n_reads
    return Fit(
        support_features=supports,
        weights=feature_weights,
        rows=rows,
        rho=rho,
        redundancy_rate=mean_redundancy(linear),
        groups=found,
        affiliations=table,
        coef=coef,
        intercept=intercept,
        lower_bounds=np.array(problem.lower_bounds),
        upper_bounds=np.array(problem.upper_bounds),
        gap=problem.gap,
        certified_share=None if certificate is None else certificate.share,
        stopped=problem.stopped,
        n_cuts=len(problem.cuts),
        history=problem.iterations,
        timings=seconds,
        counts=counts,
        trade_off=trade_off,
    )


def search(
    data: Data,
    targets: np.ndarray,
    settings: Settings,
    checkpoint: Checkpoint | None = None,
    on_cut: Callable[[Iteration], None] | None = None,
    weights: np.ndarray | None = None,
) -> tuple[Problem, TradeOff]:
    """Solve the problem with its own C, or with the C that folds choose; see `fit` for the parameters."""
    if settings.rivals:
        return Trials(data, targets, settings, checkpoint, on_cut, weights).search()
    problem = Problem(targets, settings, weights=weights)
    problem.on_cut = on_cut
    if checkpoint is not None:
        problem.on_cut = partial(_save, checkpoint, problem, on_cut)
        if checkpoint.exists():
            checkpoint.load({0: problem}, data)
    try:
        solve([problem], data)
    finally:
        problem.on_cut = None  # a cycle would keep the memory of a cancelled fit until it is collected
    return problem, TradeOff(settings.C_by, settings.C, settings.C_choice, is_balanced=settings.is_balanced)


def _save(
    checkpoint: Checkpoint, problem: Problem, on_cut: Callable[[Iteration], None] | None, iteration: Iteration
) -> None:
    checkpoint.save({0: problem})
    if on_cut is not None:
        on_cut(iteration)


def find_groups(
    data: Data, supports: np.ndarray, rows: Block, settings: Settings, problem: Problem | None = None
) -> tuple[dict[int, np.ndarray], pd.DataFrame]:
    """Find the group of each support and the table of pairs; without the constraint, each support is its own group.

    The same read gives a stopped `problem` the bound of its last duals.
    """
    if settings.tau == 0:
        pairs = Pairs(np.arange(len(supports)), supports, np.ones(len(supports)), 0, 0)
    else:
        fold = ALL_SAMPLES if problem is None else problem.sample_fold
        scores = ScorePass([], [fold]) if problem is None else ScorePass([problem.last_question()], [problem.fold])
        measure, limit = MEASURES[settings.measure], correlation_limit(settings.tau)
        passes: list[Pass[Any, Any]] = [GroupPass(measure.search(rows, limit), fold), scores]
        pairs, ranked = data.run(Together(passes, "groups"))
        if problem is not None:
            problem.verify(*seen_by(data, scores, ranked))
        if settings.linkage != "star":
            pairs = Linker(data, fold, measure, limit, supports, rows).link(pairs, settings.linkage)
    data.counts.rows_scanned += pairs.n_scanned
    data.counts.rows_skipped += pairs.n_skipped
    return groups_of(pairs, supports), affiliations(pairs, supports)


def groups_of(pairs: Pairs, supports: np.ndarray) -> dict[int, np.ndarray]:
    """Map each support to the sorted features of its group."""
    return {int(support): np.sort(pairs.feature[pairs.support == place]) for place, support in enumerate(supports)}


def affiliations(pairs: Pairs, supports: np.ndarray) -> pd.DataFrame:
    """Return the correlated pairs as a table; a feature is owned by the support that it correlates with most.

    Ties go to the stronger support. Correlations that rounding has put beyond 1 are shown as 1.
    """
    order = np.lexsort((pairs.support, -np.abs(pairs.rho), pairs.feature))
    first = np.concatenate([[True], np.diff(pairs.feature[order]) != 0]) if len(order) else np.zeros(0, bool)
    owner = np.zeros(len(order), bool)
    owner[order[first]] = True
    rho = np.clip(pairs.rho, -1.0, 1.0)
    table = pd.DataFrame(
        {"support": supports[pairs.support], "feature": pairs.feature, "correlation": rho, "owner": owner}
    )
    strength = np.lexsort((pairs.feature, pairs.support))
    return table.iloc[strength].reset_index(drop=True)
