"""Compare methods over many sets: mean differences with standard errors, wins and losses, ranks.

A set counts once: its seeds are averaged first. If a method returned fewer features than requested, both methods are
compared at that number: the other method's value is interpolated between its own selections, over the logarithm of the
number of features. Below its smallest selection there is nothing to interpolate, and the seed is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import studentized_range

from .table import done

#: Level of the Nemenyi test.
LEVEL = 0.05
#: Share of the sets on which a method needs results to be ranked.
COVERED = 0.8
#: Smaller differences are rounding errors.
TIE = 1e-12


@dataclass(frozen=True)
class Difference:
    """A method minus a reference at one number of features, over all sets with results of both.

    Attributes
    ----------
    mean, error : float
        Mean difference in score, and its standard error over the sets (NaN with fewer than two sets).
    wins, losses : int
        Number of sets on which the method is ahead, and behind.
    redundancy, reference_redundancy : float
        Mean redundancy rate of the method, and of the reference.
    n_sets : int
    """

    mean: float
    error: float
    wins: int
    losses: int
    redundancy: float
    reference_redundancy: float
    n_sets: int


def difference(table: pd.DataFrame, method: str, reference: str, size: int, like_for_like: bool = True) -> Difference:
    """Compare two methods at a number of features."""
    pairs = pd.DataFrame(
        list(_pairs(table, method, reference, size, like_for_like)),
        columns=["data", "score", "reference_score", "redundancy", "reference_redundancy"],
    )
    sets = pairs.groupby("data").mean()
    gains = (sets["score"] - sets["reference_score"]).to_numpy(float)
    return Difference(
        float(gains.mean()) if len(gains) else np.nan,
        standard_error(gains),
        int((gains > TIE).sum()),
        int((gains < -TIE).sum()),
        float(sets["redundancy"].mean()),
        float(sets["reference_redundancy"].mean()),
        len(gains),
    )


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean.

    >>> float(standard_error(np.array([1.0, 3.0])))
    1.0
    """
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _pairs(table: pd.DataFrame, method: str, reference: str, size: int, like_for_like: bool) -> Iterator[tuple]:
    first, second = (_curves(table, name) for name in (method, reference))
    for key in sorted(first.keys() & second.keys()):
        both = first[key], second[key]
        if all(size in curve for curve in both):
            n_features = min(curve[size].n_features for curve in both) if like_for_like else None
            ours, others = (_at(curve, size, n_features) for curve in both)
            if ours is not None and others is not None:
                yield key[0], ours.score, others.score, ours.redundancy, others.redundancy


class Selection(NamedTuple):
    """Size and criteria of a selection."""

    n_features: float
    score: float
    redundancy: float


#: Selections of one method on one seed of a set, by the requested number of features.
Curve = dict[int, Selection]


def _curves(table: pd.DataFrame, method: str) -> dict[tuple[str, int], Curve]:
    rows = done(table[table["method"] == method])
    found: dict[tuple[str, int], Curve] = {}
    for row in rows[["data", "seed", "size", *Selection._fields]].itertuples(index=False):
        found.setdefault((row.data, row.seed), {})[int(row.size)] = Selection(*row[3:])
    return found


def _at(curve: Curve, size: int, n_features: float | None) -> Selection | None:
    """Return a selection, interpolated down to `n_features` if it has more."""
    if n_features is None or curve[size].n_features <= n_features:
        return curve[size]
    return interpolated([curve[smaller] for smaller in sorted(curve) if smaller <= size], n_features)


def interpolated(selections: Sequence[Selection], n_features: float) -> Selection | None:
    """Interpolate a selection of `n_features` between others; None below the smallest.

    >>> found = interpolated([Selection(10, 0.6, 0.2), Selection(40, 0.8, 0.1)], 20)
    >>> [round(float(value), 3) for value in found]
    [20.0, 0.7, 0.15]
    """
    points = sorted({one.n_features: one for one in selections}.values())
    if n_features < points[0].n_features:
        return None
    at, numbers = np.log(n_features), np.log([point.n_features for point in points])
    score, redundancy = (float(np.interp(at, numbers, values)) for values in list(zip(*points, strict=True))[1:])
    return Selection(n_features, score, redundancy)


@dataclass(frozen=True)
class Ranks:
    """Average ranks of methods over sets, with the critical difference.

    Attributes
    ----------
    average : Series
        Average rank of each method, best first.
    critical : float
        Smaller differences may be chance, by the Nemenyi test at the 5 % level.
    n_sets : int
    """

    average: pd.Series
    critical: float
    n_sets: int


def ranks(table: pd.DataFrame, methods: Sequence[str], size: int) -> Ranks:
    """Rank methods by their score."""
    scores = common(table, methods, size, "score")
    average = scores.round(12).rank(axis=1, ascending=False).mean().sort_values(kind="stable")
    return Ranks(average, critical_difference(len(average), len(scores)), len(scores))


def common(table: pd.DataFrame, methods: Sequence[str], size: int, criterion: str) -> pd.DataFrame:
    """Average a criterion by set and method, over the sets on which all methods have a result.

    Methods that ran on few sets are left out; they would leave few sets for the others.
    """
    rows = done(table)
    rows = rows[(rows["size"] == size) & rows["method"].isin(methods)]
    means = rows.groupby(["data", "method"])[criterion].mean().unstack("method")
    counts = means.count()
    return means[counts.index[counts >= COVERED * counts.max()]].dropna()


def critical_difference(n_methods: int, n_sets: int) -> float:
    """Return Nemenyi's critical difference of average ranks (Demsar, 2006).

    >>> round(critical_difference(5, 30), 3), round(critical_difference(2, 10), 3)
    (1.114, 0.62)
    """
    if n_methods < 2 or n_sets < 1:
        return float("nan")
    quantile = studentized_range.ppf(1 - LEVEL, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def cliques(average: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Return first and last position of each maximal run of sorted ranks within the critical difference.

    >>> cliques([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(average):
        last = max((place for place, other in enumerate(average) if other - rank <= critical), default=first)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
