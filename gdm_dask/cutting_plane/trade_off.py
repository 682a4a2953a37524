"""Choice of C by folds: only the data can tell how much shrinkage the noise in the labels requires.

Every candidate selects on the training part of each fold, from the first read to the last support, and is judged on the
rest: by the loss of a ridge machine on its supports (squared hinge for classes), at the best of a few C. The most
shrunk candidate within one standard error of the best is taken; for numbers, the standard error of its difference from
the best. Folds and candidates form a list of problems that share
every read. The list includes each candidate's problem on all samples, so the winner is ready when the folds are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.checkpoint import Checkpoint
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.selection import select
from gdm_dask.engine.data import Data
from gdm_dask.features.moments import with_samples
from gdm_dask.master.problem import Master
from gdm_dask.settings.settings import C_FACTORS, Settings, effective_samples
from gdm_dask.settings.tasks import Task, task_of
from gdm_dask.system.blas import single_threaded_blas

logger = logging.getLogger(__name__)

#: C of the judging machines, per effective sample and support, most shrunk first.
RIDGE_FACTORS = (*C_FACTORS, 6.0)
#: Accuracy of the judging machines.
RIDGE_TOL = 1e-4
#: Candidates with the same supports have the same loss up to this part of it: rounding must not choose between them.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Candidate:
    """A way to select, and its result on the folds."""

    C: float
    n_entering: int  # supports that enter; if more than wanted, the best are chosen
    loss: float  # mean on held-out folds: squared hinge for classes, squared for numbers
    error: float  # standard error of the loss


@dataclass(frozen=True)
class TradeOff:
    """How C was chosen."""

    how: str  # as `C_by` of the settings
    C: float
    C_choice: float | None = None  # of the choice among supports that entered, if different
    n_folds: int = 0
    candidates: tuple[Candidate, ...] = ()  # most shrunk first; only if folds decided
    chosen: int = 0  # position of the chosen candidate
    is_balanced: bool = False  # the search gave two classes the same weight

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values."""
        found = asdict(self)
        return {**found, "candidates": list(found["candidates"])}


class Split(NamedTuple):
    """Samples to fit on and samples to judge by, each increasing."""

    train: np.ndarray
    test: np.ndarray


def splits_of(strata: np.ndarray, n_folds: int, weights: np.ndarray | None = None) -> list[Split]:
    """Judge by each fold in turn; folds have about the same share of each class and no samples of weight 0."""
    from sklearn.model_selection import StratifiedKFold

    there = np.arange(len(strata)) if weights is None else np.flatnonzero(weights)
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    return [Split(there[train], there[test]) for train, test in splitter.split(there[:, None], strata[there])]


def n_problems_of(settings: Settings) -> int:
    """Number of problems that share the reads of a fit: each candidate on each fold and on all samples."""
    return (1 + len(settings.rivals)) * (1 + settings.n_folds)


class Trials:
    """Problems of a fit whose C is chosen by folds: every candidate on all samples and on each fold.

    Problems are numbered: first the problems on all samples, then the problems of the first fold, and so on, each time
    in the order of the candidates.
    """

    def __init__(
        self,
        data: Data,
        targets: np.ndarray,
        settings: Settings,
        checkpoint: Checkpoint | None,
        on_cut: Callable[[Iteration], None] | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        self._data, self._checkpoint, self._on_cut = data, checkpoint, on_cut
        self._targets, self._weights, self._task = targets, weights, task_of(settings.task, settings.epsilon)
        self._candidates = settings.candidates
        self._k = settings.n_supports or 0
        self._splits = splits_of(self._task.strata(targets), settings.n_folds, weights)
        self._problems: dict[int, Problem] = {}
        self._losses: dict[int, list[float]] = {}

    def search(self) -> tuple[Problem, TradeOff]:
        """Return the winning candidate's problem on all samples, and how it won.

        All problems share the reads of a store if they fit into memory. Otherwise the folds take turns. After them, or
        if there is nothing to read, the winner alone is solved on all samples: the result is the same.
        """
        n_candidates, n_fitting = len(self._candidates), self._data.n_problems
        parts = range(n_candidates, n_candidates * (1 + len(self._splits)))
        is_roomy = n_fitting >= parts.stop
        if is_roomy and self._data.is_read:
            self._solve(range(parts.stop))
            self._judge()
        else:
            if not is_roomy:
                logger.info("choosing C in turns: the memory has room for %d of %d problems", n_fitting, parts.stop)
            for first in range(parts.start, parts.stop, n_fitting):
                if self._solve(parts[first - parts.start :][:n_fitting]):
                    self._judge()
                    self._problems.clear()
                    self._save()
        losses = np.array([self._losses[number] for number in parts]).reshape(len(self._splits), n_candidates, -1)
        found = decide(self._candidates, losses, self._task.name == "numbers")
        if found.chosen not in self._problems:
            self._solve([found.chosen])
        return self._problems[found.chosen], found

    def _solve(self, numbers: Sequence[int]) -> bool:
        """Solve problems together, continuing from the checkpoint; return whether there was anything to do."""
        self._problems = {number: self.problem(number) for number in numbers}
        if self._checkpoint is not None and self._checkpoint.exists():
            self._losses |= self._checkpoint.load(self._problems, self._data)
        for number in self._losses.keys() & self._problems.keys():
            del self._problems[number]
        if not self._problems:
            return False
        self._problems[min(self._problems)].on_cut = self._on_cut  # one shows the progress of all
        solve([*self._problems.values()], self._data, self._save)
        return True

    def _save(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.save(self._problems, self._losses)

    def problem(self, number: int) -> Problem:
        """Create the problem with a given number."""
        settings, split = self._candidates[number % len(self._candidates)], self._split(number)
        targets, weights = self._targets, self._weights
        if split is None:
            return Problem(targets, settings, weights=weights)
        own = targets[:, split.train], None if weights is None else weights[split.train]
        part = _n_effective(self._task, *own) / _n_effective(self._task, targets, weights)  # same C per sample
        scaled = replace(settings, C=part * settings.C, n_effective=part * settings.n_effective)
        return Problem(own[0], scaled, split.train, own[1])

    def _split(self, number: int) -> Split | None:
        place = number // len(self._candidates) - 1
        return None if place < 0 else self._splits[place]

    def _judge(self) -> None:
        """Compute the held-out losses of the problems that were solved on folds."""
        for number, problem in self._problems.items():
            split = self._split(number)
            if split is not None:
                weights = None if self._weights is None else self._weights[split.test]
                targets = self._targets[:, split.test]
                self._losses[number] = held_out_losses(problem, self._k, split.test, targets, weights)


def _n_effective(task: Task, targets: np.ndarray, weights: np.ndarray | None) -> float:
    return effective_samples(task.class_weights(targets, weights))


@single_threaded_blas()
def held_out_losses(
    problem: Problem, k: int, samples: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None
) -> list[float]:
    """Mean loss of a machine on the k supports of a problem, summed over the outputs, for each ridge.

    `samples` (increasing), which are not among those of the problem, have the outputs `targets` (K, n) and these
    weights; the settings of the problem may balance the classes.
    """
    master, loss = problem.master, problem.task.refit
    weights = problem.settings.search_weights(targets, weights)

    def mean_loss(values: np.ndarray, intercept: np.ndarray) -> float:
        outputs = zip(targets, values, intercept.tolist(), strict=True)
        total = sum(loss.sums(np.ascontiguousarray(y), f, b, weights).squares for y, f, b in outputs)
        return total / (len(samples) if weights is None else float(weights.sum()))

    if problem.supports.rows is None:  # every feature is constant over the samples of the problem
        means = np.average(master.targets, axis=1, weights=master.weights)
        return [mean_loss(np.zeros(targets.shape), means)] * len(RIDGE_FACTORS)
    features, rows, _ = select(problem, k)
    machine = Master(master.targets, 1.0, master.weights, loss)
    machine.add_cut(np.arange(len(features)), rows.matrix(), rows.means, rows.norms)
    held_out = with_samples(problem.whole.rows(features), samples).matrix()
    losses = []
    for factor in RIDGE_FACTORS:
        machine.C = factor * problem.settings.n_effective / k
        solution = machine.solve_union(RIDGE_TOL)
        coef = solution.weights / rows.norms
        values = np.ascontiguousarray((held_out.T @ coef.T).T)
        losses.append(mean_loss(values, solution.intercept - coef @ rows.means))
    return losses


def decide(candidates: Sequence[Settings], losses: np.ndarray, paired: bool = False) -> TradeOff:
    """Take the most shrunk candidate within one standard error of the best; `losses` is (folds, candidates, ridges).

    If `paired`, the standard error is that of the difference from the best over the folds. It is smaller where folds
    differ more than candidates do, as they do with numbers.
    """
    n_folds = len(losses)
    best = losses.mean(axis=0).argmin(axis=1)
    mine = losses[:, np.arange(len(best)), best]
    means, errors = mine.mean(axis=0), mine.std(axis=0, ddof=1) / np.sqrt(n_folds)
    first = int(np.argmin(means))
    gaps = mine - mine[:, [first]]
    allowed = gaps.std(axis=0, ddof=1) / np.sqrt(n_folds) if paired else errors[first]
    chosen = int(np.argmax(gaps.mean(axis=0) <= allowed + ROUNDING * means[first]))
    table = tuple(
        Candidate(one.C, one.n_supports or 0, float(loss), float(error))
        for one, loss, error in zip(candidates, means, errors, strict=True)
    )
    winner = candidates[chosen]
    return TradeOff("folds", winner.C, winner.C_choice, n_folds, table, chosen, winner.is_balanced)
