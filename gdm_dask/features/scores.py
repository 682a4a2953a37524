"""Scores c = Z (alpha * y): the change of the margin offered by each feature, for all features of a block.

The bits of a sum over samples depend on the numbers alone, not on their place in memory or on the threads of BLAS.
NumPy adds up a contiguous and aligned vector pairwise, in one order. An unaligned vector, such as one received from
another process, passes through a buffer of 8,192 elements and is summed in other pieces. BLAS divides long products
among its threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdm_dask.features.block import Block, aligned
from gdm_dask.features.values import number
from gdm_dask.system.jit import kernel

#: Lanes of a dense sum: independent partial sums, enough for the compiler to use vector instructions.
LANES = 64

#: From this many vectors on, sparse rows are multiplied with interleaved vectors: each gather serves `FOUR` of them,
#: whose sums stay in registers. At most this many are interleaved, so that the next gather finds them in a cache.
INTERLEAVED_FROM, MOST_INTERLEAVED = 3, 20
FOUR = 4

#: Products summed at a time: few enough to stay in the second-level cache.
PART = 1 << 15


def interleaved(vectors: np.ndarray) -> list[np.ndarray]:
    """Interleave vectors (p, n) as arrays of shape (n, some); return none if there are too few to gain by it.

    Columns of zeros fill the last array up to a multiple of `FOUR`.
    """
    if len(vectors) < INTERLEAVED_FROM:
        return []
    found = []
    for first in range(0, len(vectors), MOST_INTERLEAVED):
        some = vectors[first : first + MOST_INTERLEAVED]
        found.append(np.zeros((vectors.shape[1], -(-len(some) // FOUR) * FOUR)))
        found[-1][:, : len(some)] = some.T
    return found


def scores(
    block: Block, vectors: np.ndarray, out: np.ndarray | None = None, columns: Sequence[np.ndarray] | None = None
) -> np.ndarray:
    """Compute the scores of a block's implicitly normalised features.

    Parameters
    ----------
    block : Block
    vectors : ndarray of shape (p, n_samples), float64
        One vector ``a = alpha * y`` for each problem that shares the pass.
    out : ndarray of shape (p, rows), optional
        Output array.
    columns : list of ndarray, optional
        ``interleaved(vectors)``, if already computed.

    Returns
    -------
    ndarray of shape (p, rows)
        ``(f_j . a - mean_j sum(a)) / norm_j``; 0 for constant features. The scores of a vector have the same bits
        whichever other vectors there are.

    Examples
    --------
    >>> block = Block(0, 1, 2, np.array([[0.0, 2.0]]), np.array([1.0]), np.array([np.sqrt(2)]))
    >>> scores(block, np.array([[-0.5, 0.5]])).round(6).tolist()
    [[0.707107]]
    """
    vectors = aligned(vectors)
    out = np.empty((len(vectors), block.n_rows)) if out is None else out
    if block.indptr is None:
        zeros, ones = np.zeros(len(vectors)), np.ones(len(vectors))
        dense_products(block.values, block.means, block.norms, vectors, zeros, ones, np.empty(LANES), out)
    else:
        sums = np.array([total(vector) for vector in vectors])
        rows = block.indptr, block.indices, block.values, block.power, block.means, block.norms
        columns = interleaved(vectors) if columns is None else columns
        if not columns:
            sparse_scores(*rows, vectors, sums, out)
        done = 0
        for some in columns:
            span = slice(done, done + some.shape[1])  # the last one may end beyond the vectors
            interleaved_scores(*rows, some, sums[span], out[span])
            done = span.stop
    return out


def total(vector: np.ndarray) -> float:
    """Return the sum of a vector.

    >>> total(np.arange(4.0))
    6.0
    """
    return float(np.add.reduce(aligned(np.ascontiguousarray(vector))))


def squared_norm(vector: np.ndarray) -> float:
    """Return the sum of the squares of a vector.

    >>> squared_norm(np.array([3.0, 4.0]))
    25.0
    """
    parts = (vector[first : first + PART] for first in range(0, len(vector), PART))
    return total(np.array([total(part * part) for part in parts]))


@kernel
def sparse_scores(indptr, indices, values, power, means, norms, vectors, sums, out):  # type: ignore[no-untyped-def]
    """Score sparse rows: ``out[v, j] = (f_j . a_v - mean_j sum(a_v)) / norm_j``, 0 if the norm is 0.

    Even and odd nonzeros of a row have separate sums, so that an addition need not wait for the one before. The loop is
    inlined by hand: as a separate function it takes twice the time.
    """
    one, two = np.uint64(1), np.uint64(2)
    over = 0.0 if power is None else 1.0 / power
    for v in range(len(vectors)):
        vector = vectors[v]
        for row in range(len(norms)):
            if norms[row] == 0.0:
                out[v, row] = 0.0
                continue
            position, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
            even = odd = 0.0
            while position + one < stop:
                if values is None:
                    even += vector[indices[position]]
                    odd += vector[indices[position + one]]
                else:
                    even += number(values[position], power, over) * vector[indices[position]]
                    odd += number(values[position + one], power, over) * vector[indices[position + one]]
                position += two
            if position < stop:
                if values is None:
                    even += vector[indices[position]]
                else:
                    even += number(values[position], power, over) * vector[indices[position]]
            out[v, row] = (even + odd - means[row] * sums[v]) / norms[row]


@kernel
def interleaved_scores(indptr, indices, values, power, means, norms, columns, sums, out):  # type: ignore[no-untyped-def]
    """Compute `sparse_scores` for vectors that are the columns of an array, summed in the same order.

    The sums of four columns, over even and over odd nonzeros, are written out: so they stay in registers. Most rows of
    crossed features have a single nonzero, or none: these need no sums.
    """
    one, two = np.uint64(1), np.uint64(2)
    over = 0.0 if power is None else 1.0 / power
    for row in range(len(norms)):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        mean, norm = means[row], norms[row]
        if norm == 0.0:
            for v in range(len(sums)):
                out[v, row] = 0.0
            continue
        if stop - start == one:
            i, left = indices[start], 1.0 if values is None else number(values[start], power, over)
            for v in range(len(sums)):
                out[v, row] = (0.0 + left * columns[i, v] - mean * sums[v]) / norm
            continue
        for first in range(0, columns.shape[1], FOUR):
            a = b = c = d = 0.0  # over even nonzeros
            e = f = g = h = 0.0  # over odd nonzeros
            position = start
            while position + one < stop:
                i, j = indices[position], indices[position + one]
                if values is None:
                    a += columns[i, first]
                    b += columns[i, first + 1]
                    c += columns[i, first + 2]
                    d += columns[i, first + 3]
                    e += columns[j, first]
                    f += columns[j, first + 1]
                    g += columns[j, first + 2]
                    h += columns[j, first + 3]
                else:
                    left, right = number(values[position], power, over), number(values[position + one], power, over)
                    a += left * columns[i, first]
                    b += left * columns[i, first + 1]
                    c += left * columns[i, first + 2]
                    d += left * columns[i, first + 3]
                    e += right * columns[j, first]
                    f += right * columns[j, first + 1]
                    g += right * columns[j, first + 2]
                    h += right * columns[j, first + 3]
                position += two
            if position < stop:
                i, left = indices[position], 1.0 if values is None else number(values[position], power, over)
                a += left * columns[i, first]
                b += left * columns[i, first + 1]
                c += left * columns[i, first + 2]
                d += left * columns[i, first + 3]
            for v, total in enumerate((a + e, b + f, c + g, d + h)):
                if first + v < len(sums):
                    out[first + v, row] = (total - mean * sums[first + v]) / norm


@kernel
def dense_products(values, means, norms, others, o_means, o_norms, lanes, out):  # type: ignore[no-untyped-def]
    """Multiply centred dense rows with other rows, divided by both norms: ``out[k, j]``, 0 if a norm is 0.

    The order of summation is fixed: `lanes` has room for `LANES` partial sums.
    """
    length = values.shape[1]
    whole = length - length % LANES
    for j in range(len(norms)):
        for k in range(len(o_norms)):
            scale = norms[j] * o_norms[k]
            if scale == 0.0:
                out[k, j] = 0.0
                continue
            left, left_mean, right, right_mean = values[j], means[j], others[k], o_means[k]
            for lane in range(LANES):
                lanes[lane] = 0.0
            for start in range(0, whole, LANES):
                for lane in range(LANES):
                    lanes[lane] += (left[start + lane] - left_mean) * (right[start + lane] - right_mean)
            total = 0.0
            for position in range(whole, length):
                total += (left[position] - left_mean) * (right[position] - right_mean)
            for lane in range(LANES):
                total += lanes[lane]
            out[k, j] = total / scale
