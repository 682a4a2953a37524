"""The ranking against a plain sort, whole and merged from parts in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import reference
from helpers.instances import data_of, kinds, labels, make, many, memory, seeds, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.features.block import Block
from gdm_dask.features.correlation import as_rows, correlation_limit
from gdm_dask.features.effective import effective_samples
from gdm_dask.features.groups import prepare
from gdm_dask.features.ranking import ALL_SAMPLES, Fold, Question, Ranking, ScorePass, merge, top, top_of_block
from gdm_dask.features.scores import scores

few_values = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, np.nan]), min_size=1, max_size=40)


def assert_is_top(found: Ranking, c: np.ndarray, k: int) -> None:
    expected = sorted(np.flatnonzero(~np.isnan(c)).tolist(), key=lambda j: (-abs(c[j]), j))
    assert found.features.tolist() == expected[:k]
    np.testing.assert_array_equal(found.scores, c[expected[:k]])
    assert found.n_left == max(0, len(expected) - k)


@many(200)
@given(few_values, st.integers(1, 45))
def test_top_breaks_ties_by_number(values: list[float], k: int) -> None:
    c = np.array(values)
    assert_is_top(top(np.arange(len(c)), c, k), c, k)


@many(200)
@given(few_values, st.integers(1, 45), st.integers(1, 6), seeds)
def test_merging_parts_in_any_order_is_ranking_the_whole(values, k, n_parts, seed) -> None:
    c = np.array(values)
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, n_parts, len(c))
    parts = [top(np.flatnonzero(owner == part), c[owner == part], k) for part in rng.permutation(n_parts)]
    assert_is_top(merge(parts, k), c, k)
    tree = [merge(some, k) for some in (parts[: n_parts // 2], parts[n_parts // 2 :]) if some]
    assert_is_top(merge(tree, k), c, k)


@many(60)
@given(kinds, st.integers(1, 40), st.integers(2, 40), st.booleans(), st.integers(1, 2000), st.integers(1, 50), seeds)
def test_a_pass_ranks_all_features_for_every_vector(kind, m, n, sparse, block_bytes, k, seed) -> None:
    X = make(kind, m, n, seed)
    A = np.random.default_rng(seed).dirichlet(np.ones(n), size=2) * labels(n, seed)
    with data_of(memory(X, sparse, block_bytes)) as data:
        found = data.run(ScorePass([Question(vector[None], k) for vector in A])).rankings
    assert data.counts.passes == 1
    for ranking, c in zip(found, scores(whole(X, sparse), A), strict=True):
        c[np.ptp(X, axis=1) == 0] = np.nan
        assert_is_top(ranking, c, k)


@many(30)
@given(kinds, st.integers(1, 40), st.integers(6, 40), st.booleans(), st.integers(1, 2000), seeds)
def test_a_ranking_has_the_same_bits_whichever_questions_share_the_pass(kind, m, n, sparse, block_bytes, seed) -> None:
    X, rng = make(kind, m, n, seed), np.random.default_rng(seed)
    folds = [ALL_SAMPLES, Fold(np.arange(n - 3)), Fold(weights=rng.gamma(1.0, size=n))]
    questions = [
        Question(rng.normal(size=(rng.integers(1, 4), n - 3 if number == 1 else n)), 5, fold=number)
        for number in rng.integers(0, 3, 25).tolist()
    ]
    with pytest.MonkeyPatch.context() as patch, data_of(memory(X, sparse, block_bytes)) as data:
        patch.setattr("gdm_dask.features.ranking.SCORES_AT_ONCE", 100)
        together = data.run(ScorePass(questions, folds)).rankings
    with data_of(memory(X, sparse)) as data:
        alone = [data.run(ScorePass([replace(one, fold=0)], [folds[one.fold]])).rankings[0] for one in questions]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.scores, other.scores)
        assert one.n_left == other.n_left


@many(80)
@given(
    st.booleans(), st.integers(1, 400), st.integers(1, 12), st.integers(0, 300), st.integers(0, 8),
    st.floats(0.1, 1), st.sets(st.integers(0, 29)), seeds,
)  # fmt: skip
def test_the_best_rows_come_with_the_ranking(sparse, block_bytes, k, n_values, n_least, share, known, seed) -> None:
    """For every question and any blocks: the rows of its best free features, up to the limit of a part."""
    X = np.where(np.random.default_rng(seed).random((30, 12)) < 0.5, make("noise", 30, 12, seed), 0.0)
    duals = np.random.default_rng(seed).normal(size=(2, 1, 12))
    left_out = np.array(sorted(known), np.int64)
    questions = [Question(one, k, left_out, n_values, n_least, share) for one in duals]
    with data_of(memory(X, sparse, block_bytes)) as data:
        ranked = data.run(ScorePass(questions))
    lengths = np.count_nonzero(X, axis=1) if sparse else np.full(30, 12)
    for question, ranking in zip(questions, ranked.rankings, strict=True):
        c = scores(whole(X, sparse), question.duals)[0]
        c[left_out] = c[np.ptp(X, axis=1) == 0] = np.nan
        assert_is_top(ranking, c, k)
        np.testing.assert_array_equal(ranking.lengths, lengths[ranking.features])
        n_fitting = np.count_nonzero(np.cumsum(ranking.lengths) <= n_values)
        assert question.n_wanted(ranking) == min(max(n_fitting, n_least), k, len(ranking.features))
        if share == 1.0:
            assert ranked.has(ranking.features[: question.n_wanted(ranking)]).all()
    here = np.unique(np.concatenate([ranking.features for ranking in ranked.rankings]))
    here = np.random.default_rng(seed).permutation(here[ranked.has(here)])
    if len(here):
        np.testing.assert_array_equal(ranked.rows(here).to_scipy().toarray(), X[here])


@pytest.mark.parametrize("sparse", [False, True])
def test_features_that_correlate_with_a_support_are_left_out(sparse: bool) -> None:
    X = make("groups", 40, 50, 0)
    limit = correlation_limit(0.25)
    rows = as_rows(X.T).rows(np.array([3, 17])) if not sparse else whole(X, True).rows(np.array([3, 17]))
    question = Question(np.random.default_rng(0).normal(size=(1, 50)), 40, supports=prepare(rows, limit))
    with data_of(memory(X, sparse, 500)) as data:
        (ranking,) = data.run(ScorePass([question])).rankings
    close = np.abs(reference.correlations(X)[[3, 17]]).max(axis=0) >= limit
    assert close.sum() > 4
    assert set(ranking.features.tolist()) == set(np.flatnonzero(~close & (np.ptp(X, axis=1) > 0)).tolist())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 50, 3_000, 30_000])
def test_ranking_a_large_block_by_a_guess_equals_ranking_all_of_it(k: int, ties: bool) -> None:
    rng = np.random.default_rng(k)
    scores = rng.standard_normal(50_000)
    scores[rng.random(50_000) < 0.2] = np.nan
    if ties:
        scores = np.round(scores, 1)
    block = Block(7, 50_007, 1, np.zeros((50_000, 1)), np.zeros(50_000), np.zeros(50_000))
    found, whole = top_of_block(block, scores, k), top(np.arange(7, 50_007), scores, k)
    np.testing.assert_array_equal(found.features, whole.features)
    np.testing.assert_array_equal(found.scores, whole.scores)
    assert found.n_left == whole.n_left


@many(60)
@given(
    kinds, st.integers(1, 40), st.integers(2, 40), st.booleans(), st.integers(1, 2000), st.integers(1, 50),
    st.integers(2, 4), st.sampled_from([0.0, 2.0, 8.0]), seeds,
)  # fmt: skip
def test_several_outputs_are_ranked_by_their_norm(kind, m, n, sparse, block_bytes, k, n_outputs, least, seed) -> None:
    """Features on few samples can be left out, whatever the blocks."""
    X = make(kind, m, n, seed)
    duals = np.random.default_rng(seed).normal(size=(n_outputs, n))
    with data_of(memory(X, sparse, block_bytes)) as data:
        (found,) = data.run(ScorePass([Question(duals, k, least_effective=least)])).rankings
    block = whole(X, sparse)
    c = scores(block, duals)
    sizes = np.sqrt(np.add.reduce(c * c))
    sizes[(np.ptp(X, axis=1) == 0) | (effective_samples(block) < least)] = np.nan
    assert_is_top(found, sizes, k)


@many(60)
@given(kinds, st.integers(1, 30), st.integers(2, 40), st.booleans(), seeds)
def test_effective_samples_are_the_literal_ones(kind, m, n, sparse, seed) -> None:
    X = make(kind, m, n, seed)
    with np.errstate(divide="ignore"):
        expected = 1.0 / np.sum(reference.normalise(X) ** 4, axis=1)
    expected[np.ptp(X, axis=1) == 0] = 0.0
    np.testing.assert_allclose(effective_samples(whole(X, sparse)), expected, rtol=1e-7)
