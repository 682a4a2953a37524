"""Searches for groups skip features with proof only; `test_measures.py` compares them with brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.instances import blocks_of, kinds, make, many, memory, pairs_of, seeds, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.features import block as blocks
from gdm_dask.features.correlation import as_rows, correlation_limit, correlations
from gdm_dask.features.groups import Pairs, find_pairs, least_weights, merge_pairs, prepare

taus = st.sampled_from([0.05, 0.25, 0.5, 0.9])


def as_groups(pairs: Pairs, supports: list[int]) -> dict[int, list[int]]:
    return {s: pairs.feature[pairs.support == k].tolist() for k, s in enumerate(supports)}


@many(60)
@given(kinds, st.integers(1, 6), st.integers(2, 9), taus, seeds)
def test_with_no_more_nonzeros_than_the_least_no_feature_reaches_a_support(kind, m, n, tau, seed) -> None:
    """For every number r of samples: the most that r samples of a support can hold of its unit length."""
    X = make(kind, m, n, seed)
    limit = correlation_limit(tau)
    least = least_weights(whole(X, sparse=True), limit)
    for z, needed in zip(reference.normalise(X), least, strict=True):
        for r in range(int(min(needed, n)) + 1):
            reached = np.sqrt(max((z[list(J)] ** 2).sum() for J in combinations(range(n), r)))
            assert reached < limit * np.sqrt(1 - r / n) or reached == 0


def test_a_rare_support_does_not_let_rare_features_be_compared_with_frequent_ones() -> None:
    rng = np.random.default_rng(1)
    X = np.vstack([rng.random((4, 900)) < 0.4, rng.random((200, 900)) < 0.01]).astype(float)
    X[5] = X[4]
    few = X[4:].sum(axis=1) < X[4].sum() / 2
    pairs = pairs_of(X, [0, 4], 0.25, sparse=True)
    assert as_groups(pairs, [0, 4]) == reference.groups(X, [0, 4], 0.25)
    assert pairs.n_skipped >= few.sum() > 0


def test_rare_features_are_skipped_and_the_answer_is_whole() -> None:
    rng = np.random.default_rng(0)
    common = (rng.random((5, 400)) < 0.5).astype(float)
    rare = (rng.random((300, 400)) < 0.01).astype(float)
    X = np.vstack([common, common[:2], rare, rare[:3]])
    supports = [0, 1, 2]
    pairs = pairs_of(X, supports, 0.25, sparse=True)
    assert as_groups(pairs, supports) == reference.groups(X, supports, 0.25)
    assert pairs.n_skipped == 305  # all rare features, and two frequent ones that the search gives up
    assert pairs.n_scanned == 5


@pytest.mark.parametrize("values", [False, True])
def test_frequent_features_are_given_up_when_their_rest_cannot_correlate(values: bool) -> None:
    rng = np.random.default_rng(2)
    X = (rng.random((40, 1500)) < 0.3).astype(float)
    if values:
        X *= rng.uniform(0.5, 2.0, X.shape)
    X[38], X[39] = 1.0 - X[0], 2.0 * X[1]  # disjoint and correlated all the same; a copy
    X[37, 750:] = X[2, 750:]  # correlated in one half only
    supports = [0, 1, 2]
    pairs = pairs_of(X, supports, 0.4, sparse=True)
    assert as_groups(pairs, supports) == reference.groups(X, supports, 0.4)
    assert pairs.n_scanned <= 7


def test_a_rare_support_still_finds_its_rare_companions() -> None:
    X = np.zeros((4, 500))
    X[0, [3, 7]] = X[1, [3, 7]] = X[2, [3, 7, 11]] = X[3, [20, 21]] = 1.0
    pairs = pairs_of(X, [0], 0.25, sparse=True)
    assert pairs.feature.tolist() == [0, 1, 2]
    assert abs(pairs.rho[2] - np.corrcoef(X[0], X[2])[0, 1]) < 1e-14


def test_more_pairs_than_were_made_room_for() -> None:
    """Every feature correlates with every support: the output grows until it holds them all."""
    X = np.repeat(make("binary", 1, 30, 0), 3000, axis=0)
    block = whole(X, sparse=True)
    pairs = find_pairs(block, prepare(block.rows(np.arange(5)), 0.7))
    assert len(pairs.feature) == 5 * 3000
    assert pairs.n_scanned == 3000


def test_pairs_come_in_the_order_of_features_whatever_the_order_of_blocks() -> None:
    X = make("groups", 30, 40, 5)
    blocks = blocks_of(memory(X, True, 2000))
    assert len(blocks) > 3
    supports = prepare(whole(X, True).rows(np.array([4, 0])), 0.6)
    parts = [find_pairs(block, supports) for block in blocks]
    one, other = merge_pairs(parts), merge_pairs(parts[::-1])
    np.testing.assert_array_equal(one.feature, other.feature)
    np.testing.assert_array_equal(one.support, other.support)
    assert list(zip(one.feature, one.support, strict=True)) == sorted(zip(one.feature, one.support, strict=True))


@pytest.mark.parametrize("sparse", [False, True])
def test_constant_features_are_in_no_group(sparse: bool) -> None:
    X = make("noise", 4, 30, 2)
    X[1], X[2] = 0.1, 0.0
    assert as_groups(pairs_of(X, [0], 0.9, sparse), [0]) == reference.groups(X, [0], 0.9)
    assert not {1, 2} & set(pairs_of(X, [0, 3], 0.99, sparse).feature.tolist())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [2.0**600, 2.0**-600])
def test_rows_of_extreme_values_have_the_same_pairs(scale: float, sparse: bool) -> None:
    """Products of their values overflow, or underflow."""
    X = make("groups", 40, 60, 3)
    extreme = X.copy()
    extreme[::3] *= scale
    supports = [*range(0, 40, 5)]
    pairs, same = pairs_of(X, supports, 0.4, sparse), pairs_of(extreme, supports, 0.4, sparse)
    assert len(pairs.support) > len(supports)
    for name in ("support", "feature", "rho"):
        np.testing.assert_array_equal(getattr(same, name), getattr(pairs, name))
    rows, others = whole(X, sparse), whole(extreme, sparse)
    np.testing.assert_array_equal(correlations(others, others), correlations(rows, rows))
    np.testing.assert_array_equal(correlations(others, others.span(7, 20)), correlations(rows, rows.span(7, 20)))


def test_pointers_to_very_many_nonzeros_are_wide(monkeypatch) -> None:
    """As with more than 2**32: nothing is counted in 32 bits, and the result is the same."""
    X = sp.random_array((40, 12), density=0.5, rng=np.random.default_rng(0), format="csc")
    narrow = as_rows(X)
    expected = find_pairs(narrow, prepare(narrow, 0.2))
    monkeypatch.setattr(blocks, "NARROW_BELOW", 10)
    wide = as_rows(X)
    supports = prepare(wide, 0.2)
    assert {pointers.dtype for pointers in (wide.indptr, supports.rows.indptr, supports.at_indptr)} == {np.dtype("u8")}
    found = find_pairs(wide, supports)
    assert len(found.rho) > wide.n_rows
    for name in ("support", "feature", "rho"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(correlations(wide, wide), correlations(narrow, narrow))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_threads_share_correlations_and_change_no_bit(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 11)) * (rng.random((50, 11)) < 0.4)
    rows = as_rows(sp.csr_array(X) if kind == "sparse" else X)
    few = rows.rows(np.array([3, 5]))
    alone = [correlations(rows, rows), correlations(few, rows), correlations(rows, few)]
    monkeypatch.setattr("gdm_dask.features.correlation.WORTH_A_THREAD", 1)
    monkeypatch.setattr("gdm_dask.features.correlation.n_cores", lambda: 4)
    for one, other in zip(
        alone, [correlations(rows, rows), correlations(few, rows), correlations(rows, few)], strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(alone[0], np.corrcoef(X.T), atol=1e-12)
