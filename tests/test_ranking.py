"""The ranking against a plain sort, whole and merged from parts in any order."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import kinds, labels, make, many, memory, passes_over, seeds, whole

from gdm_dask.ranking import Ranking, merge, top, top_of_block
from gdm_dask.scores import scores

few_values = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=40)


def assert_is_top(found: Ranking, c: np.ndarray, k: int) -> None:
    expected = reference.ranking(c)
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
    with passes_over(memory(X, sparse, block_bytes)) as passes:
        found = passes.top(A, k)
    assert passes.counts.passes == 1
    for ranking, c in zip(found, scores(whole(X, sparse), A), strict=True):
        assert_is_top(ranking, c, k)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 50, 3_000, 30_000])
def test_ranking_a_large_block_by_a_guess_equals_ranking_all_of_it(k: int, ties: bool) -> None:
    rng = np.random.default_rng(k)
    scores = rng.standard_normal(50_000)
    scores[rng.random(50_000) < 0.2] = 0.0
    if ties:
        scores = np.round(scores, 1)
    found, whole = top_of_block(7, scores, k), top(np.arange(7, 50_007), scores, k)
    np.testing.assert_array_equal(found.features, whole.features)
    np.testing.assert_array_equal(found.scores, whole.scores)
    assert found.n_left == whole.n_left
