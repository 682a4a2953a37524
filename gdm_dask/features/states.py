"""States of discrete features: their values, numbered, with entropies, and the information that pairs share.

Zero is state 0, so the states of a sparse row are as sparse as its values; they are counted over the nonzeros, and the
zeros follow by difference. A sample of weight w counts as w equal samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.block import AlignedArrays, Block, narrow_pointers
from gdm_dask.features.ranks import flat_rows, sorted_order
from gdm_dask.system.jit import kernel

#: Maximum number of distinct values of a discrete feature, zero included: a state is one byte.
MAX_STATES = 256
#: This many distinct values are always few. More must be at most half as many as there are samples: values that hardly
#: ever occur twice tell the samples apart, and so share all their information with each other.
FEW_STATES = 16
#: Maximum number of states of the features that one row is compared with at a time, which bounds the memory for counts.
STATES_AT_ONCE = 1 << 12


@dataclass(frozen=True)
class States(AlignedArrays):
    """Rows of states."""

    n_samples: int
    indptr: np.ndarray  # start and end of the nonzeros of each row
    indices: np.ndarray  # sample of each nonzero
    codes: np.ndarray  # state of each nonzero, from 1
    firsts: np.ndarray  # position of state 0 of each row in `weights`, (rows + 1,)
    weights: np.ndarray  # total weight of the samples in each state
    entropies: np.ndarray  # in bits, (rows,)
    sample_weights: np.ndarray | None  # (n_samples,)

    @property
    def total_weight(self) -> float:
        """Sum of the sample weights."""
        return float(self.n_samples if self.sample_weights is None else np.add.reduce(self.sample_weights))

    @property
    def most_states(self) -> int:
        """Largest number of states of a row."""
        return int(np.max(np.diff(self.firsts), initial=1))


def states(block: Block) -> States:
    """Number the values of each feature.

    Examples
    --------
    >>> block = Block(0, 1, 6, np.array([[0.0, 7.0, -2.0, 0.0, 7.0, 7.0]]), np.zeros(1), np.zeros(1))
    >>> found = states(block)
    >>> found.codes.tolist(), found.weights.tolist(), found.entropies.round(4).tolist()
    ([2, 1, 2, 2], [2.0, 1.0, 3.0], [1.4591])
    """
    indptr, indices, values = _nonzeros(block)
    codes, n_states = np.empty(len(values), np.uint8), np.empty(block.n_rows, np.int64)
    number_values(indptr, values, sorted_order(indptr, values, False), codes, n_states)
    if (n_states > MAX_STATES).any():
        raise too_many("a feature", int(n_states.max()), MAX_STATES)
    firsts = np.concatenate([[0], np.cumsum(n_states)])
    weights, entropies = np.zeros(firsts[-1]), np.empty(block.n_rows)
    weigh_states(indptr, indices, codes, block.weights, block.total_weight, firsts, weights, entropies)
    return States(block.n_samples, indptr, indices, codes, firsts, weights, entropies, block.weights)


def most_states(n_samples: int) -> int:
    """Return how many distinct values a discrete feature may have.

    >>> most_states(10), most_states(100), most_states(10_000)
    (16, 50, 256)
    """
    return min(MAX_STATES, max(FEW_STATES, n_samples // 2))


def too_many(feature: str, n_states: int, most: int) -> BadInput:
    """Return the error for a feature with too many values."""
    return BadInput(
        f"{feature} has {n_states:,} distinct values: information measures are for at most {most}. "
        "Discretise it first, or use another measure."
    )


def count_states(block: Block, least: int) -> np.ndarray:
    """Return the number of states of each feature, zero included; 0 for rows with fewer than `least` nonzeros."""
    n_states = np.zeros(block.n_rows, np.int64)
    long = np.flatnonzero(block.counts() >= least)
    if block.values is not None and len(long):
        indptr, _, values = _nonzeros(block.rows(long))
        own = np.empty(len(long), np.int64)
        number_values(indptr, values, sorted_order(indptr, values, False), np.empty(len(values), np.uint8), own)
        n_states[long] = own
    return n_states


def _nonzeros(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a block in compressed form: pointers, samples and values of the nonzeros."""
    if block.indptr is None:
        assert block.values is not None
        rows, samples = np.nonzero(block.values)
        indptr = narrow_pointers(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=block.n_rows))]))
        return indptr, samples.astype(np.uint32), block.values[rows, samples]
    assert block.indices is not None
    return block.indptr, block.indices, flat_rows(block)[1]


@dataclass(frozen=True)
class Index(AlignedArrays):
    """Some consecutive rows of states by sample: the rows with a nonzero there, and their states."""

    start: int  # first row
    stop: int
    at_indptr: np.ndarray
    at_row: np.ndarray  # counted from `start`
    at_code: np.ndarray


def index(others: States) -> list[Index]:
    """Index rows by sample, in parts with at most STATES_AT_ONCE states each."""
    parts, start, n_rows = [], 0, len(others.entropies)
    while start < n_rows:
        most = others.firsts[start] + STATES_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(others.firsts, most, side="right")) - 1)
        span = slice(int(others.indptr[start]), int(others.indptr[stop]))
        row = np.repeat(np.arange(stop - start, dtype=np.uint32), np.diff(others.indptr[start : stop + 1].astype(int)))
        order = np.argsort(others.indices[span], kind="stable")
        counts = np.bincount(others.indices[span], minlength=others.n_samples)
        indptr = narrow_pointers(np.concatenate([[0], np.cumsum(counts)]))
        parts.append(Index(start, stop, indptr, row[order], others.codes[span][order]))
        start = stop
    return parts


def shared_information(
    rows: States, others: States, parts: Sequence[Index], first: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """Compute the information in bits (p, q) that rows share with others: IG, also called mutual information.

    Both have the same samples and weights; `parts` are the others by sample. Each row is compared with the others from
    `first` to before `last`; the value of any other pair is 0.
    """
    found = np.zeros((len(rows.entropies), len(others.entropies)))
    for part in parts:
        states = slice(int(others.firsts[part.start]), int(others.firsts[part.stop]))
        lowest, highest = (np.clip(end - part.start, 0, part.stop - part.start) for end in (first, last))
        joint = np.zeros((rows.most_states, states.stop - states.start))
        count_pairs(
            rows.indptr, rows.indices, rows.codes, rows.firsts, rows.weights, rows.entropies,
            others.firsts[part.start : part.stop + 1] - states.start, others.weights[states],
            others.entropies[part.start : part.stop], part.at_indptr, part.at_row, part.at_code,
            rows.sample_weights, rows.total_weight, lowest, highest, joint, found[:, part.start : part.stop],
        )  # fmt: skip
    return found


@kernel
def number_values(indptr, values, order, codes, n_states):  # type: ignore[no-untyped-def]
    """Number the values of each row from 1, smallest first; the number of states counts zero as well."""
    for row in range(len(n_states)):
        start, stop = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
        code = 0
        for position in range(start, stop):
            place = start + order[position]
            if position == start or values[place] != values[start + order[position - np.uint64(1)]]:
                code += 1
            codes[place] = code
        n_states[row] = code + 1


@kernel
def weigh_states(indptr, indices, codes, sample_weights, total_weight, firsts, weights, entropies):  # type: ignore[no-untyped-def]
    """Sum the weights of each state, and compute the entropy of each row."""
    for row in range(len(entropies)):
        first, last = firsts[row], firsts[row + 1]
        for position in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            weight = 1.0 if sample_weights is None else sample_weights[indices[position]]
            weights[first + codes[position]] += weight
        zeros = total_weight
        for state in range(first + 1, last):
            zeros -= weights[state]
        weights[first] = max(zeros, 0.0)
        total = 0.0
        for state in range(first, last):
            if weights[state] > 0.0:
                share = weights[state] / total_weight
                total -= share * np.log2(share)
        entropies[row] = max(total, 0.0)


@kernel
def count_pairs(  # type: ignore[no-untyped-def]
    indptr, indices, codes, firsts, weights, entropies, o_firsts, o_weights, o_entropies, at_indptr, at_row, at_code,
    sample_weights, total_weight, o_first, o_last, joint, out,
):  # fmt: skip
    """Compute the information that each row shares with the others from ``o_first`` to before ``o_last``.

    `joint` has room for the weight of each pair of states of a row and the others, zero on entry and on return. Only
    samples where both are nonzero are counted; the other weights follow from the sums of both.
    """
    one = np.uint64(1)
    for row in range(len(entropies)):
        lowest, highest = o_first[row], o_last[row]
        if lowest >= highest:
            continue
        for position in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            sample, code = np.uint64(indices[position]), codes[position]
            weight = 1.0 if sample_weights is None else sample_weights[sample]
            for entry in range(np.uint64(at_indptr[sample]), np.uint64(at_indptr[sample + one])):
                other = at_row[entry]
                if other >= highest:
                    break
                if other >= lowest:
                    joint[code, o_firsts[other] + at_code[entry]] += weight
        n_states = firsts[row + 1] - firsts[row]
        for other in range(lowest, highest):
            total, both = 0.0, 0.0  # sum of weight log weight over all pairs of states; weight where both are nonzero
            for b in range(o_firsts[other] + 1, o_firsts[other + 1]):
                left = o_weights[b]
                for a in range(1, n_states):
                    weight = joint[a, b]
                    if weight > 0.0:
                        total += weight * np.log2(weight)
                        left -= weight
                        both += weight
                if left > 0.0:
                    total += left * np.log2(left)
            zeros = o_weights[o_firsts[other]] + both
            for a in range(1, n_states):
                left = weights[firsts[row] + a]
                for b in range(o_firsts[other] + 1, o_firsts[other + 1]):
                    left -= joint[a, b]
                    joint[a, b] = 0.0
                zeros -= weights[firsts[row] + a]
                if left > 0.0:
                    total += left * np.log2(left)
            if zeros > 0.0:
                total += zeros * np.log2(zeros)
            joint_entropy = np.log2(total_weight) - total / total_weight
            shared = entropies[row] + o_entropies[other] - joint_entropy
            out[row, other] = min(max(shared, 0.0), min(entropies[row], o_entropies[other]))
