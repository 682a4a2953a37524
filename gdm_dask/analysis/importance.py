"""Group permutation importance: the drop of accuracy or R2 when the members of a group are permuted together.

Permuting one feature at a time understates features with correlated copies, because the copies stand in for it.
Permuting all members of a group with one permutation removes all information of the group.

In a linear model, permuting a group with one permutation permutes its part of the decision value. So no matrix is
shuffled: each repeat costs one vector.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gdm_dask.analysis.metrics import Labelled
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.errors import BadInput
from gdm_dask.model import FittedModel, decision
from gdm_dask.settings.settings import effective_samples
from gdm_dask.settings.tasks import task_of
from gdm_dask.store.targets import Target
from gdm_dask.system.resources import default_memory_limit, level

#: Maximum members of all groups together in the model on all members.
MAX_MEMBERS = 20_000
#: Maximum samples for measuring accuracy after permutations.
MAX_SAMPLES = 20_000


@dataclass(frozen=True, kw_only=True)
class GroupImportance:
    """Importance of each group, in the order of the supports. All drops are means over the repeats.

    Drops and accuracies refer to R2 if the model predicts numbers.

    Attributes
    ----------
    support : list of float
        Drop of the refitted model (supports only) when the support is permuted.
    support_std : list of float
        Standard deviation of `support` over the repeats.
    group, group_std : list of float or None
        Drop of a model on all members when all members of the group are permuted together.
    alone : list of float or None
        Drop of the model on all members when only the support is permuted, as single-feature tools do.
    accuracy_supports : float
        Accuracy of the refitted model.
    accuracy_members : float or None
        Accuracy of the model on supports and affiliated features.
    n_members : int or None
        Number of features of the model on all members.
    members_per_group : int or None
        Maximum members of each group in the model on all members; the strongest are kept.
    n_repeats, n_samples : int
    evaluated_on, fitted_on : str
        Names of the data; `fitted_on` refers to the model on all members.
    """

    support: list[float]
    support_std: list[float]
    group: list[float] | None = None
    group_std: list[float] | None = None
    alone: list[float] | None = None
    accuracy_supports: float
    accuracy_members: float | None = None
    n_members: int | None = None
    members_per_group: int | None = None
    n_repeats: int
    n_samples: int
    evaluated_on: str
    fitted_on: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def group_importance(
    machine: FittedModel, data: Any, train: Any = None, n_repeats: int = 5, seed: int = 0
) -> GroupImportance:
    """Compute the permutation importance of the groups of a fitted model.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
        A fitted model.
    data : store, path or URL of one, or tuple (X, y)
        Data to measure accuracy on, preferably not the training data.
    train : as `data`, optional
        The training data. If given, a linear model is also fitted on all members, and groups are permuted as a whole.
    n_repeats : int
    seed : int

    Returns
    -------
    GroupImportance

    Examples
    --------
    >>> from gdm_dask import GroupDiscoveryMachine
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1, 1], 100)
    >>> X = rng.normal(size=(200, 6))
    >>> X[:, 0] += 2 * y
    >>> X[:, 1] = X[:, 0]
    >>> gdm = GroupDiscoveryMachine(n_features_to_select=1).fit(X, y)
    >>> found = group_importance(gdm, (X, y), train=(X, y))
    >>> found.group[0] > 0.3, found.alone[0] < found.group[0]
    (True, True)
    """
    check_is_fitted(machine)
    if n_repeats < 1:
        raise BadInput(f"n_repeats must be an integer >= 1, got {n_repeats!r}")
    measured = _Measured(Labelled(data, machine), machine.target_, n_repeats, np.random.default_rng(seed))
    supports = machine.support_features_
    alone = [np.array([k]) for k in range(len(supports))]
    accuracy, drops = measured.drops(supports, machine.coef_, machine.intercept_, [alone])
    has_members = train is not None and machine.groups_ is not None
    on_all_members = _on_all_members(machine, measured, Labelled(train, machine)) if has_members else {}
    return GroupImportance(
        support=drops[0][0],
        support_std=drops[0][1],
        accuracy_supports=accuracy,
        n_repeats=n_repeats,
        n_samples=len(measured.sample),
        evaluated_on=measured.data.name,
        **on_all_members,
    )


class _Measured:
    """Data to measure accuracy on, with permutations shared by all groups."""

    def __init__(self, data: Labelled, target: Target, n_repeats: int, rng: np.random.Generator) -> None:
        self.data, self.target = data, target
        self.sample = np.arange(data.n_samples)
        if data.n_samples > MAX_SAMPLES:
            self.sample = np.sort(rng.choice(data.n_samples, MAX_SAMPLES, replace=False))
        self.permutations = np.stack([rng.permutation(len(self.sample)) for _ in range(n_repeats)])

    def drops(
        self, features: np.ndarray, coef: np.ndarray, intercept: np.ndarray, groupings: list[list[np.ndarray]]
    ) -> tuple[float, list[tuple[list[float], list[float]]]]:
        """Return the accuracy of a linear model on some features, and its drop when groups of them are permuted."""
        rows = self.data.rows(features)
        values = decision(rows, coef, intercept)
        accuracy = self.target.score(self.data.outputs, values)
        columns = rows.matrix().T[self.sample]
        return accuracy, [self._permuted(columns, coef, groups, values[:, self.sample]) for groups in groupings]

    def _permuted(
        self, columns: Any, coef: np.ndarray, groups: list[np.ndarray], values: np.ndarray
    ) -> tuple[list[float], list[float]]:
        """Return the drop of accuracy when the columns of each group are permuted together: mean and deviation."""
        outputs, nothing = self.data.outputs[:, self.sample], np.zeros(len(coef))
        accuracy = self.target.score(outputs, values)
        drops = np.empty((len(groups), len(self.permutations)))
        for k, group in enumerate(groups):
            part = decision(columns[:, group], coef[:, group], nothing)
            rest = values - part
            for repeat, permutation in enumerate(self.permutations):
                drops[k, repeat] = accuracy - self.target.score(outputs, rest + part[:, permutation])
        return drops.mean(axis=1).tolist(), drops.std(axis=1).tolist()


def _on_all_members(model: FittedModel, measured: _Measured, train: Labelled) -> dict[str, Any]:
    """Fit on supports and affiliated features; permute whole groups, then supports alone."""
    groups, cut = _strongest_members(model, train, max(train.n_samples, measured.data.n_samples))
    members = np.unique(np.concatenate(groups))
    rows = train.rows(members)
    usable = np.flatnonzero(rows.norms > 0)
    coef = np.zeros((len(train.outputs), len(members)))
    task = task_of(model.target_.kind)
    n_effective = effective_samples(task.class_weights(train.outputs, rows.weights))
    most_C = task.refit_limit(n_effective, len(model.support_features_))
    coef[:, usable], intercept = refit(rows.rows(usable), train.outputs, task.refit, most_C)
    whole = [np.searchsorted(members, group) for group in groups]
    alone = [np.searchsorted(members, [support]) for support in model.support_features_]
    accuracy, drops = measured.drops(members, coef, intercept, [whole, alone])
    return {
        "group": drops[0][0],
        "group_std": drops[0][1],
        "alone": drops[1][0],
        "accuracy_members": accuracy,
        "n_members": len(members),
        "members_per_group": cut,
        "fitted_on": train.name,
    }


def _strongest_members(model: FittedModel, train: Labelled, n_samples: int) -> tuple[list[np.ndarray], int]:
    """Return the strongest members of each group by |rho| that one model can use, and the maximum per group."""
    assert model.groups_ is not None
    assert model.affiliations_ is not None
    fitting = max(1, default_memory_limit() // (32 * n_samples))
    sizes = np.array([len(group) for group in model.groups_.values()])
    cut = level(sizes, MAX_MEMBERS if train.is_sparse else min(MAX_MEMBERS, fitting))
    table = model.affiliations_
    ordered = table.iloc[np.argsort(-table["correlation"].abs().to_numpy(), kind="stable")]
    first = ordered.groupby("support", sort=False)["feature"]
    strongest = {support: np.sort(features.to_numpy()[:cut]) for support, features in first}
    return [np.union1d(strongest[int(k)], [k]) for k in model.support_features_], int(min(cut, sizes.max()))
