"""A block of whole feature rows in memory: the unit of parallel work, as plain arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.values import from_whole

if TYPE_CHECKING:
    import scipy.sparse as sp


#: Rows with more nonzeros than this on average are copied one by one.
LONG_ROWS = 128
#: Pointers to fewer nonzeros than this are stored in 32 bits.
NARROW_BELOW = 2**32


def aligned(array: np.ndarray) -> np.ndarray:
    """Return the array, or an aligned copy: kernels are compiled for aligned arrays.

    Examples
    --------
    >>> shifted = np.zeros(17, np.uint8)[1:].view(np.float64)
    >>> shifted.flags.aligned, aligned(shifted).flags.aligned
    (False, True)
    """
    return array if array.flags.aligned else array.copy(order="K")


def is_tame(sizes: np.ndarray) -> np.ndarray:
    """Return whether squares of values of these sizes neither overflow nor underflow, with room for sums."""
    return (sizes > 1e-130) & (sizes < 1e130)


def scale_of(largest: float) -> float:
    """Return a power of two; squares of values divided by it neither overflow nor underflow."""
    return float(np.ldexp(1.0, min(max(int(np.floor(np.log2(largest))), -1000), 1000)))


class AlignedArrays:
    """Base of dataclasses whose arrays are aligned on creation, and again on arrival in another process."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name, array in state.items():
            if isinstance(array, np.ndarray) and not array.flags.aligned:
                vars(self)[name] = array.copy(order="K")


@dataclass(frozen=True)
class Block(AlignedArrays):
    """Raw values of features `start` to `stop` of a store, with their moments."""

    start: int
    stop: int
    n_samples: int
    #: Sparse: the nonzeros, row after row, or None if all of them are 1. Dense: (stop - start, n_samples).
    #: In stored form, see `decimals`.
    values: np.ndarray | None
    means: np.ndarray  # of each feature
    norms: np.ndarray  # of each centred feature
    #: Sparse: start and end of the nonzeros of each row (uint64 beyond 2**32 nonzeros, which no stored block has).
    indptr: np.ndarray | None = None
    indices: np.ndarray | None = None  # sparse: sample of each nonzero, increasing within a row
    nonzeros: np.ndarray | None = None  # dense: number of nonzeros in each row, if already counted
    decimals: int | None = None  # `values` are int32 and stand for these integers over 10 to this power
    weights: np.ndarray | None = None  # of the samples, for means, norms and correlations; None if all are 1

    @property
    def n_rows(self) -> int:
        """Features in this block."""
        return self.stop - self.start

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are compressed."""
        return self.indptr is not None

    @property
    def n_values(self) -> int:
        """Number of values; for sparse rows, of nonzeros."""
        return self.n_rows * self.n_samples if self.indices is None else len(self.indices)

    @property
    def total_weight(self) -> float:
        """Sum of the sample weights; the number of samples if all weights are 1."""
        return float(self.n_samples if self.weights is None else np.add.reduce(self.weights))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.values, self.means, self.norms, self.indptr, self.indices, self.nonzeros)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def power(self) -> float | None:
        """Power of ten by which integer values are to be divided; None if the values stand for themselves."""
        return None if self.decimals is None else 10.0**self.decimals

    def as_numbers(self) -> Block:
        """Return the block with its values converted from integers to the numbers they stand for."""
        if self.decimals is None or self.values is None:
            return self
        return replace(self, values=_numbers(self.values, self.decimals), decimals=None)

    def tamed(self) -> Block:
        """Return the block with extreme rows divided by powers of two.

        Their correlations stay the same, and no product of two rows overflows or underflows.
        """
        extreme = np.flatnonzero((self.norms != 0.0) & ~is_tame(self.norms))
        if not len(extreme):
            return self
        block = self.as_numbers()
        assert block.values is not None  # a row of ones is never extreme
        values, scales = block.values.astype(np.float64), np.ones(block.n_rows)
        for row in extreme:
            scales[row] = scale_of(block.norms[row])
            values[row if block.indptr is None else slice(*block.indptr[row : row + 2])] /= scales[row]
        return replace(block, values=values, means=block.means / scales, norms=block.norms / scales)

    def counts(self) -> np.ndarray:
        """Nonzeros of each feature, int64."""
        if self.indptr is not None:
            return np.diff(self.indptr.astype(np.int64))
        if self.nonzeros is not None:
            return self.nonzeros.astype(np.int64)
        assert self.values is not None
        counts: np.ndarray = np.count_nonzero(self.values, axis=1)
        return counts.astype(np.int64)

    def rows(self, local: np.ndarray) -> Block:
        """Copy some rows of the block (positions within it) to a new block, in the given order.

        `start` and `stop` of the new block only count its rows, and its values stand for themselves.
        """
        means, norms = self.means[local], self.norms[local]
        if self.indptr is None:
            assert self.values is not None
            counted = None if self.nonzeros is None else self.nonzeros[local]
            return Block(
                0, len(local), self.n_samples, self.values[local], means, norms, nonzeros=counted, weights=self.weights
            )
        assert self.indices is not None
        starts, stops = (self.indptr[np.asarray(local) + end].astype(np.int64) for end in (0, 1))
        indptr = narrow_pointers(np.concatenate([[0], np.cumsum(stops - starts)]))
        indices = _joined(self.indices, starts, stops)
        values = None if self.values is None else _numbers(_joined(self.values, starts, stops), self.decimals)
        return Block(0, len(local), self.n_samples, values, means, norms, indptr, indices, weights=self.weights)

    def span(self, first: int, stop: int) -> Block:
        """Return consecutive rows that share the memory of the block."""
        if (first, stop) == (0, self.n_rows):
            return self
        span = slice(first, stop)
        return replace(
            self,
            start=self.start + first,
            stop=self.start + stop,
            means=self.means[span],
            norms=self.norms[span],
            values=self.values[span] if self.indptr is None and self.values is not None else self.values,
            indptr=None if self.indptr is None else self.indptr[first : stop + 1],
            nonzeros=None if self.nonzeros is None else self.nonzeros[span],
        )

    def parts(self, n_rows: int) -> Iterator[Block]:
        """Yield parts of `n_rows` consecutive rows that share the memory of the block."""
        for first in range(0, self.n_rows, n_rows):
            yield self.span(first, min(first + n_rows, self.n_rows))

    def pieces(self, n_values: int, n_rows: int) -> Iterator[Block]:
        """Yield parts with about `n_values` values, and at most `n_rows` rows, that share the memory of the block."""
        return self.parts(max(1, min(n_rows, self.n_rows * n_values // max(1, self.n_values))))

    def digest(self, row: int) -> bytes:
        """Return a digest that identifies the content of a row."""
        content = hashlib.blake2b(digest_size=16)
        span = slice(row, row + 1)
        if self.indptr is not None and self.indices is not None:
            span = slice(int(self.indptr[row]), int(self.indptr[row + 1]))
            content.update(self.indices[span].tobytes())
        if self.values is not None:
            content.update(self.values[span].tobytes())
        return content.digest()

    def matrix(self) -> sp.csr_array | np.ndarray:
        """Return the raw rows (features x samples) in their own form: a CSR matrix, or the array of a dense block."""
        if self.indptr is not None:
            return self.to_scipy()
        assert self.values is not None
        return self.values

    def to_scipy(self) -> sp.csr_array:
        """Return the raw rows as a CSR matrix (features x samples)."""
        import scipy.sparse as sp  # slow to import, and most passes do not need it

        if self.indptr is None:
            return sp.csr_array(self.values)
        assert self.indices is not None
        values = np.ones(len(self.indices), np.uint8) if self.values is None else _numbers(self.values, self.decimals)
        small = self.n_samples < 2**31 and len(self.indices) < 2**31
        indices = self.indices.view(np.int32) if small else self.indices.astype(np.int64)
        indptr = self.indptr.astype(np.int32 if small else np.int64)
        matrix = sp.csr_array((values, indices, indptr), shape=(self.n_rows, self.n_samples))
        matrix.has_canonical_format = True
        return matrix


def _numbers(values: np.ndarray, decimals: int | None) -> np.ndarray:
    if decimals is None:
        return values
    numbers = np.empty(len(values))
    from_whole(values, 10.0**decimals, numbers)
    return numbers


def _joined(array: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Concatenate parts of an array."""
    lengths = stops - starts
    total = int(lengths.sum())
    if total < LONG_ROWS * len(lengths):  # short parts: take numbers one by one, without a slice for each part
        firsts = np.cumsum(lengths) - lengths
        return array[np.repeat(starts - firsts, lengths) + np.arange(total)]
    parts = zip(starts.tolist(), stops.tolist(), strict=True)
    return np.concatenate([array[:0], *(array[start:stop] for start, stop in parts)])


def narrow_pointers(pointers: np.ndarray) -> np.ndarray:
    """Return pointers as uint32, or as uint64 if they exceed it."""
    return pointers.astype(np.uint32 if pointers[-1] < NARROW_BELOW else np.uint64)


def stack(blocks: list[Block]) -> Block:
    """Stack blocks into one that starts at the start of the first.

    The widest value type of the parts holds all values exactly.
    """
    blocks = [block.as_numbers() for block in blocks]
    start, n_samples, weights = blocks[0].start, blocks[0].n_samples, blocks[0].weights
    means = np.concatenate([block.means for block in blocks])
    norms = np.concatenate([block.norms for block in blocks])
    stop = start + len(means)
    if blocks[0].indptr is None:
        dense = np.concatenate([block.values for block in blocks])
        known = all(block.nonzeros is not None for block in blocks)
        nonzeros = np.concatenate([block.nonzeros for block in blocks]) if known else None
        return Block(start, stop, n_samples, dense, means, norms, nonzeros=nonzeros, weights=weights)
    lengths = np.concatenate([block.counts() for block in blocks])
    indptr = narrow_pointers(np.concatenate([[0], np.cumsum(lengths)]))
    indices = np.concatenate([block.indices for block in blocks])
    values = None
    if any(block.values is not None for block in blocks):
        values = np.concatenate(
            [np.ones(len(b.indices), np.uint8) if b.values is None else b.values for b in blocks]  # type: ignore[arg-type]
        )
    return Block(start, stop, n_samples, values, means, norms, indptr, indices, weights=weights)


def no_rows(n_samples: int, sparse: bool) -> Block:
    """Return a block without features."""
    none = np.zeros(0)
    if not sparse:
        return Block(0, 0, n_samples, np.zeros((0, n_samples)), none, none)
    return Block(0, 0, n_samples, none, none, none, np.zeros(1, np.uint32), np.zeros(0, np.uint32))


def check_features(features: np.ndarray, n_features: int) -> np.ndarray:
    """Return feature numbers as int64; refuse numbers out of range."""
    features = np.asarray(features)
    if features.size == 0:
        return np.zeros(0, np.int64)
    if features.dtype.kind not in "iu":
        raise BadInput(f"features must be numbers from 0 to {n_features - 1}, got {features.dtype} values")
    features = features.astype(np.int64)
    if features.min() < 0 or features.max() >= n_features:
        bad = features[(features < 0) | (features >= n_features)][0]
        raise BadInput(f"feature {bad} is out of range: the store has features 0 to {n_features - 1}")
    return features


def gather(blocks: list[Block], owner: np.ndarray, local: np.ndarray) -> Block:
    """Return row ``local[i]`` of ``blocks[owner[i]]`` for each i, as `Block.rows` does; each row is copied once.

    Examples
    --------
    >>> block = Block(0, 2, 2, np.array([[0.0, 2.0], [1.0, 1.0]]), np.array([1.0, 1.0]), np.array([np.sqrt(2), 0.0]))
    >>> gather([block, block], np.array([1, 0]), np.array([0, 1])).values.tolist()
    [[0.0, 2.0], [1.0, 1.0]]
    """
    if len(blocks) == 1:
        return blocks[0].rows(local)
    if len({(block.values is None, block.decimals) for block in blocks}) > 1:
        return stack(blocks).rows(np.cumsum([0, *(block.n_rows for block in blocks)])[owner] + local)

    def picked(name: str, places: np.ndarray) -> np.ndarray:
        arrays = [getattr(block, name) for block in blocks]
        found = np.empty((len(places), *arrays[0].shape[1:]), np.result_type(*arrays))
        for number in np.unique(owner):
            mine = owner == number
            found[mine] = arrays[number][places[mine]]
        return found

    first, n_rows = blocks[0], len(local)
    means, norms = picked("means", local), picked("norms", local)
    if first.indptr is None:
        counted = None if any(block.nonzeros is None for block in blocks) else picked("nonzeros", local)
        values = picked("values", local)
        return Block(0, n_rows, first.n_samples, values, means, norms, nonzeros=counted, weights=first.weights)
    starts, stops = (picked("indptr", local + end).astype(np.int64) for end in (0, 1))
    spans = owner.tolist(), starts.tolist(), stops.tolist()

    def joined(name: str) -> np.ndarray:
        arrays = [getattr(block, name) for block in blocks]
        rows = (arrays[number][start:stop] for number, start, stop in zip(*spans, strict=True))
        return np.concatenate([arrays[0][:0], *rows])

    indptr = narrow_pointers(np.concatenate([[0], np.cumsum(stops - starts)]))
    numbers = None if first.values is None else _numbers(joined("values"), first.decimals)
    return Block(0, n_rows, first.n_samples, numbers, means, norms, indptr, joined("indices"), weights=first.weights)
