"""What the information measures share: discrete features are compared by the information that they have in common.

No pair shares more information than the lower of its entropies. So a support is compared only with features whose
entropy is close to its own; supports are sorted by it. The entropy of a sparse feature is at least that of where it is
nonzero, and at most that plus the entropy of its nonzeros: most rare features are ruled out before they are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.groups import Pairs, merge_pairs, nonzero_weights
from gdm_dask.features.states import (
    MAX_STATES,
    Index,
    States,
    count_states,
    index,
    most_states,
    shared_information,
    states,
    too_many,
)

#: Maps the shared information and both entropies to a value in [0, 1], elementwise.
Normalise: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

#: Values numbered at a time, and pairs compared at a time.
VALUES_AT_ONCE, PAIRS_AT_ONCE = 1 << 18, 1 << 19
#: Widens bounds on entropies against rounding.
SLACK = 1.0 + 1e-9


def compare(rows: Block, others: Block, normalise: Normalise) -> np.ndarray:
    """Return the value of every row with every other row."""
    own = states(rows)
    theirs = own if others is rows else states(others)
    first, last = np.zeros(rows.n_rows, np.int64), np.full(rows.n_rows, others.n_rows)
    shared = shared_information(own, theirs, index(theirs), first, last)
    return normalise(shared, own.entropies[:, None], theirs.entropies)


@dataclass(frozen=True)
class InformationSearch:
    """States of supports, by increasing entropy."""

    supports: States
    order: np.ndarray  # position of each support among the given supports
    parts: Sequence[Index]
    limit: float
    #: A pair whose lower entropy is a smaller part of the other one is below the limit, whatever it shares.
    least_ratio: float
    normalise: Normalise

    def find(self, block: Block) -> Pairs:
        """Return the features of a block that correlate with a support."""
        n_rows = max(1, PAIRS_AT_ONCE // len(self.order))
        return merge_pairs([self._find(rows) for rows in block.pieces(VALUES_AT_ONCE, n_rows)])

    def _find(self, block: Block) -> Pairs:
        local = np.flatnonzero(self._is_near(block))
        own = states(block.rows(local))
        first, last = self._near(own.entropies, own.entropies)
        shared = shared_information(own, self.supports, self.parts, first, last)
        values = self.normalise(shared, own.entropies[:, None], self.supports.entropies)
        row, place = np.nonzero(values >= self.limit)
        support, n_scanned = self.order[place], int(np.count_nonzero(first < last))
        order = np.lexsort((support, row))
        row, place = row[order], place[order]
        return Pairs(
            support[order], local[row] + block.start, values[row, place], n_scanned, block.n_rows - n_scanned
        )  # fmt: skip

    def _near(self, least: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the supports within reach of features with entropies in between, as a range."""
        first = np.searchsorted(self.supports.entropies, least * (self.least_ratio / SLACK))
        last = np.searchsorted(self.supports.entropies, most * (SLACK / self.least_ratio), side="right")
        return first, np.where(most > 0.0, last, first)

    def _is_near(self, block: Block) -> np.ndarray:
        """Return which rows may have a support within reach, by their nonzeros."""
        if block.indptr is None:
            return np.ones(block.n_rows, bool)
        share = np.minimum(nonzero_weights(block) / block.total_weight, 1.0)
        least = _binary_entropies(share)
        values = np.zeros(block.n_rows) if block.values is None else np.log2(np.clip(block.counts(), 1, MAX_STATES))
        first, last = self._near(least / SLACK, least * SLACK + share * values + 1e-9)
        return first < last


def search(supports: Block, limit: float, least_ratio: float, normalise: Normalise) -> InformationSearch:
    """Prepare supports for the comparison with all features."""
    order = np.argsort(states(supports).entropies, kind="stable")
    ordered = states(supports.rows(order))
    return InformationSearch(ordered, order, index(ordered), limit, least_ratio, normalise)


def _binary_entropies(share: np.ndarray) -> np.ndarray:
    """Return the entropy of each share and its complement, in bits."""
    inside, outside = np.maximum(share, 1e-300), np.maximum(1.0 - share, 1e-300)
    entropies: np.ndarray = -(inside * np.log2(inside) + outside * np.log2(outside))
    return entropies


class Many(NamedTuple):
    """A feature with too many values: how many, and how many it may have."""

    feature: int
    n_states: int
    most: int


@dataclass(frozen=True)
class FewValues:
    """Pass that refuses features with too many values, before a fit."""

    name = "check"

    def begin(self) -> list[Many]:
        """Return no features."""
        return []

    def see(self, part: list[Many], block: Block) -> None:
        """Add the first feature of a block that has too many values, and how many."""
        most = most_states(block.n_samples)
        for rows in block.pieces(VALUES_AT_ONCE, block.n_rows):
            n_states = count_states(rows, most)
            part += [
                Many(rows.start + int(row), int(n_states[row]), most) for row in np.flatnonzero(n_states > most)[:1]
            ]

    def merge(self, parts: Sequence[list[Many]]) -> list[Many]:
        """Keep the first feature."""
        return sorted(found for part in parts for found in part)[:1]

    def finish(self, part: list[Many]) -> None:
        """Refuse the feature."""
        for feature, n_states, most in part:
            raise too_many(f"feature {feature}", n_states, most)
