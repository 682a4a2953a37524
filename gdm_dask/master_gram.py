"""Second moments of the stored features over the samples that enter or leave the active set.

Sums are taken of the features as they are stored, and normalised at the end: what sparse rows lack to normalised
ones is a factor and a constant, so their sums correct the sums of their products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.compiled import compiled
from gdm_dask.master_sparse import Entries, cross_sparse, gram_sparse, pair_sparse, total_sparse

BLOCK = 1024
"""Samples of dense rows that are taken at a time, so that they stay in the second cache."""


@dataclass
class Moments:
    """Sums over samples of the features as they are stored.

    Attributes
    ----------
    gram : (d, d) array
        Sum of the products of two features, in the lower triangle.
    sums, signed : (d,) arrays
        Sums of the features, and of the features times the label.
    count, labels : int, float
        Number of samples, and sum of their labels.
    """

    gram: np.ndarray
    sums: np.ndarray
    signed: np.ndarray
    count: int = 0
    labels: float = 0.0

    @classmethod
    def zeros(cls, n_rows: int) -> Moments:
        """Return the sums over no samples."""
        return cls(np.zeros((n_rows, n_rows)), np.zeros(n_rows), np.zeros(n_rows))

    def padded(self, n_rows: int) -> Moments:
        """Return the same sums with zeros for further features."""
        more = n_rows - self.sums.size
        gram, sums, signed = np.pad(self.gram, (0, more)), np.pad(self.sums, (0, more)), np.pad(self.signed, (0, more))
        return Moments(gram, sums, signed, self.count, self.labels)

    def add(self, other: Moments) -> None:
        """Add the sums over other samples."""
        self.gram += other.gram
        self.sums += other.sums
        self.signed += other.signed
        self.count += other.count
        self.labels += other.labels

    def add_sparse(self, rows: Entries, begin: int, end: int, change: np.ndarray, y: np.ndarray) -> None:
        """Add what concerns sparse rows alone, and count the samples."""
        count, labels = gram_sparse(*rows, begin, end, change, y, self.gram, self.sums, self.signed)
        self.count += count
        self.labels += labels

    def add_new(self, rows: Entries, begin: int, end: int, first_row: int, y: np.ndarray) -> None:
        """Add what concerns the sparse rows from `first_row` on, over all samples of a range."""
        bounds, places, values = rows
        total_sparse(bounds[first_row:], places, values, begin, end, y, self.sums[first_row:], self.signed[first_row:])
        pair_sparse(*rows, begin, end, first_row, self.gram)

    def add_dense(
        self,
        dense: np.ndarray,
        at: np.ndarray,
        sparse_rows: Entries,
        begin: int,
        end: int,
        change: np.ndarray,
        y: np.ndarray,
    ) -> None:
        """Add the products of the dense rows, at the positions `at`, with each other and with sparse rows."""
        square = np.zeros((at.size, at.size))
        for sign in (1, -1):
            chosen = begin + np.flatnonzero(change[begin:end] == sign)
            for first in range(0, chosen.size, BLOCK):
                samples = chosen[first : first + BLOCK]
                block = _gather(dense, at.size, samples)
                # Numpy lets other threads run meanwhile, which scipy's dsyrk does not.
                square += sign * (block @ block.T)
                self.sums[at] += sign * block.sum(axis=1)
                self.signed[at] += sign * (block @ y[samples])
        self.gram[np.ix_(at, at)] += np.tril(square)
        if at.size < self.sums.size:
            self._add_across(dense, at, sparse_rows, begin, end, change)

    def _add_across(
        self, dense: np.ndarray, at: np.ndarray, sparse_rows: Entries, begin: int, end: int, change: np.ndarray
    ) -> None:
        """Add the products of each dense row with the sparse rows."""
        for row, position in zip(dense, at, strict=False):
            products = np.zeros(self.sums.size)
            cross_sparse(*sparse_rows, begin, end, change, row, products)
            self.gram[position, :position] += products[:position]
            self.gram[position:, position] += products[position:]

    def normalised(self, scales: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the Gram matrix and the signed sums of the features times their scales, less their shifts."""
        gram = np.tril(self.gram) + np.tril(self.gram, -1).T
        gram *= np.outer(scales, scales)
        sums = self.sums * scales
        gram -= np.outer(sums, shifts)
        gram -= np.outer(shifts, sums - self.count * shifts)
        return gram, self.signed * scales - self.labels * shifts


@compiled
def _gather(dense, n_rows, samples):  # type: ignore[no-untyped-def]
    block = np.empty((n_rows, samples.size))
    for j in range(n_rows):
        for k in range(samples.size):
            block[j, k] = dense[j, np.uint64(samples[k])]
    return block
