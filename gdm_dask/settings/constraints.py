"""Constraints on the supports: features that must be supports, features that must not, features that enter together.

Let I be the included and E the excluded features. A selection is feasible if it holds all of I, none of E, and
otherwise only features that correlate neither with each other nor with I. Features of I may correlate with each other.

*Search.* A cut of (4) is then ``I + f``, with at most B further features f. Its squared scores sum to

    sum of c_j^2 over I  +  sum of c_j^2 over f,

so (6) is the sum over I plus (6) over the free features, and a bound on the latter gives a bound on (4). The first cut
is I itself, and every later cut holds I. In (5), the weights W_I can be shared among the cuts in proportion to the
norms of their other weights W_t, which costs

    1/2 ((sum_t ||W_t||)^2 + ||W_I||^2):

the included features are not penalised for the number of cuts that hold them.

*Certificate for k.* A dual A of the master problem proves, for all feasible S of k features at once,

    1 / (4 P(S)) <= (quad(A) + 1/2 (sum of c_j^2 over I + q)) / lin(A)^2

where q bounds the sum of squared scores of k - |I| uncorrelated features outside of I and E that no feature of I
covers. The gain of S is ``P(I) - P(S)``: the choice takes no credit for I.

*Variables.* If some features enter together, as the one-hot columns of a variable do, all statements are about
variables: a feature on its own is one, a cut holds at most B, and k counts them. Two variables correlate if a feature
of one correlates with a feature of the other; correlations within a variable count for nothing. A cut is a union of
variables, so the squared scores of its features sum to the sum over its variables v of

    c_v^2 = sum of c_j^2 over the features j of v,

and (6) is the same problem with c_v as the score of v. The bounds need no more than that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from crc32c import crc32c

from gdm_dask.errors import BadInput
from gdm_dask.features.variables import Variables

#: Bytes of a feature number; and of a feature that enters with others: its number, first feature, score and length, and
#: a copy of all but the second.
NUMBER_BYTES, TOGETHER_BYTES = 8, 56
#: Gives the names of all features, in order, or None if they have none.
Names = Callable[[], Iterable[str] | None]


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Constraints:
    """Features that must or must not be supports."""

    include: np.ndarray = field(
        default_factory=_none
    )  # always supports: sorted by variable, each with its other features
    exclude: np.ndarray = field(default_factory=_none)  # never supports, increasing
    labels: Mapping[int, str] = field(
        default_factory=dict
    )  # features that were named to be included, as they were given
    variables: Variables | None = None  # features that enter together
    titles: Mapping[int, str] = field(default_factory=dict)  # name of each variable, by its first feature

    @property
    def n_included(self) -> int:
        """Number of included variables."""
        return len(self.include) if self.variables is None else len(self.variables.starts_of(self.include))

    @property
    def nbytes(self) -> int:
        """Bytes that a read needs for each problem: excluded features, and scores of features that enter together."""
        n_together = 0 if self.variables is None else len(self.variables.features)
        return NUMBER_BYTES * len(self.exclude) + TOGETHER_BYTES * n_together

    def most_features(self, n_variables: int) -> int:
        """Most features that some variables may have."""
        return n_variables if self.variables is None else self.variables.most_features(n_variables)

    def selected(self, supports: np.ndarray) -> dict[str, list[int]]:
        """Map the name of each variable that was selected to its supports, increasing."""
        found: dict[str, list[int]] = {}
        if self.variables is not None:
            ordered = np.sort(supports)
            for first, feature in zip(self.variables.firsts_of(ordered).tolist(), ordered.tolist(), strict=True):
                if first in self.titles:
                    found.setdefault(self.titles[first], []).append(feature)
        return found

    def refuse_constant(self, is_constant: np.ndarray) -> None:
        """Refuse features that were named to be included but are constant."""
        for feature in self.include[is_constant].tolist():
            if feature in self.labels:
                raise BadInput(f"`include`: feature {self.labels[feature]} is constant: leave it out")

    def described(self) -> dict[str, str | None]:
        """Return a short description of each constraint that differs if the features do."""
        together = _none() if self.variables is None else np.stack([self.variables.features, self.variables.firsts])
        given = {"include": self.include, "exclude": self.exclude, "groups_of": together}
        return {name: _described(features) for name, features in given.items()}


def _described(features: np.ndarray) -> str | None:
    n_features = features.shape[-1]
    return f"{n_features} features with checksum {crc32c(features.tobytes()):08x}" if n_features else None


def resolve(
    parameters: Mapping[str, Any], n_features: int, names: Names, covariates: Mapping[str, list[int]] | None = None
) -> Constraints | None:
    """Return the constraints that the parameters of an estimator name; None if they name no feature.

    `names` is called only if there are names to look up. `covariates` are the features of each covariate of a store:
    they are included unless they are excluded, and `include` and `exclude` may name a covariate.

    Examples
    --------
    >>> found = resolve({"include": ["age", "sex"], "exclude": [0]}, 3, lambda: ["id", "sex", "age"])
    >>> found.include.tolist(), found.exclude.tolist()
    ([1, 2], [0])
    """
    covariates = covariates or {}
    given = {name: _members(as_list(name, parameters.get(name)), covariates) for name in ("include", "exclude")}
    together = named_variables(parameters.get("groups_of"), n_features)
    items = itertools.chain(*given.values(), *together.values())
    place = _places([item for item in items if isinstance(item, str)], names)
    found = {name: _numbers(f"`{name}`", items, n_features, place) for name, items in given.items()}
    include, exclude = np.sort(found["include"]), np.sort(found["exclude"])
    both = np.intersect1d(include, exclude)
    if len(both):
        raise BadInput(f"`include` and `exclude` both name feature {both[0]}: remove it from one of them")
    if n_features and len(exclude) == n_features:
        raise BadInput("`exclude` names all features: leave some out of it")
    labels = dict(zip(found["include"].tolist(), map(str, given["include"]), strict=True))
    include = np.union1d(include, np.setdiff1d(list(itertools.chain(*covariates.values())), exclude).astype(np.int64))
    variables, titles = _variables(together, exclude, n_features, place)
    include = include if variables is None else variables.members_of(include)
    constraints = Constraints(include, exclude, labels, variables, titles)
    k = parameters.get("n_features_to_select")
    if k is not None and constraints.n_included > k:
        raise BadInput(
            f"`include` must name at most n_features_to_select={k} features, got {constraints.n_included}"
            f"{', with the covariates of the store' if covariates else ''}: raise the number, or include fewer"
        )
    return constraints if len(include) or len(exclude) or variables is not None else None


def _members(items: Sequence[Any], covariates: Mapping[str, list[int]]) -> list[Any]:
    """Return features, with those of a covariate in place of its name."""
    return [one for item in items for one in (covariates.get(item, [item]) if isinstance(item, str) else [item])]


def _variables(
    lists: Mapping[str, Sequence[Any]], exclude: np.ndarray, n_features: int, places: dict[str, list[int]] | None
) -> tuple[Variables | None, dict[int, str]]:
    """Return the variables of at least two features that are not excluded, and their names by first feature."""
    kept: dict[str, np.ndarray] = {}
    owner: dict[int, str] = {}
    for title, items in lists.items():
        numbers = np.sort(_numbers(f"variable {title!r} of `groups_of`", items, n_features, places))
        for feature in numbers.tolist():
            if feature in owner:
                raise BadInput(
                    f"`groups_of`: feature {feature} belongs to {owner[feature]!r} and to {title!r}: name it in one"
                )
            owner[feature] = title
        kept[title] = numbers[~np.isin(numbers, exclude)] if len(exclude) else numbers
    kept = {title: numbers for title, numbers in kept.items() if len(numbers) > 1}
    titles = {int(numbers[0]): title for title, numbers in kept.items()}
    return (Variables.of([*kept.values()]) if kept else None), titles


def named_variables(value: Any, n_features: int) -> dict[str, Sequence[Any]]:
    """Return the features of each variable of `groups_of`; variables without a name are numbered.

    >>> named_variables(["age", "colour", "colour"], 3), named_variables([["red", "blue"], [5, 7]], 9)
    ({'age': [0], 'colour': [1, 2]}, {'0': ['red', 'blue'], '1': [5, 7]})
    """
    if isinstance(value, Mapping):
        return {str(title): as_list(f"groups_of[{title!r}]", features) for title, features in value.items()}
    items = as_list("groups_of", value)
    if items and all(isinstance(item, Iterable) and not isinstance(item, str | bytes) for item in items):
        return {str(number): as_list(f"groups_of[{number}]", item) for number, item in enumerate(items)}
    if items and len(items) != n_features:
        raise BadInput(
            f"`groups_of` must be a dict or a list of lists of features, or have the variable of each of the "
            f"{n_features} features, got a list of {len(items)}"
        )
    found: dict[str, Any] = {}
    for feature, title in enumerate(items):
        if not _is_missing(title):  # else a feature on its own
            found.setdefault(str(title), []).append(feature)
    return found


def _is_missing(title: Any) -> bool:
    """Return whether there is no title: None, or what pandas puts in its place."""
    return title is None or title is pd.NA or bool(title != title)


def as_list(name: str, value: Any) -> list[Any]:
    """Return the given features as a list."""
    if value is None:
        return []
    items = value.tolist() if hasattr(value, "tolist") else value  # of NumPy, pandas or Arrow
    if isinstance(items, str | bytes | Iterator) or not isinstance(items, Iterable):  # a next fit needs them again
        raise BadInput(f"`{name}` must be None or a list of names or numbers of features, got {value!r}")
    return list(items)


def _places(wanted: Sequence[str], names: Names) -> dict[str, list[int]] | None:
    """Return the numbers of the features with these names, or None if features have no names."""
    if not wanted:
        return {}
    known = names()
    if known is None:
        return None
    found: dict[str, list[int]] = {name: [] for name in wanted}
    for number, name in enumerate(known):
        if name in found:
            found[name].append(number)
    return found


def _numbers(where: str, items: Sequence[Any], n_features: int, places: dict[str, list[int]] | None) -> np.ndarray:
    """Return the numbers of features given by names or numbers."""
    numbers = np.array([_number(where, item, n_features, places) for item in items], np.int64)
    features, counts = np.unique(numbers, return_counts=True)
    if len(features) < len(numbers):
        twice = items[int(np.flatnonzero(numbers == features[counts > 1][0])[-1])]
        raise BadInput(f"{where} names feature {twice!r} twice: name each feature once")
    return numbers


def _number(where: str, item: Any, n_features: int, places: dict[str, list[int]] | None) -> int:
    """Return the number of a feature given by its name, or by its number; as text if there are no names."""
    if isinstance(item, str) and places is not None:
        found = places[item]
        if len(found) > 1:
            raise BadInput(f"{where}: features {found[0]} and {found[1]} are both named {item!r}: pass their numbers")
        if not found:
            raise BadInput(f"{where}: no feature is named {item!r}: check the spelling, or pass its number")
        return found[0]
    if isinstance(item, str) and not item.isdecimal():
        raise BadInput(f"{where}: the features have no names, got {item!r}: pass numbers from 0 to {n_features - 1}")
    if isinstance(item, bool | np.bool_) or not isinstance(item, str | int | np.integer):
        raise BadInput(f"{where} must be a list of names or numbers of features, got {item!r} in it")
    number = int(item)
    if not 0 <= number < n_features:
        raise BadInput(f"{where}: feature {number} is out of range: features are numbered 0 to {n_features - 1}")
    return number
