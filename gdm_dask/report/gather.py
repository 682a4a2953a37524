"""Everything a report shows, gathered into one dict of plain values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import gdm_dask
from gdm_dask.budget import MEMBER_NAME_BUDGET, SUPPORT_NAME_BUDGET, shorten
from gdm_dask.errors import BadInput
from gdm_dask.importance import group_importance
from gdm_dask.labelled import Labelled
from gdm_dask.report.compare import compare_runs
from gdm_dask.report.heat_map import gather_map
from gdm_dask.report.images import gather_images
from gdm_dask.report.members import gather_groups
from gdm_dask.report.summary import sentence

FORMAT = "gdm_dask report"
FORMAT_VERSION = 1
#: Parts that are made of plain, finite values already, and large.
LARGE = ("groups", "names", "map", "images")


def gather(
    machine: Any,
    *,
    title: str | None = None,
    run: dict[str, Any] | None = None,
    store: Any = None,
    test: Any = None,
    image_shape: tuple[int, int] | None = None,
    compare: Any = None,
    compare_name: str = "the other run",
    stability: Any = None,
    n_repeats: int = 5,
) -> dict[str, Any]:
    """Gather a report on a fitted machine.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    title : str, optional
    run : dict, optional
        What a run directory knows of the fit: store, fingerprint.
    store : store, path or URL of one, or tuple (X, y), optional
        The training data, for mean images, training accuracy and a model on all members.
    test : as `store`, optional
        Other data, for accuracy and importance. Without it they are measured on `store`, and the report says so.
    image_shape : tuple of int, optional
        Rows and columns, where features are pixels.
    compare : GroupDiscoveryMachine, optional
        Another machine, fitted on the same features.
    compare_name : str
    stability : Stability, optional
        What `gdm_dask.stability_selection` found.
    n_repeats : int
        Permutations for the importance of groups.

    Returns
    -------
    dict
        Of values that JSON can hold.
    """
    check_is_fitted(machine)
    if stability is not None and not stability.is_about(machine):
        raise BadInput("the stability is that of another machine: compute it for this one")
    given = {name: Labelled(data, machine) for name, data in (("training", store), ("test", test)) if data is not None}
    report: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "made_with": f"gdm_dask {gdm_dask.__version__}",
        "title": title or "Group discovery report",
        "run": run or {},
        "parameters": _parameters(machine),
        "data": _data(machine),
        "facts": _facts(machine),
        "cuts": _cuts(machine),
        "timings": dict(machine.timings_),
        "counts": dict(machine.counts_),
        "accuracy": [_accuracy(machine, data, kind) for kind, data in given.items()],
        "supports": _supports(machine),
        "groups": gather_groups(machine),
        "names": None,
        "map": gather_map(machine),
        "images": gather_images(machine, image_shape, given.get("training") or given.get("test")),
        "importance": None,
        "comparison": None if compare is None else compare_runs(machine, compare, compare_name),
        "stability": None if stability is None else stability.to_dict(),
    }
    report["names"] = _names(machine, report["groups"])
    if given:
        measured = test if test is not None else store
        report["importance"] = group_importance(machine, measured, store, n_repeats).to_dict()
    report["sentence"] = sentence(report)
    return {key: value if key in LARGE else as_plain(value) for key, value in report.items()}


def as_plain(value: Any) -> Any:
    """A value that JSON can hold: numpy becomes Python, what is not finite becomes None."""
    if isinstance(value, dict):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return as_plain(value.tolist())
    if isinstance(value, np.generic):
        return as_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _parameters(machine: Any) -> dict[str, Any]:
    shown = ("n_features_to_select", "tau", "C", "cut_size", "max_cuts", "tol", "matching", "groups")
    parameters = machine.get_params()
    return {name: parameters[name] for name in shown if name in parameters}


def _data(machine: Any) -> dict[str, Any]:
    profile = getattr(machine, "profile_", None)
    counts = None if profile is None else profile.class_counts.tolist()
    return {
        "n_features": machine.n_features_in_,
        "n_samples": None if counts is None else sum(counts),
        "classes": [str(name) for name in machine.classes_],
        "class_counts": counts,
        "named": bool(machine.names_),
    }


def _facts(machine: Any) -> dict[str, Any]:
    sizes = None if machine.groups_ is None else [len(group) for group in machine.groups_.values()]
    table = machine.affiliations_
    n_affiliated = None if table is None else int(table["feature"].nunique()) - len(machine.support_features_)
    return {
        "n_supports": len(machine.support_features_),
        "n_entered": machine.history_[-1].n_supports if machine.history_ else len(machine.support_features_),
        "n_groups_with_affiliated": None if sizes is None else sum(size > 1 for size in sizes),
        "n_affiliated": n_affiliated,
        "n_pairs": None if sizes is None else sum(sizes),
        "largest_group": None if sizes is None else max(sizes),
        "redundancy_rate": machine.redundancy_rate_,
        "n_cuts": machine.n_cuts_,
        "gap": machine.gap_,
        "converged": machine.converged_,
        "stopped": machine.stopped_,
        "seconds": machine.timings_["total"],
    }


def _cuts(machine: Any) -> dict[str, Any]:
    history = machine.history_
    parts = ("scores", "matching", "master")
    return {
        "lower": machine.lower_bounds_.tolist(),
        "upper": machine.upper_bounds_.tolist(),
        "best_score": [iteration.best_score for iteration in history],
        "n_supports": [iteration.n_supports for iteration in history],
        "bytes_read": [iteration.bytes_read for iteration in history],
        "n_examined": [iteration.n_examined for iteration in history],
        "seconds": {part: [iteration.seconds.get(part, 0.0) for iteration in history] for part in parts},
    }


def _supports(machine: Any) -> dict[str, Any]:
    features = machine.support_features_.tolist()
    scores: dict[int, list[list[float]]] = {feature: [] for feature in features}
    for iteration in machine.history_:
        for feature, score in zip(iteration.cut, iteration.scores, strict=False):
            if feature in scores:
                scores[feature].append([iteration.number, round(score, 8)])
    profile = getattr(machine, "profile_", None)
    return {
        "feature": features,
        "name": shorten([machine.name_of(feature) for feature in features], SUPPORT_NAME_BUDGET),
        "weight": _rounded(machine.weights_),
        "coef": _rounded(machine.coef_[0]),
        "scores": [scores[feature] for feature in features],
        "frequency": None if profile is None else profile.frequency.tolist(),
        "class_means": None if profile is None else [_rounded(row) for row in profile.class_means],
    }


def _rounded(values: np.ndarray) -> list[float]:
    """Six significant digits: more is noise on a page."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def _accuracy(machine: Any, data: Labelled, kind: str) -> dict[str, Any]:
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    features, coef = machine.support_features_, machine.coef_[0]
    decision = np.asarray(data.columns(features) @ coef).ravel() + machine.intercept_[0]
    predicted = np.where(decision > 0, 1, -1)
    both = len(np.unique(data.labels)) == 2
    return {
        "kind": kind,
        "name": data.name,
        "n_samples": data.n_samples,
        "accuracy": float(np.mean(predicted == data.labels)),
        "balanced_accuracy": float(balanced_accuracy_score(data.labels, predicted)) if both else None,
        "auc": float(roc_auc_score(data.labels, decision)) if both else None,
    }


def _names(machine: Any, groups: dict[str, Any] | None) -> dict[str, list] | None:
    """Names of the members that are on the page and are not supports; None where features have only numbers."""
    if groups is None or not machine.names_:
        return None
    supports = set(machine.support_features_.tolist())
    shown = sorted({feature for members in groups["feature"] for feature in members} - supports)
    names = [machine.names_.get(feature, str(feature)) for feature in shown]
    return {"feature": shown, "name": shorten(names, MEMBER_NAME_BUDGET)}
