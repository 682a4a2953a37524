"""Samples that no row and no target tells apart: one of them, with their total weight, stands for all.

One-hot data hold few different samples: of 100,000, a tenth may differ on 300 features. Groups of equal samples are
refined row by row: a row splits each group into the samples that it holds and the others. This is exact, in one look at
each entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.master.rows import Rows
from gdm_dask.master.sparse_kernels import SPAN, SparseRows
from gdm_dask.system.jit import kernel

WORTH = 2
"""Samples are merged if at most one in this many differs from all before it."""


@dataclass(frozen=True)
class EqualSamples:
    """Groups of equal samples, numbered by their first samples."""

    group: np.ndarray  # of each sample, (n,)
    first: np.ndarray  # sample of each group, increasing

    def rows(self, rows: Rows) -> Rows:
        """Return the rows over the first sample of each group."""
        bounds, places, _ = rows.sparse.entries
        merged = SparseRows(len(self.first))
        merged.append(*_kept(bounds, places, self.group, self.first))
        return rows.over_samples(len(self.first), merged)

    def weights(self, weights: np.ndarray | None) -> np.ndarray:
        """Return the total weight of each group."""
        return np.bincount(self.group, weights).astype(np.float64)


def equal_samples(rows: Rows, targets: np.ndarray, weights: np.ndarray | None) -> EqualSamples | None:
    """Find the groups of equal samples; None if they are too many, or if rows hold other values than 0 and 1.

    Parameters
    ----------
    rows : Rows
    targets : ndarray of shape (n_outputs, n_samples)
        -1 or +1.
    weights : ndarray of shape (n_samples,) or None
        Samples without weight form groups of their own.

    Examples
    --------
    >>> rows = Rows(8)
    >>> rows.append(np.eye(8)[2:3], means=np.array([0.125]), norms=np.array([0.875**0.5]))
    >>> targets = np.array([[1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0]])
    >>> found = equal_samples(rows, targets, None)
    >>> found.group.tolist(), found.first.tolist(), found.weights(None).tolist()
    ([0, 0, 1, 0, 0, 2, 0, 0], [0, 2, 5], [6.0, 1.0, 1.0])
    """
    bounds, places, values = rows.sparse.entries
    if not rows.is_sparse or values is not None or not (np.abs(targets) == 1.0).all():
        return None
    n, most = rows.n_samples, rows.n_samples // WORTH
    group, size, number = np.zeros(n, np.int32), np.zeros(most + 1, np.int32), np.full(most + 1, -1, np.int32)
    hits, fresh, origin = (np.zeros(most + 1, np.int32) for _ in range(3))
    size[0], n_groups = n, 1
    for some_bounds, some_places in ((bounds, places), _marks(targets, weights)):
        n_groups = _refine(some_bounds, some_places, group, n_groups, size, hits, fresh, origin)
        if n_groups > most:
            return None
    first = np.zeros(n_groups, np.int64)
    _renumber(group, number, first)
    return EqualSamples(group, first)


def _marks(targets: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive samples of each target, and the samples without weight, in the form of sparse features."""
    parts = [np.flatnonzero(y > 0.0) for y in targets]
    if weights is not None:
        parts.append(np.flatnonzero(weights == 0.0))
    samples = np.concatenate(parts)
    marks = SparseRows(targets.shape[1])
    marks.append(np.array([part.size for part in parts]), samples, np.ones(samples.size, np.uint8))
    return marks.entries[:2]


def _kept(
    bounds: np.ndarray, places: np.ndarray, group: np.ndarray, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries at the first sample of each group: their numbers, the groups as samples, and their values."""
    counts, samples = np.zeros(len(bounds), np.int64), np.empty(int((bounds[:, -1] - bounds[:, 0]).sum()), np.int32)
    n_kept = _keep(bounds, places, group, first, counts, samples)
    return counts, samples[:n_kept], np.ones(n_kept, np.uint8)


@kernel
def _refine(bounds, places, group, n_groups, size, hits, fresh, origin):  # type: ignore[no-untyped-def]
    """Split the groups by every feature; return how many there are, or a number beyond the room for their sizes."""
    for j in range(len(bounds)):
        known = n_groups
        for span in range(bounds.shape[1] - 1):
            for p in range(bounds[j, span], bounds[j, span + 1]):
                hits[group[span * SPAN + places[p]]] += 1
        for span in range(bounds.shape[1] - 1):
            for p in range(bounds[j, span], bounds[j, span + 1]):
                sample = span * SPAN + places[p]
                old = group[sample]
                if hits[old] == size[old]:
                    continue
                if fresh[old] == 0:
                    if n_groups == len(size):
                        return n_groups
                    fresh[old], origin[n_groups] = n_groups, old
                    n_groups += 1
                group[sample] = fresh[old]
        for new in range(known, n_groups):
            old = origin[new]
            size[new] = hits[old]
            size[old] -= hits[old]
            hits[old] = fresh[old] = 0
        for span in range(bounds.shape[1] - 1):
            for p in range(bounds[j, span], bounds[j, span + 1]):
                hits[group[span * SPAN + places[p]]] = 0
    return n_groups


@kernel
def _renumber(group, number, first):  # type: ignore[no-untyped-def]
    """Number the groups by their first samples."""
    n_seen = 0
    for sample in range(len(group)):
        old = group[sample]
        if number[old] < 0:
            number[old] = n_seen
            first[n_seen] = sample
            n_seen += 1
        group[sample] = number[old]


@kernel
def _keep(bounds, places, group, first, counts, samples):  # type: ignore[no-untyped-def]
    """Write the groups whose first samples each feature holds; return their total number."""
    at = 0
    for j in range(len(bounds)):
        begin = at
        for span in range(bounds.shape[1] - 1):
            for p in range(bounds[j, span], bounds[j, span + 1]):
                sample = span * SPAN + places[p]
                if first[group[sample]] == sample:
                    samples[at] = group[sample]
                    at += 1
        counts[j] = at - begin
    return at
