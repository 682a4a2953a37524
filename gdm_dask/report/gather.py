"""Gather the contents of a report into one dict of plain values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.utils.validation import check_is_fitted

from gdm_dask.analysis.importance import group_importance
from gdm_dask.analysis.metrics import Labelled
from gdm_dask.analysis.stability import Stability
from gdm_dask.errors import BadInput
from gdm_dask.features.measures import MEASURES
from gdm_dask.model import FittedModel, decision
from gdm_dask.report.compare import compare_runs
from gdm_dask.report.groups import gather_groups, gather_map
from gdm_dask.report.images import gather_images
from gdm_dask.report.summary import certificate, outcome, sentence, trade_off
from gdm_dask.system.resources import level, plural
from gdm_dask.system.version import VERSION

FORMAT = "gdm_dask report"
FORMAT_VERSION = 1
#: Large parts that already consist of plain, finite values.
LARGE = ("groups", "names", "map", "images")
#: Maximum characters of all support names together, and of all other names together.
SUPPORT_NAME_BUDGET = 1_000_000
MEMBER_NAME_BUDGET = 2_000_000


def gather(
    machine: FittedModel,
    *,
    title: str | None = None,
    run: dict[str, Any] | None = None,
    store: Any = None,
    test: Any = None,
    image_shape: tuple[int, int] | None = None,
    compare: FittedModel | None = None,
    compare_name: str = "the other run",
    stability: Stability | None = None,
    n_repeats: int = 5,
) -> dict[str, Any]:
    """Gather a report on a fitted model.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    title : str, optional
    run : dict, optional
        Facts from the run directory: store and fingerprint.
    store : store, path or URL of one, or tuple (X, y), optional
        Training data, used for mean images, training accuracy and a model on all members.
    test : as `store`, optional
        Other data, used for accuracy and importance. Without it both are measured on `store`, and the report says so.
    image_shape : tuple of int, optional
        Rows and columns of the image if features are pixels.
    compare : GroupDiscoveryMachine, optional
        Another model, fitted on the same features.
    compare_name : str
    stability : Stability, optional
        The result of `gdm_dask.stability_selection`.
    n_repeats : int
        Number of permutations for the importance of groups.

    Returns
    -------
    dict
        The report, as values that JSON can hold.
    """
    check_is_fitted(machine)
    if stability is not None and not stability.is_about(machine):
        raise BadInput("stability belongs to another model: compute it for this one")
    given = {name: Labelled(data, machine) for name, data in (("training", store), ("test", test)) if data is not None}
    report: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "made_with": f"gdm_dask {VERSION}",
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
        "images": None,
        "importance": None,
        "comparison": None if compare is None else compare_runs(machine, compare, compare_name),
        "stability": None if stability is None else stability.to_dict(),
    }
    if image_shape is not None:
        report["images"] = gather_images(machine, image_shape, given.get("training") or given.get("test"))
    report["names"] = _names(machine, report["groups"])
    if given:
        measured = test if test is not None else store
        report["importance"] = group_importance(machine, measured, store, n_repeats).to_dict()
    report["sentence"] = sentence(report)
    return {key: value if key in LARGE else as_plain(value) for key, value in report.items()}


def as_plain(value: Any) -> Any:
    """Convert a value to plain Python for JSON; numbers that are not finite become None."""
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


def _parameters(model: FittedModel) -> dict[str, Any]:
    shown = (
        "n_features_to_select", "tau", "C", "master", "cut_size", "max_cuts", "tol", "matching", "measure", "linkage",
        "fit_intercept", "class_weight", "groups", "certify",
    )  # fmt: skip
    parameters = model.get_params()
    if parameters.get("groups_of") is not None:
        from gdm_dask.settings.constraints import named_variables

        parameters["groups_of"] = named_variables(parameters["groups_of"], model.n_features_in_)
    counts = {
        name: plural(len(parameters[name]), what)
        for name, what in (("include", "feature"), ("exclude", "feature"), ("groups_of", "variable"))
        if parameters.get(name) is not None
    }
    return {name: parameters[name] for name in shown if name in parameters} | counts


def _data(model: FittedModel) -> dict[str, Any]:
    profile = model.profile_
    counts = None if profile is None else profile.class_counts.tolist()
    return {
        "n_features": model.n_features_in_,
        "n_samples": None if counts is None else sum(counts),
        "kind": model.target_.kind,
        "sides": model.target_.sides(model.output_weights_)[0],
        "classes": [str(name) for name in getattr(model, "classes_", ["all samples"])],
        "class_counts": counts,
        "named": bool(model.names_),
    }


def _facts(model: FittedModel) -> dict[str, Any]:
    sizes = None if model.groups_ is None else [len(group) for group in model.groups_.values()]
    table = model.affiliations_
    n_affiliated = None if table is None else int(table["feature"].nunique()) - len(model.support_features_)
    return {
        "n_supports": len(model.support_features_),
        "n_entered": model.history_[-1].n_supports if model.history_ else len(model.support_features_),
        "n_groups_with_affiliated": None if sizes is None else sum(size > 1 for size in sizes),
        "n_affiliated": n_affiliated,
        "n_pairs": None if sizes is None else sum(sizes),
        "largest_group": None if sizes is None else max(sizes),
        "measure": MEASURES[model.get_params()["measure"]].title,
        "redundancy_rate": model.redundancy_rate_,
        "n_cuts": model.n_cuts_,
        "gap": model.gap_,
        "converged": model.converged_,
        "stopped": model.stopped_,
        "wanted": model.get_params()["n_features_to_select"],
        "outcome": outcome(model),
        "certified_share": model.certified_share_,
        "certificate": certificate(model),
        "C": model.C_,
        "C_path": model.C_path_,
        "trade_off": trade_off(model),
        "seconds": model.timings_["total"],
    }


def _cuts(model: FittedModel) -> dict[str, Any]:
    history = model.history_
    parts = ("scores", "matching", "master")
    return {
        "lower": model.lower_bounds_.tolist(),
        "upper": model.upper_bounds_.tolist(),
        "best_score": [iteration.best_score for iteration in history],
        "n_supports": [iteration.n_supports for iteration in history],
        "bytes_read": [iteration.bytes_read for iteration in history],
        "n_examined": [iteration.n_examined for iteration in history],
        "seconds": {part: [iteration.seconds.get(part, 0.0) for iteration in history] for part in parts},
    }


def _supports(model: FittedModel) -> dict[str, Any]:
    features = model.support_features_.tolist()
    scores: dict[int, list[list[float]]] = {feature: [] for feature in features}
    for iteration in model.history_:
        for feature, score in zip(iteration.cut, iteration.scores, strict=False):
            if feature in scores:
                scores[feature].append([iteration.number, round(score, 8)])
    profile, n_outputs = model.profile_, model.target_.n_outputs
    return {
        "feature": features,
        "name": shorten([model.name_of(feature) for feature in features], SUPPORT_NAME_BUDGET),
        "note": _notes(model),
        "weight": _rounded(model.weights_),
        "side": model.target_.sides(model.output_weights_)[1].tolist(),
        "output_weights": None if n_outputs == 1 else [_rounded(row) for row in model.output_weights_],
        "coef": _rounded(model.coef_[0]) if n_outputs == 1 else [_rounded(row) for row in model.coef_],
        "scores": [scores[feature] for feature in features],
        "frequency": None if profile is None else profile.frequency.tolist(),
        "class_means": None if profile is None else [_rounded(row) for row in profile.class_means],
    }


def _notes(model: FittedModel) -> list[str] | None:
    """Tell which supports were included, and the variables that they belong to; None if there is nothing to tell."""
    included = set(model.included_.tolist())
    names = {feature: name for name, features in model.variables_.items() for feature in features}
    if not included and not names:
        return None
    found = [(["included"] if feature in included else []) + ([names[feature]] if feature in names else [])
             for feature in model.support_features_.tolist()]  # fmt: skip
    return shorten([", ".join(parts) for parts in found], SUPPORT_NAME_BUDGET)


def _rounded(values: np.ndarray) -> list[float]:
    """Round to six significant digits: more would be noise on a page."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def _accuracy(model: FittedModel, data: Labelled, kind: str) -> dict[str, Any]:
    values = decision(data.rows(model.support_features_), model.coef_, model.intercept_)
    found: dict[str, Any] = model.target_.measures(data.y, values)
    if "accuracy" in found:
        found["largest_class"] = float(data.members.mean(axis=1).max())  # the accuracy of always naming that class
        right = binomtest(round(found["accuracy"] * data.n_samples), data.n_samples)
        # the training samples are no sample of new ones: an interval would claim too much
        found["interval"] = list(right.proportion_ci(method="wilson")) if kind == "test" else None
    return {"kind": kind, "name": data.name, "n_samples": data.n_samples, **found}


def _names(model: FittedModel, groups: dict[str, Any] | None) -> dict[str, list[Any]] | None:
    """Return the names of the members on the page except the supports; None if features have no names."""
    if groups is None or not model.names_:
        return None
    supports = set(model.support_features_.tolist())
    shown = sorted({feature for members in groups["feature"] for feature in members} - supports)
    names = [model.names_.get(feature, str(feature)) for feature in shown]
    return {"feature": shown, "name": shorten(names, MEMBER_NAME_BUDGET)}


def shorten(names: list[str], budget: int) -> list[str]:
    """Shorten names to fit a budget of characters; the end of a long name is replaced by its length.

    Examples
    --------
    >>> shorten(["ab", "c" * 50], 30)
    ['ab', 'cccccccccccccccccccccccccccc… (50 characters)']
    """
    limit = max(16, level(np.array([len(name) for name in names]), budget))
    return [name if len(name) <= limit else f"{name[:limit]}… ({len(name):,} characters)" for name in names]
