"""Which supports are kept in the end, and which groups they have."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gdm_dask.correlation import correlation_limit
from gdm_dask.errors import BadInput
from gdm_dask.groups import Pairs
from gdm_dask.machine_state import Machine, Settings
from gdm_dask.passes import Passes
from gdm_dask.polish import choose
from gdm_dask.store.block import Block, stack

if TYPE_CHECKING:
    from gdm_dask.estimator import GroupDiscoveryMachine

#: Cuts for a wanted number of supports: cuts of a twentieth of them.
CUTS_PER_SELECTION = 20
#: So many times the wanted supports enter, and the best of them are chosen; with fewer samples for each of them than
#: this, the choice would fit the noise (measured: it helps at 20, and harms at 10), and beyond so many it is not small.
OVERSHOOT = 3
POOL_PER_CUT = 4  # times the size of a cut
SAMPLES_PER_SUPPORT = 20
MAX_POLISHED = 500
#: Size of a cut where no number of supports is wanted.
FREE_CUT_SIZE = 10
MAX_CUTS = 100
#: A weight below this part of the largest is zero.
NO_WEIGHT = 1e-8


def settings_for(estimator: GroupDiscoveryMachine, n_features: int, n_samples: int) -> Settings:
    """What the cutting plane has to do for an estimator's parameters."""
    given = estimator.n_features_to_select
    k = wanted = None if given is None else int(given)
    if k is not None and polishes(k, estimator.tau, n_samples):
        wanted = min(OVERSHOOT * k, n_features)
    if estimator.cut_size != "auto":
        cut_size = int(estimator.cut_size)
    else:
        cut_size = min(FREE_CUT_SIZE, n_features) if wanted is None else -(-wanted // CUTS_PER_SELECTION)
    max_cuts = estimator.max_cuts
    if max_cuts is None:
        max_cuts = MAX_CUTS if k is None else sys.maxsize
    return Settings(
        C=float(estimator.C),
        tau=float(estimator.tau),
        cut_size=cut_size,
        max_cuts=int(max_cuts),
        tol=float(estimator.tol),
        matching=estimator.matching,
        n_supports=wanted,
        pool_per_cut=POOL_PER_CUT * cut_size if wanted != k else 0,
    )


def polishes(k: int, tau: float, n_samples: int) -> bool:
    """Whether k supports are chosen from more of them: not in FGM as published, nor with too few samples."""
    return tau > 0 and k <= MAX_POLISHED and n_samples >= SAMPLES_PER_SUPPORT * k


def select(machine: Machine, settings: Settings, k: int | None) -> tuple[np.ndarray, Block, np.ndarray]:
    """The supports to keep, strongest first, their raw rows, and their weights."""
    solution, rows = machine.solution, machine.spoken.rows
    if solution is None or rows is None:
        raise BadInput("no feature differs between the classes: all features are constant, or their scores are 0")
    features = list(machine.spoken.features)
    if k is not None and len(features) < k:
        warnings.warn(
            f"{len(features)} support features were found, fewer than n_features_to_select={k}: "
            f"{_why_fewer(machine, settings)}",
            UserWarning,
            stacklevel=4,
        )
    if k is None:
        chosen = np.flatnonzero(np.abs(solution.weights) > NO_WEIGHT * np.abs(solution.weights).max())
        weights = solution.weights[chosen]
    elif len(features) <= k:
        chosen, weights = np.arange(len(features)), solution.weights
    else:
        others, other_rows = machine.pool.without(features)
        master = machine.master
        chosen, weights = choose(master.rows, master.y, settings.C, k, other_rows, machine.spoken.limit)
        if other_rows is not None:
            features, rows = features + others, stack([rows, other_rows])
    order = np.argsort(-np.abs(weights), kind="stable")
    return np.array(features, np.int64)[chosen[order]], rows.rows(chosen[order]), weights[order]


def _why_fewer(machine: Machine, settings: Settings) -> str:
    if machine.stopped == "max_cuts":
        return f"the search ended after max_cuts={settings.max_cuts} cuts of up to {settings.cut_size}"
    if settings.tau == 0:
        return "all others are constant, or their scores are 0"
    return f"all others are constant or correlate with one of them (|rho| >= {1 - settings.tau:g})"


def find_groups(
    passes: Passes, supports: np.ndarray, rows: Block, tau: float
) -> tuple[dict[int, np.ndarray], pd.DataFrame]:
    """The group of each support, and the table of pairs behind them; without a constraint each stands alone."""
    if tau == 0:
        pairs = Pairs(np.arange(len(supports)), supports, np.ones(len(supports)), 0, 0)
    else:
        pairs = passes.groups(rows, correlation_limit(tau))
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
