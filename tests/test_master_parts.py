"""What the master problem is solved with: products of rows, the minimum on the simplex, gamma."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from master_instances import Instance, assert_on_simplex, gamma_by_sorting, kinds, make, moments

from gdm_dask.master import Rows
from gdm_dask.master_gram import Moments
from gdm_dask.simplex import Excess, add_excess, find_gamma, measure_excess, minimise_on_simplex


def rows_of(X: np.ndarray, sizes: list[int]) -> Rows:
    rows, first = Rows(X.shape[1]), 0
    for size in sizes:
        part = X[first : first + size]
        rows.append(part, *moments(part))
        first += size
    return rows


def instance_of(kind: str, n: int, sizes: list[int], seed: int) -> tuple[Instance, Rows]:
    """An instance with as many features as the cuts of these sizes hold, and its rows, cut by cut."""
    d = sum(sizes)
    instance = make(kind, n, d + 1, 1, 1.0, seed)
    instance.X = instance.X[:d]
    return instance, rows_of(instance.X, sizes)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kinds, st.integers(2, 60), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 999))
def test_products_of_rows(kind: str, n: int, sizes: list[int], seed: int) -> None:
    instance, rows = instance_of(kind, n, sizes, seed)
    rng, Z, out = np.random.default_rng(seed), instance.normalised(), np.empty(n)
    weights, a = rng.normal(size=len(Z)), rng.normal(size=n)
    rows.project(weights, out)
    np.testing.assert_allclose(out, Z.T @ weights, atol=1e-9)
    np.testing.assert_allclose(rows.scores(a), Z @ a, atol=1e-9)
    change = rng.integers(-1, 2, n).astype(np.int8)
    gram, signed = rows.gram(change, instance.y)
    np.testing.assert_allclose(gram, (Z * change) @ Z.T, atol=1e-9)
    np.testing.assert_allclose(signed, Z @ (change * instance.y), atol=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kinds, st.integers(2, 60), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 999))
def test_a_subset_of_rows_has_the_same_products(kind: str, n: int, sizes: list[int], seed: int) -> None:
    instance, rows = instance_of(kind, n, sizes, seed)
    rng, Z = np.random.default_rng(seed), instance.normalised()
    chosen = np.flatnonzero(rng.random(len(Z)) < 0.6)
    part, out = rows.subset(chosen), np.empty(n)
    weights, change = rng.normal(size=len(chosen)), rng.integers(-1, 2, n).astype(np.int8)
    part.project(weights, out)
    np.testing.assert_allclose(out, Z[chosen].T @ weights, atol=1e-9)
    gram, signed = part.gram(change, instance.y)
    np.testing.assert_allclose(gram, (Z[chosen] * change) @ Z[chosen].T, atol=1e-9)
    np.testing.assert_allclose(signed, Z[chosen] @ (change * instance.y), atol=1e-9)
    np.testing.assert_allclose(rows.scores(out), Z @ out, atol=1e-9)  # those it was taken from are as they were


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("values", ["ones", "floats"])
def test_gram_matrices_of_many_samples(share: float, values: str) -> None:
    """Over several spans and ranges, where few samples change and where most do, from nothing and from the totals."""
    rng, n, d = np.random.default_rng(0), 150_000, 21
    X = (rng.random((d, n), np.float32) < rng.uniform(0.01, 0.2, d)[:, None]).astype(np.float64)
    if values == "floats":
        X *= rng.random((d, n))
    y = np.where(rng.random(n) < 0.7, 1.0, -1.0)
    rows, (means, norms) = rows_of(X, [9, 0, 12]), moments(X)
    Z = (X - means[:, None]) / norms[:, None]
    change = np.where(rng.random(n) < share, rng.choice([-1, 1], n), 0).astype(np.int8)
    totals = rows.totals(rows_of(X[:9], [9]).totals(Moments.zeros(0), y), y)
    for start, counts in ((None, change), (totals, change + 1.0)):
        gram, signed = rows.gram(change, y, start)
        np.testing.assert_allclose(gram, (Z * counts) @ Z.T, atol=1e-11)
        np.testing.assert_allclose(signed, Z @ (counts * y), atol=1e-9)
    at_once = rows.totals(Moments.zeros(0), y)
    assert totals.gram.tobytes() == at_once.gram.tobytes()
    assert totals.signed.tobytes() == at_once.signed.tobytes()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(-6, 6), st.integers(0, 999))
def test_minimum_on_the_simplex(size: int, rank: int, log_scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, rank)) * 10**log_scale
    hessian, linear, start = root @ root.T, rng.normal(size=size), rng.random(size)
    start[rng.random(size) < 0.5] = 0.0
    start[0] += 0.1
    x = minimise_on_simplex(hessian, linear, start / start.sum())
    slopes = linear - hessian @ x
    assert_on_simplex(x)
    # Optimal over the simplex: no entry promises more than the mean of those in use.
    assert slopes.max() - slopes @ x <= 1e-7 * (1 + np.abs(hessian).max())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.floats(-3, 8), st.floats(-10, 10), st.integers(0, 999))
def test_gamma(n: int, log_C: float, start: float, seed: int) -> None:
    margins = np.random.default_rng(seed).normal(size=n).round(1)
    C = 10.0**log_C
    cut = n // 3  # sums over parts are as good as sums over all

    def excess(gamma: float) -> Excess:
        return add_excess([measure_excess(margins[:cut], gamma), measure_excess(margins[cut:], gamma)])

    gamma, found = find_gamma(excess, C, start)
    assert gamma == pytest.approx(gamma_by_sorting(margins, C), rel=1e-12, abs=1e-14)
    e = np.maximum(gamma - margins, 0.0)
    expected = (e.sum(), e @ e, e @ margins, margins.sum(), np.count_nonzero(e), n)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert find_gamma(excess, C, -np.inf)[0] == pytest.approx(gamma, rel=1e-12, abs=1e-14)
