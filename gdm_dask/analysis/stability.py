"""Stability selection: fit on subsamples and count how often each group is found again.

Among correlated features chance decides which one becomes the support: other samples give another member of the same
group. So counting features would mislead. Instead, a *group* counts as found again when its members overlap with the
members of a group of the subsample, whichever member is the support.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import maximum_bipartite_matching
from sklearn.utils.validation import check_is_fitted

from gdm_dask.analysis.subsamples import Groups, checked_matrix, fit_subsamples
from gdm_dask.errors import BadInput
from gdm_dask.inputs import check_names, in_memory
from gdm_dask.model import FittedModel, names_at
from gdm_dask.store import as_store, is_store
from gdm_dask.store.folder import write_whole

#: Maximum number of groups in the result that only subsamples found.
MAX_OTHERS = 100


@dataclass(frozen=True)
class Stability:
    """Agreement of fits on subsamples.

    Attributes
    ----------
    supports : list of int
        Supports of the model, strongest first.
    n_repeats : int
    fraction : float
        Share of the samples in each subsample.
    overlap : float
        Share of the smaller group's members that two groups must have in common to count as the same.
    group_frequency : list of float
        Share of the fits that found the group of each support, strongest support first.
    support_frequency : list of float
        Share of the fits in which each support was a support itself.
    group_jaccard, group_kuncheva : float
        Mean over pairs of fits; matching groups count as common.
    support_jaccard, support_kuncheva : float
        Mean over pairs of fits, for single supports.
    others : list of dict
        Groups that only subsamples found, most frequent first: name of a support, frequency, size.
    """

    supports: list[int]
    n_repeats: int
    fraction: float
    overlap: float
    group_frequency: list[float]
    support_frequency: list[float]
    group_jaccard: float
    group_kuncheva: float
    support_jaccard: float
    support_kuncheva: float
    others: list[dict[str, Any]]

    def is_about(self, model: FittedModel) -> bool:
        """Whether the result was computed for exactly this fit."""
        supports: list[int] = model.support_features_.tolist()
        return self.supports == supports

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON."""
        write_whole(Path(path), json.dumps(self.to_dict(), indent=1).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Stability:
        """Read a file written by `save`."""
        try:
            document = json.loads(Path(path).read_bytes())
            return cls(**{field.name: document[field.name] for field in fields(cls)})
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{path}: the file is damaged. Run 'gdm stability' again.") from error


def stability_selection(
    machine: FittedModel,
    X: Any,
    y: Any = None,
    *,
    n_repeats: int = 20,
    fraction: float = 0.5,
    overlap: float = 0.5,
    seed: int = 0,
    callback: Callable[[int, int], None] | None = None,
) -> Stability:
    """Refit on subsamples and count how often each group of a model is found.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
        A model fitted on `X`, with groups. Its scheduler runs the fits.
    X : store, path or URL of one, ndarray, sparse matrix, Dask array or DataFrame
    y : array of shape (n_samples,), optional
        Labels that replace the labels of a store.
    n_repeats : int
    fraction : float
        Share of the samples of each class in a subsample, drawn without replacement.
    overlap : float
        Share of the smaller group's members, in (0, 1], that two groups must have in common to count as the same.
    seed : int
    callback : callable, optional
        Called with the number of each finished fit, and `n_repeats`.

    Returns
    -------
    Stability

    Examples
    --------
    >>> from gdm_dask import GroupDiscoveryMachine
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1, 1], 100)
    >>> X = rng.normal(size=(200, 8))
    >>> X[:, 0] += y
    >>> X[:, 1] = X[:, 0] + 0.01 * rng.normal(size=200)
    >>> gdm = GroupDiscoveryMachine(n_features_to_select=1).fit(X, y)
    >>> stability_selection(gdm, X, y, n_repeats=4).group_frequency
    [1.0]
    """
    check_is_fitted(machine)
    if machine.groups_ is None:
        raise BadInput("stability needs groups: fit with groups=True")
    if n_repeats < 2:
        raise BadInput(f"n_repeats must be an integer >= 2, got {n_repeats!r}")
    if not 0 < overlap <= 1:
        raise BadInput(f"overlap must be in (0, 1], got {overlap!r}")
    X = as_store(X) if is_store(X) else in_memory(X)
    check_names(machine, X)
    X = X if is_store(X) else checked_matrix(X)
    found = fit_subsamples(machine, X, y, n_repeats, fraction, seed, callback)

    def name_of(feature: int) -> str:
        return (names_at(machine, X, np.array([feature])) or [str(feature)])[0]

    return summarise_stability(machine, found, fraction, overlap, name_of)


def summarise_stability(
    model: FittedModel, found: list[Groups], fraction: float, overlap: float, name_of: Callable[[int], str] = str
) -> Stability:
    """Compare the groups of several fits with the groups of a model, and with each other."""
    assert model.groups_ is not None
    reference = model.groups_
    hits = np.zeros(len(reference))
    catalogue: list[tuple[int, np.ndarray, int]] = []  # (support, members, count) of groups that only subsamples found
    for groups in found:
        same = same_groups(list(reference.values()), list(groups.values()), overlap)
        hits += same.any(axis=1)
        known: np.ndarray = np.logical_or.reduce(same, axis=0)
        _count_strangers(catalogue, [*itertools.compress(groups.items(), ~known)], overlap)
    n_repeats, m = len(found), model.n_features_in_
    single = [{support: np.array([support]) for support in groups} for groups in found]
    catalogue.sort(key=lambda entry: (-entry[2], entry[0]))
    group_jaccard, group_kuncheva = _agreement(found, m, overlap)
    support_jaccard, support_kuncheva = _agreement(single, m, 1.0)
    return Stability(
        supports=list(reference),
        n_repeats=n_repeats,
        fraction=fraction,
        overlap=overlap,
        group_frequency=(hits / n_repeats).tolist(),
        support_frequency=[sum(support in groups for groups in found) / n_repeats for support in reference],
        group_jaccard=group_jaccard,
        group_kuncheva=group_kuncheva,
        support_jaccard=support_jaccard,
        support_kuncheva=support_kuncheva,
        others=[
            {"name": name_of(support), "frequency": times / n_repeats, "size": len(members)}
            for support, members, times in catalogue[:MAX_OTHERS]
        ],
    )


def _count_strangers(
    catalogue: list[tuple[int, np.ndarray, int]], strangers: list[tuple[int, np.ndarray]], overlap: float
) -> None:
    """Add groups of one fit that the model lacks to the catalogue, or increase their counts."""
    same = same_groups([members for _, members, _ in catalogue], [members for _, members in strangers], overlap)
    for k in np.flatnonzero(same.any(axis=1)):
        support, members, times = catalogue[k]
        catalogue[k] = (support, members, times + 1)
    known: np.ndarray = np.logical_or.reduce(same, axis=0)
    catalogue += [(support, members, 1) for support, members in itertools.compress(strangers, ~known)]


def same_groups(some: list[np.ndarray], others: list[np.ndarray], overlap: float) -> np.ndarray:
    """Return which groups match: they share at least `overlap` of the smaller group's members.

    Examples
    --------
    >>> same_groups([np.array([1, 2]), np.array([7])], [np.array([2, 3, 4]), np.array([6, 7])], 0.5).tolist()
    [[True, False], [False, True]]
    """
    if not some or not others:
        return np.zeros((len(some), len(others)), bool)
    width = 1 + max(int(group.max()) for group in itertools.chain(some, others))
    left, right = _membership(some, width), _membership(others, width)
    common: np.ndarray = (left @ right.T).toarray()
    sizes = np.minimum.outer(np.array([len(g) for g in some]), np.array([len(g) for g in others]))
    is_match: np.ndarray = common >= np.maximum(overlap * sizes, 1) - 1e-9
    return is_match


def _membership(groups: list[np.ndarray], width: int) -> sp.csr_array:
    pointers = np.concatenate([[0], np.cumsum([len(group) for group in groups])])
    members = np.concatenate(groups)
    return sp.csr_array((np.ones(len(members), np.int64), members, pointers), shape=(len(groups), width))


def _agreement(found: list[Groups], m: int, overlap: float) -> tuple[float, float]:
    """Return the mean Jaccard and Kuncheva indices over pairs of fits."""
    jaccard, kuncheva = [], []
    for one, other in itertools.combinations(found, 2):
        same = same_groups(list(one.values()), list(other.values()), overlap)
        common = int((maximum_bipartite_matching(sp.csr_array(same), perm_type="column") >= 0).sum())
        jaccard.append(jaccard_index(common, len(one), len(other)))
        kuncheva.append(kuncheva_index(common, len(one), len(other), m))
    return float(np.mean(jaccard)), float(np.mean(kuncheva))


def jaccard_index(common: int, k: int, other_k: int) -> float:
    """Return the Jaccard index: common elements divided by the elements in either selection.

    >>> jaccard_index(2, 3, 3)
    0.5
    """
    return common / (k + other_k - common)


def kuncheva_index(common: int, k: int, other_k: int, m: int) -> float:
    """Return Kuncheva's index: common elements beyond those expected by chance among m features, scaled to at most 1.

    The index is 1 if one selection contains the other. For selections of equal size k it is
    (common m - k^2) / (k (m - k)), as in Kuncheva (2007). Selections of all features agree by chance alone; their index
    is defined as 1 here.

    >>> kuncheva_index(5, 5, 5, 100), kuncheva_index(1, 10, 10, 100)
    (1.0, 0.0)
    """
    chance = k * other_k / m
    most = min(k, other_k) - chance
    return (common - chance) / most if most > 0 else 1.0
