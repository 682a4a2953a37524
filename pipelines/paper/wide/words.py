"""Texts about the wide suite in FINDINGS.md: each function fills a placeholder ``{{wide NAME ...}}``."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from .. import registry
from ..compare import Difference, common, difference, ranks
from ..suites import SUITES, WIDE, part_name
from ..table import done
from ..verdicts import BEFORE, KEPT, KEPT_SIZES, OURS, RARE, RARE_SIZE, seeds_of, verdicts

_SUITE = SUITES[WIDE]


def differences(table: pd.DataFrame, reference: str, manner: str = "alike") -> str:
    """Tabulate each method minus a reference: mean, standard error, wins and losses; `manner` is alike or returned."""

    def show(found: Difference) -> str:
        return f"{found.mean:+.4f} ± {found.error:.4f}, {found.wins} : {found.losses} ({found.n_sets})"

    return _compared(table, reference, show, manner == "alike")


def redundancy(table: pd.DataFrame, reference: str) -> str:
    """Tabulate mean redundancy rates, with the reference's at the same numbers of features in brackets."""
    return _compared(
        table, reference, lambda found: f"{found.redundancy:.4f} ({found.reference_redundancy:.4f})", True
    )  # fmt: skip


def _compared(table: pd.DataFrame, reference: str, show: Callable[[Difference], str], like_for_like: bool) -> str:
    rows = []
    for method in _methods(table):
        if method != reference:
            found = [difference(table, method, reference, size, like_for_like) for size in _SUITE.sizes]
            rows.append([_name(method), *(show(one) if one.n_sets else "" for one in found)])
    return _table(["features", *map(str, _SUITE.sizes)], rows)


def average_ranks(table: pd.DataFrame) -> str:
    """Tabulate the average ranks of the methods, without ablations, and the critical difference."""
    found = [ranks(table, _SUITE.methods, size) for size in _SUITE.sizes]
    rows = [
        [_name(method), *(f"{one.average[method]:.2f}" if method in one.average else "" for one in found)]
        for method in _methods(table)
        if method in _SUITE.methods
    ]
    rows.append(["critical difference", *(f"{one.critical:.2f}" for one in found)])
    sizes = [f"{size} ({one.n_sets} sets)" for size, one in zip(_SUITE.sizes, found, strict=True)]
    return _table(["features", *sizes], rows)


def means(table: pd.DataFrame, criterion: str, digits: str = "4") -> str:
    """Tabulate means over the sets on which all methods have a result, seeds averaged first; without ablations."""
    found = {size: common(table, _SUITE.methods, size, criterion).mean() for size in _SUITE.sizes}
    rows = [
        [_name(method), *(f"{found[size][method]:.{digits}f}" if method in found[size] else "" for size in found)]
        for method in _methods(table)
        if any(method in one for one in found.values())
    ]
    return _table(["features", *map(str, found)], rows)


def rare(table: pd.DataFrame) -> str:
    """Tabulate the average precision of the rare class."""
    rows = [
        [_name(method), *(_mean(seeds_of(table, part, method, RARE_SIZE)["average_precision"], 3) for part in RARE)]
        for method in _methods(table)
    ]
    return _table([f"{RARE_SIZE} features", *RARE], rows)


def kept(table: pd.DataFrame) -> str:
    """Tabulate the scores of the defaults and of version 0.1's, on the sets where nothing may be lost."""
    rows = []
    for part in KEPT:
        for method in (OURS, BEFORE, "l1_svm"):
            found = [seeds_of(table, part, method, size) for size in KEPT_SIZES]
            rows.append([part, _name(method), *(_mean(one["score"], 4) for one in found)])
    return _table(["data", "method", *map(str, KEPT_SIZES)], rows)


def judged(table: pd.DataFrame) -> str:
    """List the verdicts, one per line."""
    words = {True: "**holds**", False: "**does not hold**", None: "not measured"}
    return "\n".join(
        f"- {sentence}: {words[holds]}" + (f" ({figures})." if holds is not None else ".")
        for sentence, holds, figures in verdicts(table)
    )


def count(table: pd.DataFrame, what: str) -> str:
    """Count the sets with results, or the seeds per set."""
    rows = done(table)
    return str(rows["data"].nunique() if what == "sets" else rows.groupby("data")["seed"].nunique().min())


def absent(table: pd.DataFrame) -> str:
    """List the sets of the suite without a result."""
    rows = done(table)
    there = set(rows["dataset"])
    missing = dict.fromkeys(part_name(name, n) for name, n in _SUITE.parts if name not in there)
    return ", ".join(missing) or "none"


def _methods(table: pd.DataFrame) -> list[str]:
    there = set(done(table)["method"])
    return [method for method in (*_SUITE.methods, *_SUITE.ablations) if method in there]


def _name(method: str) -> str:
    return registry.method(method).NAME


def _mean(values: pd.Series, digits: int) -> str:
    return f"{values.mean():.{digits}f}" if len(values) else ""


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---")


WORDS: dict[str, Callable[..., str]] = {
    "differences": differences, "redundancy": redundancy, "ranks": average_ranks, "means": means, "rare": rare,
    "kept": kept, "verdicts": judged, "count": count, "absent": absent,
}  # fmt: skip
