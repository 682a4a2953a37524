"""Weighted moments, correlations and groups equal those of repeated samples."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from helpers import reference
from helpers.instances import data_of, kinds, make, many, memory, pairs_of, seeds, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.features.correlation import correlation_limit, correlations
from gdm_dask.features.groups import least_weights
from gdm_dask.features.moments import with_weights
from gdm_dask.features.ranking import Fold, Question, ScorePass

sizes = st.integers(1, 30), st.integers(2, 40)


def drawn(n: int, seed: int) -> np.ndarray:
    """Draw weights from 0 to 3, not all 0."""
    weights = np.random.default_rng(seed).integers(0, 4, n).astype(float)
    weights[seed % n] = 2.0
    return weights


@many(60)
@given(kinds, *sizes, st.booleans(), seeds)
def test_moments_and_correlations_of_whole_weights(kind, m, n, sparse, seed) -> None:
    X, weights = make(kind, m, n, seed), drawn(n, seed)
    found, expected = with_weights(whole(X, sparse), weights), whole(np.repeat(X, weights.astype(int), axis=1), sparse)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.norms, expected.norms, rtol=1e-9)
    assert found.total_weight == expected.n_samples
    np.testing.assert_allclose(correlations(found, found), correlations(expected, expected), atol=1e-9)


@many(60)
@given(kinds, *sizes, st.booleans(), seeds)
def test_moments_of_any_weights(kind, m, n, sparse, seed) -> None:
    X, rng = make(kind, m, n, seed), np.random.default_rng(seed)
    weights = rng.gamma(0.3, size=n)
    mean = (X @ weights / weights.sum())[:, None]
    mean += ((X - mean) @ weights / weights.sum())[:, None]
    norms = np.sqrt((X - mean) ** 2 @ weights)
    norms[np.ptp(X, axis=1) == 0] = 0.0
    found = with_weights(whole(X, sparse), weights)
    np.testing.assert_allclose(found.means, mean[:, 0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_feature_that_is_constant_where_samples_have_weight(sparse: bool) -> None:
    """The weight of its zeros is 0, not the rounding of a difference of sums."""
    rng = np.random.default_rng(0)
    X, weights = np.full((1, 50), 0.1), rng.gamma(1.0, size=50)
    X[0, :20], weights[:20] = 0.0, 0.0
    assert with_weights(whole(X, sparse), weights).norms.tolist() == [0.0]
    X[0, :5] = 1e200
    assert with_weights(whole(X, sparse), weights).norms.tolist() == [0.0]
    X[0, 30] = 3e200
    found = with_weights(whole(X, sparse), weights)
    assert found.norms[0] == pytest.approx(3e200 * np.sqrt(weights[30] * (1 - weights[30] / weights.sum())))


@many(60)
@given(kinds, *sizes, st.sampled_from([0.05, 0.25, 0.5, 0.9]), st.booleans(), st.integers(1, 2000), seeds)
def test_groups_are_those_of_repeated_samples(kind, m, n, tau, sparse, size, seed) -> None:
    X, weights = make(kind, m, n, seed), drawn(n, seed)
    X_long = np.repeat(X, weights.astype(int), axis=1)
    supports = np.flatnonzero(np.ptp(X_long, axis=1) > 0)[:4]
    if not len(supports):
        return
    pairs = pairs_of(X, supports, tau, sparse, size, Fold(weights=weights))
    found = {s: pairs.feature[pairs.support == k].tolist() for k, s in enumerate(supports.tolist())}
    assert found == reference.groups(X_long, supports.tolist(), tau)
    rows = with_weights(whole(X, sparse), weights)
    rho = correlations(rows, rows.rows(supports))
    np.testing.assert_array_equal(pairs.rho, rho[pairs.feature, pairs.support])


def test_few_samples_of_great_weight_reach_a_support_and_many_of_little_weight_do_not() -> None:
    rng = np.random.default_rng(0)
    weights = np.where(np.arange(400) < 8, 50.0, 0.1)
    X = (rng.random((300, 400)) < 0.03).astype(float)
    X[:, :8] = 0.0
    X[:4] = rng.random((4, 400)) < 0.5
    X[0, :4], X[0, 4:8], X[299] = 1.0, 0.0, 0.0
    X[299, :4] = 1.0
    pairs = pairs_of(X, [0], 0.25, sparse=True, fold=Fold(weights=weights))
    assert 299 in pairs.feature
    assert pairs.n_skipped > 200


@many(40)
@given(kinds, st.integers(1, 6), st.integers(2, 8), st.sampled_from([0.05, 0.25, 0.5, 0.9]), seeds)
def test_with_no_more_weight_than_the_least_no_feature_reaches_a_support(kind, m, n, tau, seed) -> None:
    X, rng = make(kind, m, n, seed), np.random.default_rng(seed)
    weights, limit = rng.gamma(0.5, size=n), correlation_limit(tau)
    rows = with_weights(whole(X, sparse=True), weights)
    for row, needed in enumerate(least_weights(rows, limit)):
        z = (X[row] - rows.means[row]) / (rows.norms[row] or np.inf)
        for r in range(n):
            for J in map(list, combinations(range(n), r)):
                if weights[J].sum() <= needed:
                    reached = np.sqrt(np.sum(weights[J] * z[J] ** 2))
                    assert reached < limit * np.sqrt(1 - weights[J].sum() / weights.sum()) or reached == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_a_pass_ranks_for_problems_with_and_without_weights(sparse: bool) -> None:
    X, rng = make("noise", 40, 30, 0), np.random.default_rng(0)
    duals, weights = rng.normal(size=(2, 30)), drawn(30, 0)
    folds = [Fold(), Fold(weights=weights), Fold(np.arange(20)), Fold(np.arange(20), weights[:20] + 0.5)]
    vectors = [duals, duals * weights, duals[:, :20], duals[:, :20]]
    questions = [Question(vector, 5, fold=number) for number, vector in enumerate(vectors)]
    with data_of(memory(X, sparse, 1000)) as data:
        rankings = data.run(ScorePass(questions, folds)).rankings
    for ranking, fold, vector in zip(rankings, folds, vectors, strict=True):
        samples = np.arange(30) if fold.samples is None else fold.samples
        own = np.ones(len(samples)) if fold.weights is None else fold.weights
        centred = X[:, samples] - np.average(X[:, samples], axis=1, weights=own)[:, None]
        scores = np.linalg.norm(centred @ vector.T, axis=1) / np.sqrt(centred**2 @ own)
        order = np.argsort(-scores)[:5]
        assert ranking.features.tolist() == order.tolist()
        np.testing.assert_allclose(ranking.scores, scores[order])
