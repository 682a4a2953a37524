"""Results from rows and vectors have the same bits for any memory alignment, without extra kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.misaligned import arrived, misaligned

from gdm_dask.features import correlation, groups, moments
from gdm_dask.features import scores as scoring
from gdm_dask.features.block import Block, aligned
from gdm_dask.features.correlation import correlations
from gdm_dask.features.groups import find_pairs, prepare
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.scores import scores, squared_norm, total
from gdm_dask.features.values import try_whole
from gdm_dask.store.memory import MemoryStore

N = 100_003
ARRAYS = ("values", "means", "norms", "indptr", "indices", "nonzeros")


@pytest.mark.parametrize("n", [1, 7, 8_193, 35_000, N])
@pytest.mark.parametrize("take", [total, squared_norm])
def test_sums_are_the_same_bits_wherever_the_vector_lies(take: Any, n: int) -> None:
    vector = np.random.default_rng(n).normal(size=n)
    apart = np.empty(3 * n)[::3]
    apart[:] = vector
    assert not misaligned(vector).flags.aligned
    assert take(misaligned(vector)) == take(apart) == take(vector)
    exact = math.fsum(vector.tolist() if take is total else (vector * vector).tolist())
    assert take(vector) == pytest.approx(exact, rel=1e-14)


def test_an_aligned_array_is_not_copied() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert aligned(array) is array
    shifted = np.frombuffer(misaligned(array.T).reshape(-1), np.float64).reshape(3, 2).T
    assert not shifted.flags.aligned
    assert aligned(shifted).flags.f_contiguous
    np.testing.assert_array_equal(aligned(shifted), array)


#: Makes values of each kind from random numbers in [0, 1).
VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ones": np.ceil,
    "counts": lambda X: np.ceil(9.0 * X),
    "float32": np.float32,
    "float64": np.float64,
    "decimals": lambda X: np.ceil(1000.0 * X) / 1000.0,
}
KINDS = [*VALUES, "dense counts", "dense float32", "dense float64"]


def block_of(kind: str) -> Block:
    """Make a few rows over many samples, of which the first two correlate."""
    rng = np.random.default_rng(3)
    X = VALUES[kind.removeprefix("dense ")](rng.random((4, N)))
    X[1] = np.where(rng.random(N) < 0.95, X[0], X[1])
    if kind.startswith("dense"):
        return next(MemoryStore(X.T, 1 << 30).blocks([0]))
    X[2:] *= rng.random((2, N)) < 0.1
    X[:2] *= rng.random(N) < 0.1
    block = next(MemoryStore(sp.csc_array(X.T), 1 << 30).blocks([0]))
    if kind != "decimals":
        return block
    whole = np.empty(len(block.values), np.int32)
    decimals = try_whole(block.values, whole)
    assert decimals == 3
    return Block(0, 4, N, whole, block.means, block.norms, block.indptr, block.indices, decimals=decimals)


@pytest.fixture(params=KINDS)
def block(request: pytest.FixtureRequest) -> Block:
    return block_of(request.param)


def n_compiled() -> int:
    modules = correlation, groups, moments, scoring
    return sum(len(getattr(value, "signatures", ())) for module in modules for value in vars(module).values())


def test_a_block_is_aligned_when_it_is_made_and_when_it_arrives(block: Block) -> None:
    made = Block(
        block.start, block.stop, block.n_samples, decimals=block.decimals,
        **{name: value if (value := getattr(block, name)) is None else misaligned(value) for name in ARRAYS},
    )  # fmt: skip
    for other in (made, arrived(block)):
        for name in ARRAYS:
            expected, found = getattr(block, name), getattr(other, name)
            assert (found is None) == (expected is None)
            if expected is not None:
                assert found.flags.aligned, name
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)


def test_scores_are_the_same_bits_wherever_the_vectors_lie(block: Block) -> None:
    vectors = np.random.default_rng(4).normal(size=(2, N))
    expected, before = scores(block, vectors), n_compiled()
    assert expected.all()
    np.testing.assert_array_equal(scores(arrived(block), misaligned(vectors)), expected)
    assert n_compiled() == before


def test_correlations_and_groups_are_the_same_bits_wherever_the_rows_lie(block: Block) -> None:
    rows = block.rows(np.arange(2))
    supports = prepare(rows, 0.8)
    pairs, rho = find_pairs(block, supports), correlations(rows, rows)
    assert len(pairs.rho) == 4
    before = n_compiled()
    found = find_pairs(arrived(block), arrived(supports))
    for name in ("support", "feature", "rho"):
        np.testing.assert_array_equal(getattr(found, name), getattr(pairs, name))
    np.testing.assert_array_equal(correlations(arrived(rows), arrived(rows)), rho)
    again = prepare(arrived(rows), 0.8)
    np.testing.assert_array_equal(again.rests, supports.rests)
    np.testing.assert_array_equal(again.least, supports.least)
    assert n_compiled() == before


def test_moments_are_the_same_bits_wherever_the_values_lie(block: Block) -> None:
    def moments_of(lay: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        values = None if block.values is None else lay(block.values)
        return (
            dense_moments(values) if block.indptr is None else sparse_moments(lay(block.indptr), values, N, block.power)
        )

    np.testing.assert_array_equal(moments_of(np.copy), (block.means, block.norms))
    before = n_compiled()
    np.testing.assert_array_equal(moments_of(misaligned), (block.means, block.norms))
    assert n_compiled() == before
