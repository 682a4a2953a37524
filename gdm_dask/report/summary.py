"""Summary of a fit in three sentences: supports and groups, accuracy, proof."""

from __future__ import annotations

import math
from typing import Any

from gdm_dask.model import FittedModel
from gdm_dask.system.resources import plural

#: Reasons to stop, in words.
REASONS = {
    "tolerance": "the bounds met within the tolerance",
    "max_cuts": "the limit of cuts was reached",
    "repeated cut": "the best cut was one that is there already",
    "nothing left": "no feature with a score was left",
    "enough supports": "as many supports as wanted were found",
}


def outcome(model: FittedModel) -> str:
    """Describe how a fit ended; a gap is the goal only if the number of supports is not given."""
    wanted, found = model.get_params()["n_features_to_select"], len(model.support_features_)
    if wanted is None:
        return "converged" if model.converged_ else "not converged"
    return f"stopped at {'' if found == wanted else f'{found:,} of '}{plural(wanted, 'support')}"


def certificate(model: FittedModel) -> str | None:
    """Describe what was proved about the choice of k supports, and its cost; None if no proof was requested."""
    if model.certified_share_ is None:
        return None
    any_set = plural(model.get_params()["n_features_to_select"], "uncorrelated feature" if model.tau > 0 else "feature")
    took = f"took {plural(model.counts_['certify_passes'], 'read')} of the data"
    share = math.floor(1000 * model.certified_share_) / 1000  # rounding up would claim more than is proved
    if share == 0:
        return f"Nothing could be proved about the best {any_set}; the attempt {took}."
    return f"The supports explain at least {share:.1%} of what any {any_set} can explain; the proof {took}."


#: Sources of C, in words.
SOURCES = {"given": "as given", "fixed": "for all data", "rule": "by the number of samples for each support"}


def trade_off(model: FittedModel) -> str:
    """Describe how C was chosen."""
    path = model.C_path_
    if path is None:
        return SOURCES["given"]
    how, tried = path["how"], path["candidates"]
    if how == "folds":
        best = min(row["loss"] for row in tried)
        mine = tried[path["chosen"]]
        how = (
            f"by {path['n_folds']} folds, the most shrunk of {len(tried)} within one standard error of the best: "
            f"held-out loss {mine['loss']:.3f}, best {best:.3f}"
        )
    chosen = "" if path["C_choice"] is None else f", and {path['C_choice']:g} to choose among those that entered"
    weighed = "; the search gave both classes the same weight" if path.get("is_balanced") else ""
    return f"{SOURCES.get(how, how)}{chosen}{weighed}"


def headline(accuracy: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the accuracy to quote: on test data if there is any."""
    by_kind = {entry["kind"]: entry for entry in accuracy}
    return by_kind.get("test") or by_kind.get("training")


def sentence(report: dict[str, Any]) -> str:
    """Return the three sentences about a fit."""
    return " ".join([_found(report), _does(report), _proved(report)]).replace("  ", " ")


def _found(report: dict[str, Any]) -> str:
    data, facts = report["data"], report["facts"]
    samples = "" if data["n_samples"] is None else f" over {plural(data['n_samples'], 'sample')}"
    text = f"Of {plural(data['n_features'], 'feature')}{samples}, {facts['n_supports']:,} "
    text += "is a support" if facts["n_supports"] == 1 else "are supports"
    if facts["n_affiliated"]:
        n_speaking = facts["n_groups_with_affiliated"]
        who = f"{n_speaking:,} of them speak{'s' if n_speaking == 1 else ''}"
        if n_speaking == facts["n_supports"]:
            who = "it speaks" if n_speaking == 1 else "each of them speaks"
        text += f"; {who} for a group of affiliated features, {facts['n_affiliated']:,} in all"
    elif facts["n_affiliated"] == 0:
        text += ", and no other feature correlates with one of them"
    return text + "."


def _does(report: dict[str, Any]) -> str:
    best = headline(report["accuracy"])
    rate = f"a redundancy rate of {report['facts']['redundancy_rate']:.3f}"
    if best is None:
        return f"They have {rate}."
    if "r2" in best:
        explained = "an undefined part" if best["r2"] is None else f"{best['r2']:.2%}"
        return f"A ridge regression on the supports explains {explained} of the {best['kind']} variance, with {rate}."
    right = f"right on {best['accuracy']:.2%} of the {best['kind']} samples"
    return f"A linear SVM on the supports is {right}, with {rate}."


def _proved(report: dict[str, Any]) -> str:
    facts = report["facts"]
    took = f"{plural(facts['n_cuts'], 'cut')} took {facts['seconds']:,.1f} s"
    if facts["wanted"] is not None:
        return f"{took}; the fit {facts['outcome']}. {facts['certificate'] or 'The choice was not certified.'}"
    if facts["converged"]:
        return f"{took}; the cutting plane converged: its bounds prove a gap of {facts['gap']:.2%} at most."
    reason = REASONS.get(facts["stopped"], facts["stopped"])
    return (
        f"{took}; the fit stopped because {reason}. "
        f"It is not proved optimal: the bounds leave a gap of {facts['gap']:.1%}."
    )
