"""A run in one sentence or three, in plain words."""

from __future__ import annotations

from typing import Any

#: What the reasons to stop mean to a reader.
REASONS = {
    "tolerance": "the bounds met within the tolerance",
    "max_cuts": "the limit of cuts was reached",
    "repeated cut": "the best cut was one that is there already",
    "nothing left": "no feature with a score was left",
    "enough supports": "as many supports as wanted were found",
}


def plural(number: int, word: str) -> str:
    """A number with its noun.

    >>> plural(1, "cut"), plural(2000, "cut")
    ('1 cut', '2,000 cuts')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def headline(accuracy: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The accuracy to speak of: on test data where there is some."""
    by_kind = {entry["kind"]: entry for entry in accuracy}
    return by_kind.get("test") or by_kind.get("training")


def sentence(report: dict[str, Any]) -> str:
    """What was found, how well it does, and what is proved of it."""
    return " ".join([_found(report), _does(report), _proved(report)]).replace("  ", " ")


def _found(report: dict[str, Any]) -> str:
    data, facts = report["data"], report["facts"]
    samples = "" if data["n_samples"] is None else f" over {plural(data['n_samples'], 'sample')}"
    text = f"Of {plural(data['n_features'], 'feature')}{samples}, {facts['n_supports']:,} "
    text += "is a support" if facts["n_supports"] == 1 else "are supports"
    if facts["n_affiliated"]:
        speak = "speaks" if facts["n_groups_with_affiliated"] == 1 else "speak"
        text += (
            f"; {facts['n_groups_with_affiliated']:,} of them {speak} for a group of affiliated features, "
            f"{facts['n_affiliated']:,} in all"
        )
    elif facts["n_affiliated"] == 0:
        text += ", and no other feature correlates with one of them"
    return text + "."


def _does(report: dict[str, Any]) -> str:
    best = headline(report["accuracy"])
    rate = f"a redundancy rate of {report['facts']['redundancy_rate']:.3f}"
    if best is None:
        return f"They have {rate}."
    right = f"right on {best['accuracy']:.2%} of the {best['kind']} samples"
    return f"A linear SVM on the supports is {right}, with {rate}."


def _proved(report: dict[str, Any]) -> str:
    facts = report["facts"]
    took = f"{plural(facts['n_cuts'], 'cut')} took {facts['seconds']:,.1f} s"
    if facts["converged"]:
        return f"{took}; the cutting plane converged: its bounds prove a gap of {facts['gap']:.2%} at most."
    reason = REASONS.get(facts["stopped"], facts["stopped"])
    return (
        f"{took}; the fit stopped because {reason}. "
        f"It is not proved optimal: the bounds leave a gap of {facts['gap']:.1%}."
    )
