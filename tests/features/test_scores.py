"""Scores and correlations of blocks against dense formulas, however the rows are cut into blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.instances import KINDS, blocks_of, kinds, labels, make, many, memory, seeds, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask import feature_correlations, redundancy_rate
from gdm_dask.errors import BadInput
from gdm_dask.features import correlation
from gdm_dask.features.block import stack
from gdm_dask.features.correlation import as_rows, correlations
from gdm_dask.features.moments import with_weights
from gdm_dask.features.scores import scores

storages = st.booleans()


def vectors(n: int, p: int, seed: int) -> np.ndarray:
    """alpha * y of several problems: weights on the simplex, signed."""
    alpha = np.random.default_rng(seed + 3).dirichlet(np.ones(n), size=p)
    return alpha * labels(n, seed)


def tolerance(kind: str) -> float:
    """Compare relative to the largest possible score: sparse rows with large means lose digits."""
    return 1e-8 if kind == "far from zero" else 1e-13


@many(150)
@given(kinds, st.integers(1, 30), st.integers(2, 80), st.integers(1, 3), storages, seeds)
def test_scores_equal_the_formula(kind: str, m: int, n: int, p: int, sparse: bool, seed: int) -> None:
    X, A = make(kind, m, n, seed), vectors(n, p, seed)
    expected = A @ reference.normalise(X).T
    found = scores(whole(X, sparse), A)
    assert found.shape == (p, m)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(kind) * np.linalg.norm(A, axis=1).max())


@many(80)
@given(kinds, st.integers(1, 30), st.integers(2, 60), storages, st.integers(1, 3000), seeds)
def test_scores_are_the_same_bits_for_every_cut_into_blocks(kind, m, n, sparse, block_bytes, seed) -> None:
    X, A = make(kind, m, n, seed), vectors(n, 2, seed)
    blocks = blocks_of(memory(X, sparse, block_bytes))
    assert blocks[0].start == 0
    assert [block.stop for block in blocks] == [*(block.start for block in blocks[1:]), m]
    np.testing.assert_array_equal(np.hstack([scores(block, A) for block in blocks]), scores(whole(X, sparse), A))


@many(40)
@given(kinds, st.integers(1, 20), st.integers(2, 60), st.integers(2, 45), storages, seeds)
def test_a_vector_scores_the_same_bits_alone_and_in_company(kind, m, n, p, sparse, seed) -> None:
    X, A = make(kind, m, n, seed), vectors(n, p, seed)
    together = scores(whole(X, sparse), A)
    np.testing.assert_array_equal(together, np.vstack([scores(whole(X, sparse), a[None]) for a in A]))


@pytest.mark.parametrize("values", [None, np.float32, np.float64, np.int32])
def test_values_of_every_type_score_the_same_bits_in_company(values) -> None:
    """Ones without values, floats, and integers over a power of ten; with constant and empty rows."""
    rng = np.random.default_rng(0)
    X = np.round(rng.random((30, 50)), 2) * (rng.random((30, 50)) < 0.3)
    X[3], X[7] = 0.0, 1.0
    block = as_rows(sp.csc_array(X.T))
    stored = None if values is None else (block.values * (100 if values is np.int32 else 1)).round(2).astype(values)
    block = replace(block, values=stored, decimals=2 if values is np.int32 else None)
    A = rng.normal(size=(23, 50))
    np.testing.assert_array_equal(scores(block, A), np.vstack([scores(block, a[None]) for a in A]))
    parts = list(block.parts(7))
    assert [part.start for part in parts] == [0, 7, 14, 21, 28]
    np.testing.assert_array_equal(np.hstack([scores(part, A) for part in parts]), scores(block, A))


def test_value_types_of_the_kinds() -> None:
    """The tests above cover every value type only while this holds."""
    found = {kind: whole(make(kind, 8, 30, 0), sparse=True).values for kind in KINDS}
    assert found["binary"] is None
    assert {values.dtype.name for values in found.values() if values is not None} == {"uint8", "float32", "float64"}


@many(150)
@given(kinds, st.integers(1, 20), st.integers(2, 60), storages, seeds)
def test_correlations_equal_the_formula_and_are_symmetric(kind, m, n, sparse, seed) -> None:
    X = make(kind, m, n, seed)
    rho = correlations(whole(X, sparse), whole(X, sparse))
    np.testing.assert_allclose(rho, reference.correlations(X), rtol=0, atol=1e-9 if kind == "far from zero" else 1e-12)
    np.testing.assert_array_equal(rho, rho.T)


@many(60)
@given(kinds, st.integers(1, 20), st.integers(2, 60), storages, seeds)
def test_a_pair_correlates_the_same_bits_in_every_company(kind, m, n, sparse, seed) -> None:
    rows = whole(make(kind, m, n, seed), sparse)
    rng = np.random.default_rng(seed)
    some, others = rng.permutation(m)[: rng.integers(1, m + 1)], rng.permutation(m)[: rng.integers(1, m + 1)]
    np.testing.assert_array_equal(
        correlations(rows.rows(some), rows.rows(others)), correlations(rows, rows)[np.ix_(some, others)]
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_that_is_scaled_and_shifted_has_the_same_correlations(sparse: bool) -> None:
    X = make("counts", 6, 50, 1)
    rho = correlations(whole(X, sparse), whole(-3.0 * X + 1e6, sparse))
    np.testing.assert_allclose(rho, -reference.correlations(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_disjoint_one_hot_pair_correlates_fully(sparse: bool) -> None:
    x = (np.arange(20) < 7).astype(float)
    rho = correlations(whole(np.array([x, 1 - x]), sparse), whole(np.array([x, 1 - x]), sparse))
    np.testing.assert_allclose(rho, [[1, -1], [-1, 1]], rtol=0, atol=1e-14)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -7.3, 1e9])
def test_constant_features_score_and_correlate_zero(sparse: bool, value: float) -> None:
    X = np.vstack([np.full(30, value), make("noise", 2, 30, 0)])
    rows = whole(X, sparse)
    assert (scores(rows, vectors(30, 2, 0))[:, 0] == 0).all()
    rho = correlations(rows, rows)
    assert (rho[0] == 0).all()
    assert (rho[:, 0] == 0).all()


def test_stacked_blocks_hold_the_rows_of_the_parts() -> None:
    X = make("counts", 12, 20, 4)
    parts = [whole(X[:5], True), whole(X[5:6], True), whole(X[6:], True)]
    np.testing.assert_array_equal(stack(parts).to_scipy().toarray(), X)


@many(40)
@given(kinds, st.integers(1, 12), st.integers(2, 40), seeds, st.booleans())
def test_the_samples_taken_at_a_time_change_no_bit(kind: str, m: int, n: int, seed: int, weighted: bool) -> None:
    rows = whole(make(kind, m, n, seed), True)
    if weighted:
        rows = with_weights(rows, np.random.default_rng(seed).random(n))
    found = []
    for n_samples in (1, 7, n, 2 * n):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(correlation, "SAMPLES_AT_ONCE", n_samples)
            found.append(correlations(rows, rows.span(m // 2, m)))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    np.testing.assert_array_equal(found[0], correlations(rows, rows)[:, m // 2 :])


@many(40)
@given(kinds, st.integers(1, 12), st.integers(2, 40), seeds)
def test_public_functions(kind: str, m: int, n: int, seed: int) -> None:
    X = make(kind, m, n, seed)
    close = {"rtol": 0, "atol": 1e-9 if kind == "far from zero" else 1e-12}
    rho = reference.correlations(X)
    for matrix in (X.T, sp.csr_array(X.T), sp.coo_array(X.T)):
        np.testing.assert_allclose(feature_correlations(matrix), rho, **close)
        np.testing.assert_allclose(feature_correlations(matrix, X.T[:, :1]), rho[:, :1], **close)
        np.testing.assert_allclose(redundancy_rate(matrix), reference.redundancy_rate(X), **close)


def test_public_functions_refuse_what_is_no_matrix() -> None:
    with pytest.raises(BadInput, match="samples x features"):
        redundancy_rate(np.ones(3))
    with pytest.raises(BadInput, match="X has 4 samples, Y has 3"):
        feature_correlations(np.eye(4), np.eye(3))
    with pytest.raises(BadInput, match="NaN"):
        redundancy_rate(np.array([[1.0, np.nan], [0.0, 1.0]]))
    assert redundancy_rate(np.ones((3, 1))) == 0.0
