"""The working set: the best free features of the last read with their rows, from which cuts are taken.

One read of the data serves several cuts: the features needed by the next cuts are nearly always among the best of this
one. Correlations within the set, and with the supports, are computed on first use and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gdm_dask.engine.data import Data
from gdm_dask.features.block import Block, stack
from gdm_dask.features.groups import Search
from gdm_dask.features.measures import PEARSON, Measure
from gdm_dask.features.ranking import ALL_SAMPLES, Fold, Question, Ranked, Ranking, ScorePass, merge
from gdm_dask.features.scores import interleaved, scores
from gdm_dask.master.rows import in_parallel

if TYPE_CHECKING:
    from gdm_dask.features.variables import Variables

#: Maximum number of values in the rows of a pool.
POOL_VALUES = 20_000_000
#: A part of a pass returns this many times the rows of its fair share of the set.
ROWS_SHARE = 3
#: Number of values that a thread scores at a time.
SCORED_AT_ONCE = 1 << 20
#: Scores below this part of ||A|| are rounding errors: such features are not candidates.
NEGLIGIBLE = 1e-12


@dataclass
class Supports:
    """Supports found so far, with their rows, and the features known to be covered by them."""

    limit: float  # |rho| from which two features correlate
    measure: Measure = PEARSON
    features: list[int] = field(default_factory=list)  # in order of entry
    rows: Block | None = None  # raw
    covered: set[int] = field(default_factory=set)  # features known to correlate with a support
    excluded: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # never supports, increasing
    #: Features that enter together, see `VariableSupports`; without any, each feature is a variable of its own.
    variables: Variables | None = None

    @property
    def starts(self) -> np.ndarray:
        """Position of the first feature of each variable."""
        return np.arange(len(self.features))

    @property
    def n_entered(self) -> int:
        """Number of variables."""
        return len(self.starts)

    @property
    def firsts(self) -> np.ndarray:
        """First feature of each variable."""
        return np.array(self.features, np.int64)

    def sizes(self, duals: np.ndarray) -> np.ndarray:
        """|Score| of each variable."""
        return sizes_of(self.rows, duals)

    def counts(self, places: np.ndarray) -> np.ndarray:
        """Number of features of some variables."""
        return np.ones(len(places), np.int64)

    def expand(self, places: np.ndarray) -> np.ndarray:
        """Positions of the features of some variables."""
        return places

    def working_set(self, seen: Seen) -> WorkingSet:
        """Return the working set of a read."""
        return WorkingSet(seen, self)

    @property
    def constrains(self) -> bool:
        """Whether features can correlate at all; False for tau = 0."""
        return bool(np.isfinite(self.limit))

    def add(self, features: list[int], rows: Block) -> None:
        """Add new supports."""
        self.features += features
        self.rows = rows if self.rows is None else stack([self.rows, rows])

    def search(self) -> Search | None:
        """Prepare the supports for a comparison with all features; None if there is nothing to compare."""
        if self.rows is None or not self.constrains:
            return None
        return self.measure.search(self.rows, self.limit)

    def known(self) -> np.ndarray:
        """Features that a read can leave out."""
        known = np.array(sorted({*self.features, *self.covered}), np.int64)
        return np.union1d(known, self.excluded) if len(self.excluded) else known


@dataclass
class Pool:
    """Features that cuts passed over, with their rows: in the end one of them may replace a support."""

    features: list[int] = field(default_factory=list)
    n_values: int = 0  # in their rows
    _rows: list[Block] = field(default_factory=list)

    def add(self, features: np.ndarray, rows: Block) -> None:
        """Add further features, unless the pool already has too many values."""
        if len(features) and self.n_values + rows.n_values <= POOL_VALUES:
            self.features += features.tolist()
            self.n_values += rows.n_values
            self._rows.append(rows)

    def without(self, supports: list[int], most: int) -> tuple[list[int], Block | None]:
        """Return the first pool features that are not supports, at most `most`, and their rows."""
        known = set(supports)
        others = [place for place, feature in enumerate(self.features) if feature not in known][:most]
        if not others:
            return [], None
        return [self.features[place] for place in others], stack(self._rows).rows(np.array(others))


@dataclass
class WholeRows:
    """Raw rows with all samples, for a problem on some of the samples: the others will judge."""

    is_needed: bool  # the problem has only some of the samples; if not, nothing is kept
    _features: list[int] = field(default_factory=list)
    _rows: list[Block] = field(default_factory=list)

    def add(self, features: np.ndarray, rows: Block) -> None:
        """Keep the rows of further features."""
        if self.is_needed and len(features):
            self._features += features.tolist()
            self._rows.append(rows)

    def rows(self, features: np.ndarray) -> Block:
        """Return the rows of features that were kept."""
        places = {feature: place for place, feature in enumerate(self._features)}
        return stack(self._rows).rows(np.array([places[feature] for feature in features.tolist()], np.int64))


class Seen(NamedTuple):
    """Result of a read for one problem."""

    features: np.ndarray  # the best free features
    rows: Block  # raw
    floor: float  # upper bound on the |score| of every other free feature
    whole: Block | None = None  # raw rows with all samples, if the problem has only some samples


class WorkingSet:
    """Features of one read, for the cuts until the next read.

    Parameters
    ----------
    seen : Seen
    supports : Supports
        Supports of the problem that the set belongs to.
    """

    def __init__(self, seen: Seen, supports: Supports) -> None:
        self.features, self.rows, self.floor, self.whole = seen
        weigh = supports.measure.weigh
        self.compared = self.rows if weigh is None else weigh(self.rows)
        self.row_features = features = self.features
        self.n_cuts = 0
        self.supports = supports
        self._is_free = np.ones(len(features), bool)
        self._n_compared = np.zeros(len(features), np.int64)
        self._rho_sums = np.zeros(len(features))
        self._place = np.full(len(features), -1)
        self._rho = np.full((0, 0), np.nan)

    @property
    def n_compared(self) -> int:
        """Number of features that were compared with others."""
        return int(np.count_nonzero(self._place >= 0))

    @property
    def is_fresh(self) -> bool:
        """Whether no cut was taken from the set, so that its floor holds for the current scores."""
        return self.n_cuts == 0

    def passed(self, order: np.ndarray) -> list[int]:
        """Return the positions in `order` that were compared with others."""
        compared = (self._place[order] >= 0) | (self._n_compared[order] > 0)
        return order[compared].tolist() if self.supports.constrains else []

    def sizes(self, duals: np.ndarray) -> np.ndarray:
        """|score| of each feature, over all outputs."""
        return sizes_of(self.rows, duals)

    def counts(self, positions: np.ndarray) -> np.ndarray:
        """Number of rows of some features."""
        return np.ones(len(positions), np.int64)

    def expand(self, positions: np.ndarray) -> np.ndarray:
        """Positions of the rows of some features."""
        return positions

    def can_share(self, position: int) -> bool:
        """Whether a clique may hold a feature beside others: its distances to others are a metric."""
        return True

    def order(self, sizes: np.ndarray, least: float) -> np.ndarray:
        """Positions of the features not known to be covered, largest size first."""
        there = np.flatnonzero(self._is_free & (sizes > least))
        return there[np.lexsort((self.features[there], -sizes[there]))]

    def free(self, positions: np.ndarray) -> np.ndarray:
        """Return the given positions that no support covers."""
        supports = self.supports
        if supports.rows is None or not supports.constrains:
            return positions
        for first in np.unique(self._n_compared[positions]).tolist():
            if first == len(supports.features):
                continue
            mine = positions[self._n_compared[positions] == first]
            others = supports.rows.span(first, len(supports.features))
            rho = self._compare(mine, others)
            self._cover(mine[rho.max(axis=1) >= supports.limit])
            self._rho_sums[mine] += rho.sum(axis=1)
            self._n_compared[mine] = len(supports.features)
        free: np.ndarray = positions[self._is_free[positions]]
        return free

    def redundancy(self, positions: np.ndarray) -> np.ndarray:
        """Mean |correlation| with the supports, of features that are free; rounded, since sums differ in last bits."""
        means: np.ndarray = self._rho_sums[positions] / max(1, len(self.supports.features))
        return means.round(9)

    def _cover(self, positions: np.ndarray) -> None:
        self._is_free[positions] = False
        self.supports.covered.update(self.features[positions].tolist())

    def _compare(self, positions: np.ndarray, others: Block) -> np.ndarray:
        """Compute the |correlation| of features with some rows."""
        rho: np.ndarray = np.abs(self.supports.measure.compare(self.compared.rows(positions), others))
        return rho

    def _compare_here(self, positions: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Compute the |correlation| of features with others."""
        return self._compare(positions, self.compared.rows(others))

    def rho(self, positions: np.ndarray, others: np.ndarray) -> np.ndarray:
        """|correlation| of features with others."""
        if not self.supports.constrains:
            return np.zeros((len(positions), len(others)))
        self.examine(np.concatenate([positions, others]))
        at, to = self._place[positions], self._place[others]
        found = self._rho[np.ix_(at, to)]
        missing = np.isnan(found)
        if missing.any():
            rows, columns = missing.any(axis=1), missing.any(axis=0)
            fresh = self._compare_here(positions[rows], others[columns])
            self._rho[np.ix_(at[rows], to[columns])] = fresh
            self._rho[np.ix_(to[columns], at[rows])] = fresh.T
            found = self._rho[np.ix_(at, to)]
        return found

    def without_copies(self, positions: np.ndarray) -> np.ndarray:
        """Drop exact copies of earlier features; keep the order.

        Copies have the same conflicts, and a cut holds at most one of them: the first is enough.
        """
        if not self.supports.constrains:
            return positions
        moments = np.stack([self.rows.means[positions], self.rows.norms[positions]])
        _, owner, counts = np.unique(moments, axis=1, return_inverse=True, return_counts=True)
        seen: set[tuple[int, bytes]] = set()
        kept = np.ones(len(positions), bool)
        for place in np.flatnonzero(counts[owner] > 1):
            content = int(owner[place]), self.rows.digest(int(positions[place]))
            kept[place] = content not in seen
            seen.add(content)
        return positions[kept]

    def examine(self, positions: np.ndarray) -> None:
        """Count features as compared, and make room for their correlations."""
        fresh = np.unique(positions[self._place[positions] < 0])
        first = self.n_compared
        self._place[fresh] = np.arange(first, first + len(fresh))
        if first + len(fresh) > len(self._rho):
            grown = np.full((2 * (first + len(fresh)),) * 2, np.nan)
            grown[: len(self._rho), : len(self._rho)] = self._rho
            self._rho = grown

    def take(self, positions: Sequence[int]) -> Block | None:
        """Turn features into supports; return their rows."""
        self.n_cuts += 1
        if not len(positions):
            return None
        chosen = np.asarray(positions, np.int64)
        expanded = self.expand(chosen)
        rows = self.rows.rows(expanded)
        self._is_free[chosen] = False
        self.supports.add(self.row_features[expanded].tolist(), rows)
        return rows


def sizes_of(rows: Block | None, duals: np.ndarray) -> np.ndarray:
    """|score| of each row, over all outputs."""
    if rows is None or not rows.n_rows:
        return np.zeros(0)
    columns, parts = interleaved(duals), rows.pieces(SCORED_AT_ONCE, rows.n_rows)
    found = np.concatenate(in_parallel(lambda part: scores(part, duals, None, columns), parts), axis=1)
    sizes: np.ndarray = np.abs(found[0]) if len(found) == 1 else np.sqrt(np.add.reduce(found * found))
    return sizes


def read(data: Data, questions: Sequence[Question], folds: Sequence[Fold] = ()) -> Iterator[Seen]:
    """Read the data once for all questions, see `score_pass`; each result is assembled when it is requested."""
    pass_ = score_pass(questions, folds, min(1.0, ROWS_SHARE / data.n_parts))
    return seen_by(data, pass_, data.run(pass_))


def score_pass(questions: Sequence[Question], folds: Sequence[Fold] = (), share: float = 1.0) -> ScorePass:
    """Pass for all questions, each about the samples of its fold; questions on the same fold share it."""
    distinct: list[Fold] = []
    asked = []
    for question, own in zip(questions, [*folds] or [ALL_SAMPLES] * len(questions), strict=True):
        number = next((place for place, fold in enumerate(distinct) if fold.is_same(own)), len(distinct))
        if number == len(distinct):
            distinct.append(own)
        asked.append(replace(question, share=share, fold=number))
    return ScorePass(asked, distinct)


def seen_by(data: Data, pass_: ScorePass, ranked: Ranked) -> Iterator[Seen]:
    """Yield the result of a pass for each question; read the rows that the pass did not return."""
    seen, fold = None, -1
    for place, (question, ranking) in enumerate(zip(pass_.questions, ranked.rankings, strict=True)):
        if question.variables is None:
            features, floor = _best(question, ranking)
        else:
            variables, members = question.variables.ranked(ranked.together.get(place, []), question.known)
            features, floor = _best(question, merge([ranking, variables], question.k))
            features = question.variables.expand(features, members)
        if seen is not None and fold == question.fold and np.array_equal(features, seen.features):
            seen = seen._replace(floor=floor)  # candidates share the rows
        else:
            seen = None  # makes room
            rows, fold = _rows(data, ranked, features), question.fold
            seen = Seen(features, pass_.folds[fold].of(rows), floor, rows)
        yield seen


def _best(question: Question, ranking: Ranking) -> tuple[np.ndarray, float]:
    """Return the features of a ranking that make up the working set, and a bound on the |score| of all others."""
    n_wanted = question.n_wanted(ranking)
    others = ranking.scores[n_wanted:]
    return ranking.features[:n_wanted], float(abs(others[0])) if len(others) else ranking.floor


def _rows(data: Data, ranked: Ranked, features: np.ndarray) -> Block:
    """Return the rows of features; read those that the pass did not return."""
    here = ranked.has(features)
    if not here.any():
        return data.rows(features)
    if here.all():
        return ranked.rows(features)
    rows = stack([ranked.rows(features[here]), data.rows(features[~here])])
    return rows.rows(np.argsort(np.concatenate([np.flatnonzero(here), np.flatnonzero(~here)])))
