"""Groups by other linkages than the star: cliques and connected components of the graph of correlated features.

The star of a support holds all features that correlate with it, and is found in one read (`features/groups.py`).

- *Clique*: walk down the star, largest |rho| first, and keep each feature that correlates with all kept before. Any two
  members correlate. Features within half the conflict distance of the support correlate with each other, because
  distances are a metric, and need not be compared; the rows of the others are read again.
- *Component*: follow correlations from feature to feature until no new one is found. Each round of new features costs a
  read, in which they are compared with all features. Supports that are linked share their members.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from gdm_dask.cutting_plane.matching import DISTANCE_SLACK
from gdm_dask.engine.data import Data
from gdm_dask.features.block import Block
from gdm_dask.features.groups import GroupPass, Pairs
from gdm_dask.features.measures import Measure
from gdm_dask.features.ranking import Fold

logger = logging.getLogger(__name__)

#: Maximum number of values in the rows that are read at a time, and of the rows.
LINK_VALUES, LINK_ROWS = 5_000_000, 2048
#: A component is followed up to this many links from a support, and until this many features have been compared.
MAX_LINKS, MAX_LINKED = 20, 20_000
#: Decimals of |rho| by which features are ordered: further ones are rounding errors.
DECIMALS = 9


@dataclass(frozen=True)
class Linker:
    """Changes stars into other groups."""

    data: Data
    fold: Fold  # samples and weights of the problem
    measure: Measure
    limit: float  # |rho| from which two features correlate
    supports: np.ndarray
    rows: Block  # raw rows of the supports

    def link(self, stars: Pairs, linkage: str) -> Pairs:
        """Return the pairs of the groups by a linkage, given the pairs of the stars."""
        if linkage == "clique":
            return self.cliques(stars)
        return self.components(stars) if linkage == "component" else stars

    def cliques(self, stars: Pairs) -> Pairs:
        """Return the pairs of a clique of each star."""
        kept = np.zeros(len(stars.feature), bool)
        for place, support in enumerate(self.supports):
            mine = np.flatnonzero(stars.support == place)
            sizes = np.abs(stars.rho[mine])
            order = np.lexsort((stars.feature[mine], -sizes.round(DECIMALS), stars.feature[mine] != support))
            kept[mine[order][self._clique(stars.feature[mine[order]], sizes[order])]] = True
        return replace(stars, support=stars.support[kept], feature=stars.feature[kept], rho=stars.rho[kept])

    def _clique(self, features: np.ndarray, sizes: np.ndarray) -> list[int]:
        """Return the positions of the features of a star, best first, that are kept."""
        distances = np.array([self.measure.distance(size) for size in sizes.tolist()])
        widest = self.measure.distance(self.limit) - DISTANCE_SLACK
        far = np.flatnonzero(distances > widest / 2)
        members = [*range(int(far[0]) if len(far) else len(features))]
        for some in self._batches(np.arange(len(members), len(features))):
            rows = self._read(features[some])
            is_free = np.ones(len(some), bool)
            reach = widest - distances[some]
            unsure = np.array([member for member in members if distances[member] > reach.min()], np.int64)
            for others in self._batches(unsure):
                close = np.abs(self.measure.compare(rows, self._read(features[others]))) >= self.limit
                is_free &= (close | (distances[others] <= reach[:, None])).all(axis=1)
            close = np.abs(self.measure.compare(rows, rows)) >= self.limit
            close |= distances[some] <= reach[:, None]
            kept: list[int] = []
            for place in np.flatnonzero(is_free).tolist():
                if close[place, kept].all():
                    kept.append(place)
            members += some[kept].tolist()
        return members

    def components(self, stars: Pairs) -> Pairs:
        """Return the pairs of each support with all features of its component."""
        edges = [np.stack([self.supports[stars.support], stars.feature])]
        known, n_scanned, n_skipped = np.unique(self.supports), stars.n_scanned, stars.n_skipped
        features, values = [self.supports], [self.measure.compare(self.rows, self.rows)]
        n_links = 0
        while len(fresh := np.setdiff1d(edges[-1][1], known)):
            if n_links == MAX_LINKS or len(known) + len(fresh) > MAX_LINKED:
                warnings.warn(_not_closed(n_links, len(fresh)), UserWarning, stacklevel=5)
                break
            found = []
            for some in self._batches(fresh):
                rows = self._read(some)
                features.append(some)
                values.append(self.measure.compare(rows, self.rows))
                pairs = self.data.run(GroupPass(self.measure.search(rows, self.limit), self.fold))
                found.append(np.stack([some[pairs.support], pairs.feature]))
                n_scanned, n_skipped = n_scanned + pairs.n_scanned, n_skipped + pairs.n_skipped
            known = np.union1d(known, fresh)
            edges.append(np.concatenate(found, axis=1))
            n_links += 1
            logger.info("component: %d features within %d links", len(known), n_links)
        if n_links == 0 and len(fresh):
            return stars
        members = _linked(np.concatenate(features), np.concatenate(edges, axis=1), len(self.supports))
        member, place = np.nonzero(members)
        feature, rho = np.concatenate(features)[member], np.concatenate(values)[member, place]
        order = np.lexsort((place, feature))
        return Pairs(place[order], feature[order], rho[order], n_scanned, n_skipped)

    def _read(self, features: np.ndarray) -> Block:
        return self.fold.of(self.data.rows(features))

    def _batches(self, features: np.ndarray) -> Iterator[np.ndarray]:
        """Cut features into batches whose rows have few values, if they have as many as the longest support."""
        longest = self.rows.n_samples
        if self.rows.is_sparse:
            longest = min(longest, math.ceil(int(self.rows.counts().max()) / self.limit**2))
        step = max(1, min(LINK_ROWS, LINK_VALUES // max(1, longest)))
        for first in range(0, len(features), step):
            yield features[first : first + step]


def _linked(features: np.ndarray, edges: np.ndarray, n_supports: int) -> np.ndarray:
    """Return which features are linked with which of the first `n_supports` of them, (features, supports)."""
    order = np.argsort(features)
    edges = edges[:, np.isin(edges[1], features)]
    at, to = order[np.searchsorted(features[order], edges)]
    graph = sp.coo_array((np.ones(len(at), bool), (at, to)), shape=(len(features),) * 2)
    label = connected_components(graph, directed=False)[1]
    linked: np.ndarray = label[:, None] == label[:n_supports]
    return linked


def _not_closed(n_links: int, n_fresh: int) -> str:
    within = f"the features within {n_links} links of a support" if n_links else "the features of its star"
    return (
        f"linkage='component' stopped: {n_fresh:,} more features are linked. Each group holds {within}. "
        "Use a smaller tau, or linkage='star' or 'clique'."
    )
