"""Constraints on the supports: features that must be supports, and features that must not.

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
covers. The gain of S is ``P(I) - P(S)``: what is due to I is no merit of the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from crc32c import crc32c

from gdm_dask.errors import BadInput

#: Gives the names of all features, in order, or None if they have none.
Names = Callable[[], Iterable[str] | None]


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Constraints:
    """Features that must or must not be supports.

    Attributes
    ----------
    include : ndarray of int64, increasing
        Features that are always supports.
    exclude : ndarray of int64, increasing
        Features that never are.
    labels : list of str
        The included features as they were given, for messages.
    """

    include: np.ndarray = field(default_factory=_none)
    exclude: np.ndarray = field(default_factory=_none)
    labels: Sequence[str] = ()

    def refuse_constant(self, is_constant: np.ndarray) -> None:
        """Refuse included features that are constant."""
        for place in np.flatnonzero(is_constant).tolist():
            raise BadInput(f"`include`: feature {self.labels[place]} is constant: leave it out")

    def described(self) -> dict[str, str | None]:
        """Return a short description of each constraint that differs if the features do."""
        return {"include": _described(self.include), "exclude": _described(self.exclude)}


def _described(features: np.ndarray) -> str | None:
    return f"{len(features)} features with checksum {crc32c(features.tobytes()):08x}" if len(features) else None


def resolve(parameters: Mapping[str, Any], n_features: int, names: Names) -> Constraints | None:
    """Return the constraints that the parameters of an estimator name; None if they name no feature.

    Parameters
    ----------
    parameters : dict
        `include` and `exclude`: None, or lists of names and numbers of features. `n_features_to_select` limits the
        number of included features.
    n_features : int
    names : callable
        See `Names`; called only if there are names to look up.

    Examples
    --------
    >>> found = resolve({"include": ["age", "sex"], "exclude": [0]}, 3, lambda: ["id", "sex", "age"])
    >>> found.include.tolist(), found.exclude.tolist()
    ([1, 2], [0])
    """
    given = {name: _as_list(name, parameters.get(name)) for name in ("include", "exclude")}
    place = _places([item for items in given.values() for item in items if isinstance(item, str)], names)
    found = {name: _numbers(name, items, n_features, place) for name, items in given.items()}
    order = np.argsort(found["include"])
    include, exclude = found["include"][order], np.sort(found["exclude"])
    both = np.intersect1d(include, exclude)
    if len(both):
        raise BadInput(f"`include` and `exclude` both name feature {both[0]}: remove it from one of them")
    k = parameters.get("n_features_to_select")
    if k is not None and len(include) > k:
        raise BadInput(
            f"`include` must name at most n_features_to_select={k} features, got {len(include)}: raise the number, or "
            "include fewer"
        )
    if n_features and len(exclude) == n_features:
        raise BadInput("`exclude` names all features: leave some out of it")
    labels = [str(given["include"][place]) for place in order]
    return Constraints(include, exclude, labels) if len(include) or len(exclude) else None


def _as_list(name: str, value: Any) -> Sequence[Any]:
    """Return the given features as a list."""
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise BadInput(f"`{name}` must be None or a list of names or numbers of features, got {value!r}")
    return list(value.tolist() if isinstance(value, np.ndarray) else value)


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


def _numbers(name: str, items: Sequence[Any], n_features: int, places: dict[str, list[int]] | None) -> np.ndarray:
    """Return the numbers of features given by names or numbers."""
    numbers = np.array([_number(name, item, n_features, places) for item in items], np.int64)
    features, counts = np.unique(numbers, return_counts=True)
    if len(features) < len(numbers):
        twice = items[int(np.flatnonzero(numbers == features[counts > 1][0])[-1])]
        raise BadInput(f"`{name}` names feature {twice!r} twice: name each feature once")
    return numbers


def _number(name: str, item: Any, n_features: int, places: dict[str, list[int]] | None) -> int:
    """Return the number of a feature given by its name, or by its number; as text if there are no names."""
    if isinstance(item, str) and places is not None:
        found = places[item]
        if len(found) > 1:
            raise BadInput(f"`{name}`: features {found[0]} and {found[1]} are both named {item!r}: pass their numbers")
        if not found:
            raise BadInput(f"`{name}`: no feature is named {item!r}: check the spelling, or pass its number")
        return found[0]
    if isinstance(item, str) and not item.isdecimal():
        raise BadInput(f"`{name}`: the features have no names, got {item!r}: pass numbers from 0 to {n_features - 1}")
    if isinstance(item, bool | np.bool_) or not isinstance(item, str | int | np.integer):
        raise BadInput(f"`{name}` must be None or a list of names or numbers of features, got {item!r} in it")
    number = int(item)
    if not 0 <= number < n_features:
        raise BadInput(f"`{name}`: feature {number} is out of range: features are numbered 0 to {n_features - 1}")
    return number
