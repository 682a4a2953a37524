"""Measures equal their dense definitions, and searches by them equal brute force and prove what they skip."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.instances import data_of, kinds, make, many, measures, memory, pairs_of, seeds, suited, supports_of, whole
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.features.information import information_gain, symmetrical_uncertainty
from gdm_dask.features.measures import MEASURES, information
from gdm_dask.features.ranking import Fold
from gdm_dask.features.ranks import SHORT, ranks
from gdm_dask.features.states import MAX_STATES, states

taus = st.sampled_from([0.05, 0.25, 0.5, 0.9])


@many(150)
@given(measures, kinds, st.integers(1, 12), st.integers(2, 70), st.booleans(), seeds)
def test_values_equal_the_dense_definition(name, kind, m, n, sparse, seed) -> None:
    X = suited(make(kind, m, n, seed), name)
    block, expected = whole(X, sparse), reference.measured(X, name)
    np.testing.assert_allclose(MEASURES[name].compare(block, block), expected, rtol=0, atol=1e-9)
    some = np.arange(0, m, 2)
    np.testing.assert_allclose(MEASURES[name].compare(block.rows(some), block), expected[some], rtol=0, atol=1e-9)


@many(60)
@given(measures, kinds, st.integers(2, 8), st.integers(2, 40), st.booleans(), seeds)
def test_weights_equal_repetition(name, kind, m, n, sparse, seed) -> None:
    X = suited(make(kind, m, n, seed), name)
    times = np.random.default_rng(seed).integers(0, 4, n)
    times[:2] = 1
    weighted = Fold(weights=times.astype(np.float64)).of(whole(X, sparse))
    expected = reference.measured(np.repeat(X, times, axis=1), name)
    np.testing.assert_allclose(MEASURES[name].compare(weighted, weighted), expected, rtol=0, atol=1e-9)


@many(500)
@given(measures, kinds, st.integers(1, 30), st.integers(2, 60), st.integers(1, 4), taus, st.booleans(), seeds)
def test_groups_equal_brute_force(name, kind, m, n, count, tau, sparse, seed) -> None:
    X = suited(make(kind, m, n, seed), name)
    supports = supports_of(X, count, seed)
    if not supports:
        return
    pairs = pairs_of(X, supports, tau, sparse, measure=name)
    found = {s: pairs.feature[pairs.support == k].tolist() for k, s in enumerate(supports)}
    assert found == reference.groups(X, supports, tau, name)
    assert pairs.n_scanned + pairs.n_skipped == m
    everything = whole(X, sparse)
    values = MEASURES[name].compare(everything, everything.rows(np.array(supports)))
    np.testing.assert_array_equal(pairs.rho, values[pairs.feature, pairs.support])


@many(25)
@given(measures, taus, st.booleans(), seeds)
def test_long_rows_are_given_up_with_proof(name, tau, sparse, seed) -> None:
    """Rows long enough for intermediate checks, some at the limit, with most of their weight near the end."""
    rng, n = np.random.default_rng(seed), 700
    source = rng.normal(size=(3, n)) * np.linspace(0.1, 3.0, n) + rng.choice([0.0, 2.0], (3, 1))
    mix = rng.uniform(0.0, 2.0, (30, 1))
    X = (source[rng.integers(0, 3, 30)] + mix * rng.normal(size=(30, n))) * (rng.random((30, n)) < 0.8)
    X = suited(np.vstack([source, X]), name)
    pairs = pairs_of(X, [0, 1, 2], tau, sparse, measure=name)
    found = {s: pairs.feature[pairs.support == s].tolist() for s in range(3)}
    assert found == reference.groups(X, [0, 1, 2], tau, name)


@many(150)
@given(measures, kinds, st.integers(1, 30), st.integers(2, 60), taus, st.booleans(), st.integers(1, 2000), seeds)
def test_pairs_are_the_same_bits_for_every_cut_into_blocks(name, kind, m, n, tau, sparse, size, seed) -> None:
    X = suited(make(kind, m, n, seed), name)
    supports = supports_of(X, 3, seed)
    if not supports:
        return
    fold = Fold(np.arange(0, n, 2), np.random.default_rng(seed).random(len(range(0, n, 2)))) if seed % 2 else Fold()
    one, other = (pairs_of(X, supports, tau, sparse, size, fold, name) for size in (1 << 20, size))
    for field in ("support", "feature", "rho", "n_scanned", "n_skipped"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@many(60)
@given(measures, kinds, st.integers(3, 9), st.integers(2, 40), seeds)
def test_distances_are_a_metric(name, kind, m, n, seed) -> None:
    X = suited(make(kind, m, n, seed), name)
    varied = np.ptp(X, axis=1) > 0
    if not varied.any():
        return
    block = whole(X[varied])
    distances = np.vectorize(MEASURES[name].distance, otypes=[float])(np.abs(MEASURES[name].compare(block, block)))
    around = (distances[:, :, None] + distances[None, :, :]).min(axis=1)
    assert (distances <= around + 1e-6).all()
    assert MEASURES[name].distance(0.2) > MEASURES[name].distance(0.7) > MEASURES[name].distance(1.0) == 0.0
    assert MEASURES[name].distance(np.inf) == 0.0


@many(100)
@given(kinds, st.integers(1, 6), st.sampled_from([2, SHORT - 1, SHORT, 90]), st.booleans(), seeds)
def test_ranks_are_mean_ranks_counted_from_zero(kind, m, n, sparse, seed) -> None:
    X = make(kind, m, n, seed)
    found = ranks(whole(X, sparse)).to_scipy().toarray()
    with_zero = rankdata(np.hstack([X, np.zeros((m, 1))]), axis=1)  # the rank of one more zero, half a rank too high
    for row, raw, ranked in zip(found, X, with_zero, strict=True):
        zero = ranked[-1] - 0.5 if (raw == 0).any() else np.count_nonzero(raw < 0) + 0.5
        np.testing.assert_array_equal(row, rankdata(raw) - zero)


def test_ranks_agree_with_scipy_on_ties_zeros_and_signs() -> None:
    X = np.array([[0, 0, 0, 3, -1, 3, 0, 8], [1, 0, 0, 1, -2, 4, 0, -2.0]])
    block = whole(X, sparse=True)
    assert MEASURES["spearman"].compare(block, block)[0, 1] == pytest.approx(spearmanr(*X).statistic, abs=1e-15)


def test_ranks_of_decimals_are_those_of_the_numbers() -> None:
    numbers = np.array([0.25, -1.5, 0.75, 0.25])
    indptr, indices = np.array([0, 4], np.uint32), np.arange(4, dtype=np.uint32)
    plain = Block(0, 1, 9, numbers, np.zeros(1), np.ones(1), indptr, indices)
    whole_numbers = Block(
        0, 1, 9, (numbers * 100).astype(np.int32), np.zeros(1), np.ones(1), indptr, indices, decimals=2
    )
    np.testing.assert_array_equal(ranks(plain).values, ranks(whole_numbers).values)
    assert ranks(whole_numbers).decimals is None


def test_rare_features_are_not_sorted_for_frequent_supports(monkeypatch) -> None:
    from gdm_dask.features.measures import spearman

    rng = np.random.default_rng(1)
    X = rng.random((204, 900)) * (rng.random((204, 900)) < np.repeat([0.4, 0.01], [4, 200])[:, None])
    ranked: list[int] = []
    monkeypatch.setattr(spearman, "ranks", lambda block: ranked.append(block.n_rows) or ranks(block))
    pairs = pairs_of(X, [0, 1, 2, 3], 0.25, sparse=True, measure="spearman")
    assert sum(ranked) == 8  # the supports, and as features
    assert pairs.n_skipped == 200


def test_information_equals_the_public_functions() -> None:
    X = suited(make("counts", 6, 50, 3), "su")
    block = whole(X, sparse=True)
    expected = np.array([symmetrical_uncertainty(X.T, row) for row in X])
    np.testing.assert_allclose(MEASURES["su"].compare(block, block), expected, atol=1e-12)
    largest = np.maximum.outer(*[[reference.entropy(row) for row in X]] * 2)
    expected = np.array([information_gain(X.T, row) for row in X]) / largest
    np.testing.assert_allclose(MEASURES["ig"].compare(block, block), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["su", "ig"])
def test_many_supports_are_counted_in_parts(name, monkeypatch) -> None:
    X = suited(make("counts", 40, 60, 5), name)
    expected = pairs_of(X, list(range(30)), 0.9, sparse=True, measure=name)
    monkeypatch.setattr("gdm_dask.features.states.STATES_AT_ONCE", 20)
    monkeypatch.setattr("gdm_dask.features.measures.information.PAIRS_AT_ONCE", 90)
    found = pairs_of(X, list(range(30)), 0.9, sparse=True, measure=name)
    for field in ("support", "feature", "rho", "n_scanned", "n_skipped"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    assert len(found.feature) > 40


def test_rare_features_are_not_numbered_for_frequent_supports(monkeypatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.integers(1, 4, (204, 900)) * (rng.random((204, 900)) < np.repeat([0.4, 0.01], [4, 200])[:, None])
    numbered: list[int] = []
    monkeypatch.setattr(information, "states", lambda block: numbered.append(block.n_rows) or states(block))
    pairs = pairs_of(X.astype(float), [0, 1, 2, 3], 0.25, sparse=True, measure="su")
    assert numbered == [4, 4, 4]  # the supports, again in order, and as features
    assert pairs.n_skipped == 200


@pytest.mark.parametrize("sparse", [False, True])
def test_a_feature_with_too_many_values_is_named(sparse) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (9, 600)).astype(float)
    X[3] = np.arange(600) % MAX_STATES  # the most that are allowed
    check = MEASURES["su"].check
    with data_of(memory(X, sparse, 6000)) as data:
        data.run(check)
    X[[5, 7]] = np.arange(600) % (MAX_STATES + 1)
    for size in (6000, 1 << 20):
        with (
            data_of(memory(X, sparse, size)) as data,
            pytest.raises(
                BadInput, match=r"^feature 5 has 257 distinct values: information measures are for at most 256"
            ),
        ):
            data.run(check)
    few = np.vstack([X[:, :40].round(), np.arange(40) % 21])
    with data_of(memory(few, sparse)) as data, pytest.raises(BadInput, match=r"feature 3 has 40 .* at most 20"):
        data.run(check)
    with pytest.raises(BadInput, match="a feature has 257 distinct values"):
        MEASURES["ig"].compare(whole(X, sparse), whole(X, sparse))


def test_a_constant_feature_correlates_by_cosine_alone() -> None:
    X = np.array([[1.0, 2.0, 1.0, 2.0], [5.0, 5.0, 5.0, 5.0], [-1.0, -1.0, -1.0, -1.0]])
    assert pairs_of(X, [0], 0.25, sparse=False, measure="cosine").feature.tolist() == [0, 1, 2]
    assert pairs_of(sp.csr_array(X).toarray(), [0], 0.25, sparse=True, measure="cosine").rho[2] == pytest.approx(
        -3 / np.sqrt(10)
    )
    assert pairs_of(X, [0], 0.25, sparse=False, measure="pearson").feature.tolist() == [0]
    assert pairs_of(X, [0], 0.25, sparse=False, measure="spearman").feature.tolist() == [0]
