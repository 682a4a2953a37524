"""Measure the paper's claims about the algorithm itself: pruning, matching, convergence.

Each function yields (name, value) for a problem, with B = 10 and tau = 0.25. C is the paper's 1 and the default of
``master="cuts"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.matching import find_cut
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.working_set import Supports, WorkingSet, read
from gdm_dask.engine.data import Data
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.ranking import WORKING_VALUES, Question
from gdm_dask.inputs import open_data
from gdm_dask.settings.settings import CUTS_C, METHODS, Settings, choose_settings

from . import registry
from .columns import standardised
from .problem import Training

TAU = 0.25
CUT_SIZE = 10
N_CUTS = 10
DEFAULT_C = CUTS_C
#: Number of candidates for a cut.
RANKED = 1024

Measure = Callable[[Training], Iterator[tuple[str, float]]]


@dataclass(frozen=True)
class Weighing:
    """Sample weights before a cut: alpha * y up to a factor, and its norm."""

    vector: np.ndarray
    norm: float


def settings_of(training: Training, C: float) -> Settings:
    """Return settings with cuts of ten features."""
    return choose_settings(training.X.shape[1], len(training.y), C=C, tau=TAU, cut_size=CUT_SIZE, intercept=False)


@contextmanager
def opened(training: Training) -> Iterator[Data]:
    """Open the training data behind an engine."""
    parameters = GroupDiscoveryMachine(scheduler="synchronous").get_params()
    with open_data(training.X, parameters, settings_of(training, DEFAULT_C)) as data:
        yield data


def weighings(training: Training, C: float, data: Data) -> Iterator[Weighing]:
    """Yield the sample weights at each iteration of Algorithm 1, with one read per cut."""
    settings = replace(settings_of(training, C), max_cuts=N_CUTS, cuts_per_read=1)
    problem = Problem(training.y.astype(np.float64), settings)
    duals = [problem.master.duals[0]]
    problem.on_cut = lambda _: duals.append(problem.master.duals[0])
    solve([problem], data)
    for vector in duals[:N_CUTS]:
        yield Weighing(vector, float(np.linalg.norm(vector)))


def pruning(training: Training) -> Iterator[tuple[str, float]]:
    """Theorem 1: the share of all features left to scan for the best support, in the iteration that prunes most."""
    Z = standardised(training.X) / np.sqrt(len(training.y))
    with opened(training) as data:
        for C in (1.0, DEFAULT_C):
            shares, best = [], []
            for weighing in weighings(training, C, data):
                scores = np.abs(Z.T @ weighing.vector)
                shares.append(float(np.mean(scores >= scores.max() - np.sqrt(2 * TAU) * weighing.norm)))
                best.append(float(scores.max()) / weighing.norm)
            yield f"smallest share left to scan, C = {C:g}", min(shares)
            yield f"largest score by |alpha|, C = {C:g}", max(best)


def matching(training: Training) -> Iterator[tuple[str, float]]:
    """Proposition 2: the value of (6) that greedy matching finds, as a share of the optimum."""
    with opened(training) as data:
        parts = []
        for weighing in weighings(training, DEFAULT_C, data):
            (seen,) = read(data, [Question(weighing.vector[None], RANKED, n_values=WORKING_VALUES)])
            values = {}
            for name in METHODS:
                supports = Supports(correlation_limit(TAU))
                working, limit = WorkingSet(seen, supports), supports.limit
                values[name] = find_cut(working, weighing.vector[None], np.zeros(0), CUT_SIZE, limit, name).value
            parts.append(values["greedy"] / values["exact"])
        yield "smallest part of the optimum", min(parts)
        yield "cuts that are optimal", float(np.sum(np.array(parts) > 1 - 1e-9))
        yield "cuts", float(len(parts))


def counterexample(training: Training) -> Iterator[tuple[str, float]]:
    """Three features at 0 and +-40 degrees, alpha along the first, B = 2: the first conflicts with both others."""
    del training
    squares = np.cos(np.radians([0.0, 40.0, -40.0])) ** 2
    yield "greedy", float(squares[0])
    yield "optimum", float(squares[1] + squares[2])


def convergence(training: Training) -> Iterator[tuple[str, float]]:
    """Cuts until the gap is 0.1 %, and the gap after ten cuts."""
    for C in (1.0, DEFAULT_C):
        machine = GroupDiscoveryMachine(
            C=C, tau=TAU, cut_size=CUT_SIZE, groups=False, scheduler="synchronous", fit_intercept=False
        )
        machine.fit(training.X, training.y)
        lower, upper = machine.lower_bounds_, machine.upper_bounds_
        last = min(N_CUTS, len(lower)) - 1
        yield f"cuts, C = {C:g}", float(machine.n_cuts_)
        yield f"gap at the end, C = {C:g}", float(machine.gap_)
        yield f"gap after {N_CUTS} cuts, C = {C:g}", float((upper[last] - lower[last]) / upper[last])
        yield f"supports, C = {C:g}", float(len(machine.support_features_))


MEASURES: dict[str, tuple[Measure, Sequence[str]]] = {
    "pruning": (pruning, ("synthetic", "mnist")),
    "matching": (matching, ("synthetic", "mnist", "faces")),
    "counterexample": (counterexample, ("synthetic",)),
    "convergence": (convergence, ("synthetic", "mnist")),
}


def measure(names: Sequence[str]) -> pd.DataFrame:
    """Take all measures on the first seed of these data sets."""
    rows = []
    for name in names:
        training = registry.dataset(name).load(0).training
        for claim, (function, datasets) in MEASURES.items():
            if name in datasets:
                rows += [(claim, name, what, value) for what, value in function(training)]
    return pd.DataFrame(rows, columns=["claim", "dataset", "name", "value"])
