"""Algorithm 1: add the most violated cut, solve the master problem, repeat; with valid bounds at every step.

With alpha of the master problem over the cuts so far,

- its optimum is a *lower* bound on (4), because it has fewer constraints;
- ``1/2 bound(alpha) + 1/(2C) ||alpha||^2`` is an *upper* bound, where ``bound`` is a valid bound on (6), not the value
  that greedy matching found.

Both are about (4) over the features that no support speaks for. All cuts lie in that set; as supports are found the
set shrinks, the optimum of (4) over it can only fall, and bounds from above that were found earlier stay valid.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from gdm_dask.correlation import correlation_limit
from gdm_dask.machine_state import Iteration, Machine, Settings
from gdm_dask.master import Master
from gdm_dask.matching import METHODS, NEGLIGIBLE, Candidates, Cut, RankingExhaustedError, Spoken
from gdm_dask.passes import Passes
from gdm_dask.pool import Pool
from gdm_dask.ranking import Ranking
from gdm_dask.store.block import Block

logger = logging.getLogger(__name__)

#: Features ranked for a cut of B: this many times B beyond those that are spoken for already, and at least MIN_RANKED.
RANKED_PER_FEATURE = 8
MIN_RANKED = 256

#: Relative duality gap of the last master problem; those before it are solved as far as the cutting plane's gap asks.
MASTER_TOL = 1e-6


def new_machine(y: np.ndarray, settings: Settings) -> Machine:
    """A machine before its first cut, for labels -1 and +1."""
    spoken = Spoken(correlation_limit(settings.tau))
    return Machine(spoken, Master(y, settings.C, MASTER_TOL), pool=Pool(settings.pool_per_cut))


def run_cutting_plane(
    machine: Machine, passes: Passes, settings: Settings, callback: Callable[[Machine], None] | None = None
) -> Machine:
    """Find cuts until the bounds meet, the cuts repeat, or there are enough.

    Parameters
    ----------
    machine : Machine
        Where to begin: a new one, or one that was stopped.
    passes : Passes
        The data.
    settings : Settings
    callback : callable, optional
        Gets the machine after each cut; its last iteration tells what was found.

    Returns
    -------
    Machine
        The same, when it has stopped.
    """
    machine.stopped = _enough(machine, settings)
    while not machine.stopped:
        iteration = step(machine, passes, settings)
        if iteration is None:
            break
        machine.iterations.append(iteration)
        logger.debug("%s", iteration)
        if callback is not None:
            callback(machine)
        machine.stopped = _enough(machine, settings)
    if settings.n_supports is None and machine.cuts:
        _finish(machine)
    return machine


def _finish(machine: Machine) -> None:
    """Solve the last master problem in full: its weights are the result."""
    machine.solution = machine.master.solve(MASTER_TOL)
    machine.lower_bounds[-1] = max(machine.lower_bounds[-1], machine.solution.lower)


def _enough(machine: Machine, settings: Settings) -> str:
    if settings.n_supports is not None and len(machine.spoken.features) >= settings.n_supports:
        return "enough supports"
    return "max_cuts" if len(machine.cuts) >= settings.max_cuts else ""


def step(machine: Machine, passes: Passes, settings: Settings) -> Iteration | None:
    """One iteration; None (and `machine.stopped`) where there is no further cut to add."""
    alpha = machine.master.alpha
    clock = time.perf_counter()
    read_before = passes.counts.bytes_read
    seconds = {}
    cut, ranking, seconds["scores"] = _find_cut(machine, passes, settings)
    seconds["matching"] = time.perf_counter() - clock - seconds["scores"]
    upper = 0.5 * cut.bound + float(alpha @ alpha) / (2.0 * settings.C)
    upper = min([upper, *machine.upper_bounds[-1:]])
    if machine.upper_bounds:  # the bound belongs to the alpha of the cuts so far
        machine.upper_bounds[-1] = upper
    machine.stopped = _reason_to_stop(machine, cut, settings)
    if machine.stopped:
        return None
    if settings.n_supports is not None:
        cut = _cut_off(cut, settings.n_supports - len(machine.spoken.features))
    clock = time.perf_counter()
    _add_cut(machine, cut)
    machine.solution = machine.master.solve(_master_tol(machine.gap, settings.tol))
    seconds["master"] = time.perf_counter() - clock
    machine.lower_bounds.append(max([machine.solution.lower, *machine.lower_bounds[-1:]]))
    machine.upper_bounds.append(upper)
    return Iteration(
        number=len(machine.cuts),
        cut=cut.features,
        n_new=len(cut.new),
        n_supports=len(machine.spoken.features),
        best_score=float(abs(ranking.scores[0])),
        lower=machine.lower_bounds[-1],
        upper=upper,
        gap=machine.gap,
        n_ranked=len(ranking.features),
        n_examined=cut.n_examined,
        bytes_read=passes.counts.bytes_read - read_before,
        seconds=seconds,
        scores=_scores_of(cut.features, ranking),
    )


def _find_cut(machine: Machine, passes: Passes, settings: Settings) -> tuple[Cut, Ranking, float]:
    """Score pass and matching: the cut, the ranking it comes from, seconds of the pass."""
    spoken, alpha = machine.spoken, machine.master.alpha
    vector = (alpha * machine.master.y)[None]
    floor = NEGLIGIBLE * float(np.linalg.norm(alpha))
    wanted = max(MIN_RANKED, RANKED_PER_FEATURE * settings.cut_size)
    seconds = 0.0
    known = np.array([*spoken.features, *spoken.affiliated], np.int64)
    while True:
        clock = time.perf_counter()
        ranking = passes.top(vector, wanted + len(known), known)[0]
        seconds += time.perf_counter() - clock
        try:
            candidates = Candidates(ranking, spoken, machine.pool.recording(passes.rows), floor)
            cut = METHODS[settings.matching](candidates, settings.cut_size, settings.n_supports is not None)
            return cut, ranking, seconds
        except RankingExhaustedError:  # large groups crowd the ranking: look further down
            wanted *= 8


def _scores_of(features: list[int], ranking: Ranking) -> list[float]:
    scores = dict(zip(ranking.features.tolist(), ranking.scores.tolist(), strict=True))
    return [scores[feature] for feature in features]


def _reason_to_stop(machine: Machine, cut: Cut, settings: Settings) -> str:
    if not cut.features:
        return "nothing left"
    if settings.n_supports is None and machine.cuts and machine.gap <= settings.tol:
        return "tolerance"
    if set(cut.features) in [set(earlier) for earlier in machine.cuts]:
        return "repeated cut"
    return ""


def _cut_off(cut: Cut, n_new: int) -> Cut:
    """A cut with no more than `n_new` new supports: those that rank lowest go."""
    if len(cut.new) <= n_new:
        return cut
    gone = set(cut.new[n_new:])
    rows: Block | None = cut.new_rows.rows(np.arange(n_new)) if cut.new_rows is not None else None
    features = [feature for feature in cut.features if feature not in gone]
    return Cut(features, cut.new[:n_new], rows, cut.value, cut.bound, cut.n_examined)


def _add_cut(machine: Machine, cut: Cut) -> None:
    if cut.new_rows is not None:
        machine.spoken.add(cut.new, cut.new_rows)
    position = {feature: k for k, feature in enumerate(machine.spoken.features)}
    rows, means, norms = _master_rows(cut.new_rows, len(machine.master.y))
    machine.master.add_cut(np.array([position[feature] for feature in cut.features]), rows, means, norms)
    machine.cuts.append(cut.features)


def restore_cuts(machine: Machine, cuts: list[list[int]], supports: list[int], passes: Passes) -> None:
    """Give a new machine cuts that were found before; the rows of their features are read again."""
    rows = passes.rows(np.array(supports))
    place = {feature: k for k, feature in enumerate(supports)}
    for features in cuts:
        known = set(machine.spoken.features)
        new = sorted((feature for feature in features if feature not in known), key=place.__getitem__)
        new_rows = rows.rows(np.array([place[feature] for feature in new])) if new else None
        _add_cut(machine, Cut(features, new, new_rows, value=0.0, bound=0.0, n_examined=0))


def _master_rows(rows: Block | None, n_samples: int) -> tuple:
    if rows is None:
        return np.zeros((0, n_samples)), np.zeros(0), np.zeros(0)
    return rows.matrix(), rows.means, rows.norms


def _master_tol(gap: float, tol: float) -> float:
    """Accuracy for the next master problem: a small part of the gap that is left, and of the one that is wanted.

    A cut that repeats proves a gap no better than the master's own.
    """
    return float(np.clip(min(1e-2 * gap, 0.1 * tol), MASTER_TOL, 1e-4))
