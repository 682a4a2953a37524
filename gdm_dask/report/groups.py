"""Groups of a model for a page: members, correlations, chains of n-grams, and a map of the supports.

Chains use only feature names, never documents: they show only what the model found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from gdm_dask.model import FittedModel
from gdm_dask.system.resources import level

#: Maximum (support, member) pairs on a page.
MEMBER_BUDGET = 130_000
#: Number of bins of |rho| between the limit and 1.
N_BINS = 10
#: Maximum members examined to build a chain of n-grams.
CHAINED = 400
#: Maximum steps of a chain in either direction: it shows a context and must not reconstruct a document.
MAX_STEPS = 12
#: Maximum characters of an n-gram; longer names are not n-grams.
LONGEST = 64
#: One character, or the escape sequence of a byte that cannot be printed.
_CHARACTER = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\[a-z]|.", re.DOTALL)

Ngram = tuple[str, ...]


def gather_groups(model: FittedModel) -> dict[str, Any] | None:
    """Return groups in the order of the supports, strongest members first; None if the fit has no groups.

    If there are too many members in total, every list is cut at the same length; `size` counts all members.
    """
    if model.affiliations_ is None:
        return None
    parts = _by_support(model, model.affiliations_)
    sizes = np.array([len(part) for part, _, _ in parts])
    shown = level(sizes, MEMBER_BUDGET)
    limit = 1.0 - model.tau if model.tau > 0 else 0.0
    low = 0.0 if model.get_params()["linkage"] == "component" else limit  # a chain may end anywhere
    owners = _owners(model, model.affiliations_)
    groups: dict[str, Any] = {"limit": limit, "shown": shown, "size": sizes.tolist()}
    groups["edges"] = np.linspace(low, 1.0, N_BINS + 1).round(6).tolist()
    for key in ("positive", "negative", "feature", "rho", "others", "chain"):
        groups[key] = []
    for support, (feature, rho, owner) in zip(model.support_features_.tolist(), parts, strict=True):
        positive, negative = _histogram(rho, low)
        groups["positive"].append(positive)
        groups["negative"].append(negative)
        first = slice(0, shown)
        groups["feature"].append(feature[first].tolist())
        groups["rho"].append(rho[first].round(4).tolist())
        groups["others"].append([[int(at), owners[int(feature[at])]] for at in np.flatnonzero(~owner[first])])
        groups["chain"].append(chain(*_names(model, support, feature[:CHAINED])))
    return groups


def _names(model: FittedModel, support: int, members: np.ndarray) -> tuple[str, list[str]]:
    """Return the names of a support and its members for `chain`; empty if features have no names."""
    name = model.names_.get(support, "")
    return name, [model.names_.get(member, "") for member in members.tolist()] if name else []


def _by_support(model: FittedModel, table: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (feature, rho, owner) of each group: the support first, then members by decreasing |rho|."""
    feature, rho = table["feature"].to_numpy(), table["correlation"].to_numpy()
    owner, support = table["owner"].to_numpy(bool), table["support"].to_numpy()
    position_of = {int(number): k for k, number in enumerate(model.support_features_)}
    position = np.array([position_of[int(number)] for number in support], np.int64)
    order = np.lexsort((feature, -np.abs(rho), feature != support, position))
    bounds = np.searchsorted(position[order], np.arange(1, len(position_of)))
    return [(feature[part], rho[part], owner[part]) for part in np.split(order, bounds)]


def _owners(model: FittedModel, table: pd.DataFrame) -> dict[int, int]:
    """Map each feature in several groups to the position of the support that owns it."""
    several = table["feature"].duplicated(keep=False)
    position_of = {int(number): k for k, number in enumerate(model.support_features_)}
    owned = table[several & table["owner"]]
    return {int(f): position_of[int(s)] for f, s in zip(owned["feature"], owned["support"], strict=True)}


def _histogram(rho: np.ndarray, low: float) -> tuple[list[int], list[int]]:
    """Count positive and negative correlations by |rho|; values rounded past either end go into the outer bins."""
    size = np.clip(np.abs(rho), low, 1.0)
    positive = np.histogram(size[rho >= 0], N_BINS, (low, 1.0))[0]
    negative = np.histogram(size[rho < 0], N_BINS, (low, 1.0))[0]
    return positive.tolist(), negative.tolist()


def chain(support: str, members: Sequence[str]) -> str | None:
    r"""Return the longest text around a support that its members spell, or None.

    Members must have as many characters as the support. One follows another if it overlaps all but its last
    character. If several fit, the first in `members` is used, so pass the strongest first.

    Examples
    --------
    >>> chain("ttp:", ["http", "tp:/", "p://", "ttp:"])
    'http://'
    >>> print(chain(r"ist\n", ["list"]))
    list\n
    >>> chain("free", ["spam"]) is None
    True
    """
    if len(support) > LONGEST:
        return None
    middle, *others = (tuple(_CHARACTER.findall(name)) for name in (support, *members) if len(name) <= LONGEST)
    n = len(middle)
    if n < 2 or any(len(ngram) != n for ngram in others):
        return None
    others = [ngram for ngram in others if ngram != middle]
    right = {ngram[:-1]: ngram for ngram in reversed(others)}
    left = {ngram[1:]: ngram for ngram in reversed(others)}
    text = _grow(middle, right, n, forward=True)
    text = _grow(text, left, n, forward=False)
    return "".join(text) if len(text) > n else None


def _grow(text: Ngram, by_overlap: dict[Ngram, Ngram], n: int, forward: bool) -> Ngram:
    used = set()
    for _ in range(MAX_STEPS):
        ngram = by_overlap.get(text[1 - n :] if forward else text[: n - 1])
        if ngram is None or ngram in used:
            break
        used.add(ngram)
        text = (*text, ngram[-1]) if forward else (ngram[0], *text)
    return text


def clustered_order(rho: np.ndarray) -> np.ndarray:
    """Order supports so that correlated ones are adjacent: average linkage on 1 - |rho|.

    Examples
    --------
    >>> clustered_order(np.array([[1, 0, -0.6], [0, 1, 0.1], [-0.6, 0.1, 1]])).tolist()
    [1, 2, 0]
    """
    if len(rho) < 3:
        return np.arange(len(rho))
    distance = np.clip(1.0 - np.abs(np.asarray(rho, np.float64)), 0.0, 1.0)
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(distance, checks=False)
    tree = optimal_leaf_ordering(linkage(condensed, "average"), condensed)
    leaves: np.ndarray = leaves_list(tree)
    return leaves.astype(np.int64)


def gather_map(model: FittedModel) -> dict[str, Any] | None:
    """Return correlations in per cent below the diagonal, row by row in the clustered order."""
    profile = model.profile_
    if profile is None or len(profile.correlations) < 2:
        return None
    order = clustered_order(profile.correlations)
    percent = np.rint(100 * profile.correlations[np.ix_(order, order)].astype(np.float64)).astype(int)
    return {"order": order.tolist(), "percent": percent[np.tril_indices(len(order), -1)].tolist()}
