"""Supports and working sets of a search among variables: each variable comes with all its features.

See `features.variables` for their scores. Two variables correlate if a feature of one correlates with a feature of the
other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gdm_dask.cutting_plane.working_set import Seen, Supports, WorkingSet, sizes_of
from gdm_dask.features.block import Block
from gdm_dask.features.variables import Variables, norms_of, spread
from gdm_dask.settings.constraints import Constraints


@dataclass
class VariableSupports(Supports):
    """Supports that are the features of variables, one variable after the other."""

    @property
    def known_variables(self) -> Variables:
        """The variables."""
        assert self.variables is not None
        return self.variables

    @property
    def starts(self) -> np.ndarray:
        """Position of the first feature of each variable."""
        return self.known_variables.starts_of(np.array(self.features, np.int64))

    @property
    def firsts(self) -> np.ndarray:
        """First feature of each variable."""
        firsts: np.ndarray = self.known_variables.firsts_of(np.array(self.features, np.int64))[self.starts]
        return firsts

    def sizes(self, duals: np.ndarray) -> np.ndarray:
        """Norm of the scores of each variable."""
        return norms_of(sizes_of(self.rows, duals), self.starts)

    def counts(self, places: np.ndarray) -> np.ndarray:
        """Number of features of some variables."""
        counts: np.ndarray = np.diff(self.starts, append=len(self.features))[places]
        return counts

    def expand(self, places: np.ndarray) -> np.ndarray:
        """Positions of the features of some variables."""
        return spread(self.starts[places], self.counts(places))

    def working_set(self, seen: Seen) -> WorkingSet:
        """Return the working set of a read."""
        return VariableSet(seen, self)


class VariableSet(WorkingSet):
    """Variables of one read, and a bound on the score of all other variables.

    `seen` holds all features of the variables, one variable after the other. Positions are those of variables,
    `features` their first features, `row_features` the feature of each row.
    """

    def __init__(self, seen: Seen, supports: VariableSupports) -> None:
        starts = supports.known_variables.starts_of(seen.features)
        firsts = supports.known_variables.firsts_of(seen.features)[starts]
        super().__init__(seen._replace(features=firsts), supports)
        self.row_features = seen.features
        self._starts, self._counts = starts, np.diff(starts, append=len(seen.features))

    def sizes(self, duals: np.ndarray) -> np.ndarray:
        """Norm of the scores of each variable."""
        return norms_of(sizes_of(self.rows, duals), self._starts)

    def counts(self, positions: np.ndarray) -> np.ndarray:
        """Number of rows of some variables."""
        counts: np.ndarray = self._counts[positions]
        return counts

    def expand(self, positions: np.ndarray) -> np.ndarray:
        """Positions of the rows of some variables."""
        return spread(self._starts[positions], self._counts[positions])

    def can_share(self, position: int) -> bool:
        """Whether a variable is a single feature: the nearness of several features is no metric."""
        return bool(self._counts[position] == 1)

    def without_copies(self, positions: np.ndarray) -> np.ndarray:
        """Keep all: the rows of variables are not compared."""
        return positions

    def _compare(self, positions: np.ndarray, others: Block) -> np.ndarray:
        """Largest |correlation| of the features of variables with some rows."""
        rho: np.ndarray = np.abs(self.supports.measure.compare(self.compared.rows(self.expand(positions)), others))
        return np.maximum.reduceat(rho, self._firsts(positions), axis=0) if len(positions) else rho

    def _compare_here(self, positions: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Largest |correlation| between the features of two variables."""
        by_row = self._compare(positions, self.compared.rows(self.expand(others)))
        if not by_row.size:
            return np.zeros((len(positions), len(others)))
        return np.maximum.reduceat(by_row, self._firsts(others), axis=1)

    def _firsts(self, positions: np.ndarray) -> np.ndarray:
        counts = self._counts[positions]
        firsts: np.ndarray = np.cumsum(counts) - counts
        return firsts


def constrained(supports: Supports, constraints: Constraints) -> Supports:
    """Return new supports under constraints."""
    found = replace(supports, excluded=constraints.exclude, variables=constraints.variables)
    return found if constraints.variables is None else VariableSupports(**vars(found))
