"""A matrix in memory, presented as feature blocks. `fit` uses it for arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from gdm_dask.features.block import Block, gather
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.values import dtype_of, narrowest

#: Decoded bytes of a block in memory: small, because nothing is read and threads share the work.
MEMORY_BLOCK_BYTES = 8 << 20


class MemoryStore:
    """Feature blocks of a samples x features matrix of finite numbers, with the interface required by passes."""

    def __init__(self, X: np.ndarray | sp.spmatrix | sp.sparray, block_bytes: int = MEMORY_BLOCK_BYTES) -> None:
        n_samples, n_features = X.shape
        self.shape = (n_features, n_samples)
        if sp.issparse(X):
            matrix, value_type = _canonical(X)
            weight = matrix.indptr.astype(np.int64) * 8 + np.arange(n_features + 1) * 20
            self.block_starts = _cuts(weight, block_bytes)
            self._blocks = [_sparse_block(matrix, value_type, start, stop) for start, stop in self._bounds()]
        else:
            values = np.ascontiguousarray(X.T, dtype_of(narrowest(X)))
            self.block_starts = _cuts(np.arange(n_features + 1) * values.itemsize * n_samples, block_bytes)
            self._blocks = [_dense_block(values, start, stop) for start, stop in self._bounds()]
        self.sizes = [block.nbytes for block in self._blocks]

    def _bounds(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in itertools.pairwise(self.block_starts)]

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(self.sizes)

    def blocks(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield blocks one after the other."""
        return (self._blocks[number] for number in numbers)

    def rows(self, features: np.ndarray) -> Block:
        """Return some rows, in the given order."""
        owner = np.searchsorted(self.block_starts, features, side="right") - 1
        return gather(self._blocks, owner, features - self.block_starts[owner])


def _cuts(weight: np.ndarray, block_bytes: int) -> np.ndarray:
    """Return the first feature of each block, and the end, for blocks of about `block_bytes`."""
    n_blocks = max(1, int(weight[-1]) // block_bytes)
    inner = np.searchsorted(weight, weight[-1] * np.arange(1, n_blocks) // n_blocks)
    return np.unique(np.concatenate([[0], inner, [len(weight) - 1]])).astype(np.int64)


def _dense_block(values: np.ndarray, start: int, stop: int) -> Block:
    means, norms = dense_moments(values[start:stop])
    return Block(start, stop, values.shape[1], values[start:stop], means, norms)


def _canonical(X: sp.spmatrix | sp.sparray) -> tuple[sp.csc_array, str]:
    """Convert to column-major order without duplicates or stored zeros; values get the narrowest lossless type."""
    matrix = sp.csc_array(X)
    if not matrix.has_canonical_format or not np.all(matrix.data):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    value_type = narrowest(matrix.data)
    matrix.data = matrix.data.astype(dtype_of(value_type), copy=False)
    return matrix, value_type


def _sparse_block(matrix: sp.csc_array, value_type: str, start: int, stop: int) -> Block:
    low, high = matrix.indptr[start], matrix.indptr[stop]
    indptr = (matrix.indptr[start : stop + 1] - low).astype(np.uint32)
    indices = matrix.indices[low:high].astype(np.uint32)
    values = None if value_type == "one" else matrix.data[low:high]
    means, norms = sparse_moments(indptr, values, matrix.shape[0])
    return Block(start, stop, matrix.shape[0], values, means, norms, indptr, indices)
