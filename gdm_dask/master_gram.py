"""Second moments of the stored features over the samples that enter or leave the active set.

Sums are taken of the features as they are stored, and normalised at the end: what sparse rows lack to normalised
ones is a factor and a constant, so their sums correct the sums of their products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gdm_dask.compiled import compiled

BLOCK = 1024
"""Samples of dense rows that are taken at a time, so that they stay in the second cache."""

BySample: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Offsets per sample (n + 1), and the positions and values of the sparse features of all samples; no
values where all are 1."""


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

    def add(self, other: Moments) -> None:
        """Add the sums over other samples."""
        self.gram += other.gram
        self.sums += other.sums
        self.signed += other.signed
        self.count += other.count
        self.labels += other.labels

    def add_sparse(self, rows: BySample, begin: int, end: int, change: np.ndarray, y: np.ndarray) -> None:
        """Add what concerns sparse rows alone, and count the samples."""
        count, labels = _gram_sparse(*rows, begin, end, change, y, self.gram, self.sums, self.signed)
        self.count += count
        self.labels += labels

    def add_dense(
        self,
        dense: np.ndarray,
        at: np.ndarray,
        sparse_rows: BySample,
        begin: int,
        end: int,
        change: np.ndarray,
        y: np.ndarray,
    ) -> None:
        """Add the products of the dense rows, at the positions `at`, with each other and with sparse rows."""
        square = np.zeros((at.size, at.size))
        cross = np.zeros((at.size, self.sums.size))
        for sign in (1, -1):
            chosen = begin + np.flatnonzero(change[begin:end] == sign)
            for first in range(0, chosen.size, BLOCK):
                samples = chosen[first : first + BLOCK]
                block = _gather(dense, at.size, samples)
                # Numpy lets other threads run meanwhile, which scipy's dsyrk does not.
                square += sign * (block @ block.T)
                self.sums[at] += sign * block.sum(axis=1)
                self.signed[at] += sign * (block @ y[samples])
                if at.size < self.sums.size:
                    _gram_across(*sparse_rows, samples, sign, block, cross)
        self.gram[np.ix_(at, at)] += np.tril(square)
        for row, position in zip(cross, at, strict=True):
            self.gram[position, :position] += row[:position]
            self.gram[position:, position] += row[position:]

    def normalised(self, scales: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the Gram matrix and the signed sums of the features times their scales, less their shifts."""
        gram = np.tril(self.gram) + np.tril(self.gram, -1).T
        gram *= np.outer(scales, scales)
        sums = self.sums * scales
        gram -= np.outer(sums, shifts)
        gram -= np.outer(shifts, sums - self.count * shifts)
        return gram, self.signed * scales - self.labels * shifts


@compiled
def _gram_sparse(indptr, positions, values, begin, end, change, y, gram, sums, signed):  # type: ignore[no-untyped-def]
    count, labels = 0, 0.0
    for i in range(begin, end):
        if change[i] != 0:
            count += change[i]
            labels += change[i] * y[i]
            for p in range(indptr[i], indptr[i + 1]):
                value = 1.0 * change[i] if values is None else change[i] * values[p]
                row = gram[positions[p]]
                sums[positions[p]] += value
                signed[positions[p]] += value * y[i]
                for q in range(indptr[i], p + 1):
                    row[positions[q]] += value if values is None else value * values[q]
    return count, labels


@compiled
def _gather(dense, n_rows, samples):  # type: ignore[no-untyped-def]
    block = np.empty((n_rows, samples.size))
    for j in range(n_rows):
        for k in range(samples.size):
            block[j, k] = dense[j, np.uint64(samples[k])]
    return block


@compiled
def _gram_across(indptr, positions, values, samples, sign, block, cross):  # type: ignore[no-untyped-def]
    for j in range(block.shape[0]):
        row = cross[j]
        for k in range(samples.size):
            weight = sign * block[j, k]
            for p in range(indptr[samples[k]], indptr[samples[k] + 1]):
                row[positions[p]] += weight if values is None else weight * values[p]
