"""The groups of a machine as a page holds them: members, correlations, histograms, and chains of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask.budget import MEMBER_BUDGET, level
from gdm_dask.report.chains import chain

#: Bins of |rho| between the limit and 1.
N_BINS = 10
#: Members that are looked at to make a chain of n-grams.
CHAINED = 400


def gather_groups(machine: Any) -> dict[str, Any] | None:
    """Groups in the order of the supports, strongest members first; None where they were not searched for.

    Each list of members is cut at one level where all of them together are too many; `size` counts all.
    """
    if machine.affiliations_ is None:
        return None
    parts = _by_support(machine)
    sizes = np.array([len(part) for part, _, _ in parts])
    shown = level(sizes, MEMBER_BUDGET)
    low = 1.0 - machine.tau if machine.tau > 0 else 0.0
    owners = _owners(machine)
    groups: dict[str, Any] = {"limit": low, "shown": shown, "size": sizes.tolist()}
    groups["edges"] = np.linspace(low, 1.0, N_BINS + 1).round(6).tolist()
    for key in ("positive", "negative", "feature", "rho", "others", "chain"):
        groups[key] = []
    for support, (feature, rho, owner) in zip(machine.support_features_.tolist(), parts, strict=True):
        positive, negative = _histogram(rho, low)
        groups["positive"].append(positive)
        groups["negative"].append(negative)
        first = slice(0, shown)
        groups["feature"].append(feature[first].tolist())
        groups["rho"].append(rho[first].round(4).tolist())
        groups["others"].append([[int(at), owners[int(feature[at])]] for at in np.flatnonzero(~owner[first])])
        groups["chain"].append(chain(*_names(machine, support, feature[:CHAINED])))
    return groups


def _names(machine: Any, support: int, members: np.ndarray) -> tuple[str, list[str]]:
    """Names of a support and of members, as the chain wants them; none where features have numbers only."""
    name = machine.names_.get(support, "")
    return name, [machine.names_.get(member, "") for member in members.tolist()] if name else []


def _by_support(machine: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(feature, rho, owner) of each group: the support first, then by |rho|."""
    table = machine.affiliations_
    feature, rho = table["feature"].to_numpy(), table["correlation"].to_numpy()
    owner, support = table["owner"].to_numpy(bool), table["support"].to_numpy()
    place = {int(number): k for k, number in enumerate(machine.support_features_)}
    position = np.array([place[int(number)] for number in support], np.int64)
    order = np.lexsort((feature, -np.abs(rho), feature != support, position))
    bounds = np.searchsorted(position[order], np.arange(1, len(place)))
    return [(feature[part], rho[part], owner[part]) for part in np.split(order, bounds)]


def _owners(machine: Any) -> dict[int, int]:
    """Position of the support that owns a feature, for features in several groups."""
    table = machine.affiliations_
    several = table["feature"].duplicated(keep=False)
    place = {int(number): k for k, number in enumerate(machine.support_features_)}
    owned = table[several & table["owner"]]
    return {int(f): place[int(s)] for f, s in zip(owned["feature"], owned["support"], strict=True)}


def _histogram(rho: np.ndarray, low: float) -> tuple[list[int], list[int]]:
    """Counts of positive and negative correlations by |rho|; rounding at the ends belongs to the outer bins."""
    size = np.clip(np.abs(rho), low, 1.0)
    positive = np.histogram(size[rho >= 0], N_BINS, (low, 1.0))[0]
    negative = np.histogram(size[rho < 0], N_BINS, (low, 1.0))[0]
    return positive.tolist(), negative.tolist()
