"""A fit from the data to the result: settings, the cutting plane, the choice of supports, groups, refit."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from gdm_dask.cutting_plane.algorithm import FitWork, solve
from gdm_dask.cutting_plane.certificate import certify as certify_choice
from gdm_dask.cutting_plane.checkpoint import Checkpoint
from gdm_dask.cutting_plane.matching import METHODS
from gdm_dask.cutting_plane.problem import Iteration, Problem, Settings
from gdm_dask.cutting_plane.selection import select
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.cutting_plane.weights import is_class_weight
from gdm_dask.cutting_plane.working_set import seen_by
from gdm_dask.engine import Engine
from gdm_dask.engine.data import Data, StoredData
from gdm_dask.errors import BadInput, MemoryLimitTooLow
from gdm_dask.features.block import Block
from gdm_dask.features.correlation import correlation_limit, correlations, mean_redundancy
from gdm_dask.features.groups import GroupPass, Pairs, prepare
from gdm_dask.features.moments import ALL_SAMPLES
from gdm_dask.features.passes import Pass, Together
from gdm_dask.features.ranking import ScorePass
from gdm_dask.store import FeatureStore
from gdm_dask.system.progress import work_clock
from gdm_dask.system.resources import default_memory_limit

logger = logging.getLogger(__name__)

#: Cuts for a wanted number of supports: cuts of a twentieth of them.
CUTS_PER_SELECTION = 20
#: Cuts that are taken from the working set of one read: with ten, 20 cuts select as well as with a read for each.
CUTS_PER_READ = 10
#: So many times the wanted supports enter, and the best of them are chosen; with fewer samples for each of them than
#: this, the choice would fit the noise (measured: it helps at 20, and harms at 10), and beyond so many it is not small.
OVERSHOOT = 3
POOL_PER_CUT = 4  # times the size of a cut
SAMPLES_PER_SUPPORT = 20
MAX_CHOSEN = 500
#: Size of a cut where no number of supports is wanted.
FREE_CUT_SIZE = 10
MAX_CUTS = 100


def choose_settings(
    n_features: int,
    n_samples: int,
    *,
    k: int | None = None,
    tau: float = 0.25,
    C: float = 50.0,
    cut_size: int | str = "auto",
    max_cuts: int | None = None,
    tol: float = 1e-3,
    matching: str = "greedy",
    intercept: bool = True,
) -> Settings:
    """Settings of the cutting plane for data of this size; see `GroupDiscoveryMachine` for the parameters.

    Examples
    --------
    >>> choose_settings(1000, 5000, k=100).n_supports, choose_settings(1000, 500, k=100).n_supports
    (300, 100)
    """
    wanted = k
    if k is not None and tau > 0 and k <= MAX_CHOSEN and n_samples >= SAMPLES_PER_SUPPORT * k:
        wanted = min(OVERSHOOT * k, n_features)  # not in FGM as published, nor with too few samples
    if cut_size == "auto":
        cut_size = min(FREE_CUT_SIZE, n_features) if wanted is None else -(-wanted // CUTS_PER_SELECTION)
    if max_cuts is None:
        max_cuts = MAX_CUTS if k is None else sys.maxsize
    cut_size = int(cut_size)
    return Settings(
        C=float(C),
        tau=float(tau),
        cut_size=cut_size,
        max_cuts=int(max_cuts),
        tol=float(tol),
        matching=matching,
        n_supports=wanted,
        intercept=intercept,
        cuts_per_read=CUTS_PER_READ,
        pool_per_cut=POOL_PER_CUT * cut_size if wanted != k else 0,
    )


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters of a `GroupDiscoveryMachine` that make no sense, by name."""
    real = (int, float, np.integer, np.floating)
    rules: list[tuple[str, Callable[[Any], bool], str]] = [
        ("n_features_to_select", lambda k: k is None or (_is(k) and k >= 1), "None or an integer >= 1"),
        ("tau", lambda tau: _is(tau, real) and 0 <= tau < 1, "in [0, 1)"),
        ("C", lambda C: _is(C, real) and 0 < C < np.inf, "a positive number"),
        ("cut_size", lambda size: size == "auto" or (_is(size) and size >= 1), "'auto' or an integer >= 1"),
        ("max_cuts", lambda most: most is None or (_is(most) and most >= 1), "None or an integer >= 1"),
        ("tol", lambda tol: _is(tol, real) and tol >= 0, "a number >= 0"),
        ("n_workers", lambda n: n is None or (_is(n) and n >= 1), "None or an integer >= 1"),
        ("fit_intercept", lambda has: isinstance(has, bool | np.bool_), "True or False"),
        ("certify", lambda has: isinstance(has, bool | np.bool_), "True or False"),
        ("matching", lambda matching: matching in METHODS, f"one of {', '.join(METHODS)}"),
        ("class_weight", is_class_weight, "None, 'balanced' or a dict of weights >= 0"),
    ]
    for name, is_valid, expected in rules:
        value = parameters[name]
        if not is_valid(value):
            raise BadInput(f"`{name}` must be {expected}, got {value!r}")
    if parameters["certify"] and parameters["n_features_to_select"] is None:
        raise BadInput("`certify` is about a number of features: set `n_features_to_select`")


def _is(value: Any, kinds: tuple[type, ...] = (int, np.integer)) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def settings_from(parameters: Mapping[str, Any], n_features: int, n_samples: int) -> Settings:
    """Settings for the parameters of a `GroupDiscoveryMachine` on data of this size."""
    check_parameters(parameters)
    k = parameters["n_features_to_select"]
    same = {name: parameters[name] for name in ("tau", "C", "cut_size", "max_cuts", "tol", "matching")}
    intercept = bool(parameters["fit_intercept"])
    return choose_settings(n_features, n_samples, k=None if k is None else int(k), intercept=intercept, **same)


def expected_supports(settings: Settings) -> int:
    """Supports that may enter, for the memory plan."""
    return settings.n_supports or settings.cut_size * min(settings.max_cuts, MAX_CUTS)


@contextmanager
def stored_data(
    store: FeatureStore, engine: Engine, limit: int | None, settings: Settings, n_problems: int = 1
) -> Iterator[Data]:
    """The features of a store, for so many problems that share the reads.

    The plan is logged, and refused where the memory does not suffice.
    """
    workers = engine.workers()
    if limit is None and any(worker.memory is None for worker in workers):
        limit = default_memory_limit()
    n_supports = expected_supports(settings)
    n_passes = -(-n_supports // (settings.cut_size * settings.cuts_per_read)) + 1
    blocks = store.manifest.blocks
    dense = None if store.is_sparse else store.largest_rows(n_supports)
    work = FitWork(
        [entry.nbytes for entry in blocks], [entry.stop - entry.start for entry in blocks],
        store.shape[1], n_supports, n_passes, dense, n_problems,
    )  # fmt: skip
    plan = work.plan(limit, engine.shares_memory)
    try:
        described = plan.describe(workers)
    except MemoryLimitTooLow:  # by a guess: see how much the rows take
        work = replace(work, support_bytes=store.largest_rows(n_supports))
        plan = work.plan(limit, engine.shares_memory)
        described = plan.describe(workers)
    logger.info("plan: %s", described)
    data = StoredData(store, engine, plan)
    try:
        yield data
    finally:
        data.close()


@dataclass(frozen=True)
class Fit:
    """The result of a fit; the attributes of `GroupDiscoveryMachine` describe what it has in common with it.

    Attributes
    ----------
    rows : Block
        Raw rows of the supports.
    rho : ndarray of shape (k, k)
        Their correlations.
    """

    support_features: np.ndarray
    weights: np.ndarray
    rows: Block
    rho: np.ndarray
    redundancy_rate: float
    groups: dict[int, np.ndarray] | None
    affiliations: pd.DataFrame | None
    coef: np.ndarray
    intercept: float
    lower_bounds: np.ndarray
    upper_bounds: np.ndarray
    gap: float
    certified_share: float | None
    stopped: str
    n_cuts: int
    history: list[Iteration]
    timings: dict[str, float]
    counts: dict[str, int]


def fit(
    data: Data,
    labels: np.ndarray,
    settings: Settings,
    k: int | None,
    groups: bool = True,
    checkpoint: Checkpoint | None = None,
    on_cut: Callable[[Iteration], None] | None = None,
    certify: bool = False,
    weights: np.ndarray | None = None,
) -> Fit:
    """Select supports, find their groups, and refit.

    Parameters
    ----------
    data : Data
    labels : ndarray of shape (n_samples,)
        -1 or +1.
    settings : Settings
    k : int or None
        How many supports to choose of those that enter.
    groups : bool
        Whether to find the groups, one more pass over the data.
    checkpoint : Checkpoint, optional
        Where to begin, if it exists, and where to save the state after each cut.
    on_cut : callable, optional
        Gets an `Iteration` after each cut.
    certify : bool
        Whether to prove what part of the best possible gain of `k` features the supports reach, some more passes.
    weights : ndarray of shape (n_samples,), float64, optional
        Of the samples, not negative: a sample of weight 2 counts as two.
    """
    problem = Problem(labels, settings, weights=weights)
    if checkpoint is not None and checkpoint.exists():
        checkpoint.load(problem, data)

    def after_cut(problem: Problem) -> None:
        if checkpoint is not None:
            checkpoint.save(problem)
        if on_cut is not None:
            on_cut(problem.iterations[-1])

    solve([problem], data, after_cut)
    seconds = {part: sum(it.seconds[part] for it in problem.iterations) for part in ("scores", "matching", "master")}
    clock = work_clock()
    supports, rows, feature_weights = select(problem, k)
    seconds["polish"] = work_clock() - clock
    rho = correlations(rows, rows)
    clock = work_clock()
    found, table = find_groups(data, supports, rows, settings.tau, problem) if groups else (None, None)
    seconds["groups"] = work_clock() - clock
    clock = work_clock()
    coef, intercept = refit(rows, labels)
    seconds["refit"] = work_clock() - clock
    certificate = None
    if certify and k is not None:
        clock = work_clock()
        problem.working_set = None  # makes room for the working sets of the certificate
        certificate = certify_choice(data, labels, settings, k, supports, rows, weights)
        seconds["certify"] = work_clock() - clock
    counts = asdict(data.counts)
    del counts["seconds"]
    if certificate is not None:
        counts["certify_passes"] = certificate.n_reads
    return Fit(
        support_features=supports,
        weights=feature_weights,
        rows=rows,
        rho=rho,
        redundancy_rate=mean_redundancy(rho),
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
    )


def find_groups(
    data: Data, supports: np.ndarray, rows: Block, tau: float, problem: Problem | None = None
) -> tuple[dict[int, np.ndarray], pd.DataFrame]:
    """The group of each support, and the table of pairs behind them; without a constraint each stands alone.

    The same read gives a `problem` that has stopped the bound of its last duals.
    """
    if tau == 0:
        pairs = Pairs(np.arange(len(supports)), supports, np.ones(len(supports)), 0, 0)
    else:
        fold = ALL_SAMPLES if problem is None else problem.fold
        scores = ScorePass([] if problem is None else [problem.last_question()], [fold])
        passes: list[Pass[Any, Any]] = [GroupPass(prepare(rows, correlation_limit(tau)), fold), scores]
        pairs, ranked = data.run(Together(passes, "groups"))
        if problem is not None:
            problem.verify(*seen_by(data, scores, ranked))
    data.counts.rows_scanned += pairs.n_scanned
    data.counts.rows_skipped += pairs.n_skipped
    groups = {
        int(support): np.sort(pairs.feature[pairs.support == position]) for position, support in enumerate(supports)
    }
    return groups, affiliations(pairs, supports)


def affiliations(pairs: Pairs, supports: np.ndarray) -> pd.DataFrame:
    """Correlated pairs as a table; the owner of a feature is the support that it correlates with most.

    Ties go to the stronger support.
    """
    order = np.lexsort((pairs.support, -np.abs(pairs.rho), pairs.feature))
    first = np.concatenate([[True], np.diff(pairs.feature[order]) != 0]) if len(order) else np.zeros(0, bool)
    owner = np.zeros(len(order), bool)
    owner[order[first]] = True
    table = pd.DataFrame(
        {"support": supports[pairs.support], "feature": pairs.feature, "correlation": pairs.rho, "owner": owner}
    )
    strength = np.lexsort((pairs.feature, pairs.support))
    return table.iloc[strength].reset_index(drop=True)
