"""Comparison of two runs: supports gained and lost, and features that moved to another group."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.model import FittedModel

#: Maximum rows of each list on a page; the counts cover all rows.
MAX_LISTED = 1000


def compare_runs(model: FittedModel, other: FittedModel, name: str) -> dict[str, Any]:
    """Return the changes from another run, called `name`, to this one, fitted on the same features."""
    if model.n_features_in_ != other.n_features_in_:
        raise BadInput(
            f"the runs have {model.n_features_in_} and {other.n_features_in_} features: only runs on the same "
            "features can be compared"
        )
    here, there = _owners(model), _owners(other)
    supports, others = model.support_features_.tolist(), other.support_features_.tolist()
    ranks = {feature: rank for rank, feature in enumerate(supports, 1)}
    other_ranks = {feature: rank for rank, feature in enumerate(others, 1)}
    kept = [feature for feature in supports if feature in other_ranks]
    gained = [feature for feature in supports if feature not in other_ranks]
    lost = [feature for feature in others if feature not in ranks]
    moved = _moved(here, there)
    weights, other_weights = _weights(model), _weights(other)
    return {
        "name": name,
        "n_kept": len(kept),
        "n_gained": len(gained),
        "n_lost": len(lost),
        "n_moved": len(moved),
        "jaccard": len(kept) / max(1, len(kept) + len(gained) + len(lost)),
        "kept": [[model.name_of(f), other_ranks[f], ranks[f], other_weights[f], weights[f]] for f in kept[:MAX_LISTED]],
        "gained": [[model.name_of(f), weights[f], _named(other, there.get(f))] for f in gained[:MAX_LISTED]],
        "lost": [[other.name_of(f), other_weights[f], _named(model, here.get(f))] for f in lost[:MAX_LISTED]],
        "moved": [[model.name_of(f), other.name_of(old), model.name_of(new)] for f, old, new in moved[:MAX_LISTED]],
        "facts": [_facts(other), _facts(model)],
    }


def _owners(model: FittedModel) -> dict[int, int]:
    """Map each feature of a group to the support that owns it."""
    table = model.affiliations_
    if table is None:
        return {int(feature): int(feature) for feature in model.support_features_}
    owned = table[table["owner"]]
    return dict(zip(owned["feature"].tolist(), owned["support"].tolist(), strict=True))


def _moved(here: dict[int, int], there: dict[int, int]) -> list[tuple[int, int, int]]:
    """Return (feature, owner there, owner here) for features that are grouped in both runs under different supports."""
    both = np.intersect1d(list(here), list(there)).tolist()
    return [(f, there[f], here[f]) for f in both if here[f] != there[f]]


def _named(model: FittedModel, support: int | None) -> str | None:
    return None if support is None else model.name_of(support)


def _weights(model: FittedModel) -> dict[int, float]:
    return dict(zip(model.support_features_.tolist(), model.weights_.tolist(), strict=True))


def _facts(model: FittedModel) -> dict[str, Any]:
    members = None if model.affiliations_ is None else int(model.affiliations_["feature"].nunique())
    return {
        "n_supports": len(model.support_features_),
        "n_members": members,
        "redundancy_rate": model.redundancy_rate_,
        "n_cuts": model.n_cuts_,
        "gap": model.gap_,
        "seconds": model.timings_["total"],
        "tau": model.tau,
        "C": model.C_,
    }
