"""What the master problem is solved with: products of rows, the minimum on the simplex, gamma."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from master_instances import assert_on_simplex, gamma_by_sorting, kinds, make, moments

from gdm_dask.master import Rows
from gdm_dask.simplex import find_gamma, minimise_on_simplex


def rows_of(X: np.ndarray, sizes: list[int]) -> Rows:
    rows, first = Rows(X.shape[1]), 0
    for size in sizes:
        part = X[first : first + size]
        rows.append(part, *moments(part))
        first += size
    return rows


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kinds, st.integers(2, 60), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 999))
def test_products_of_rows(kind: str, n: int, sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = sum(sizes)
    instance = make(kind, n, d + 1, 1, 1.0, seed)
    instance.X = instance.X[:d]
    Z, rows, out = instance.normalised(), rows_of(instance.X, sizes), np.empty(n)
    weights, a = rng.normal(size=d), rng.normal(size=n)
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
    rng = np.random.default_rng(seed)
    d = sum(sizes)
    instance = make(kind, n, d + 1, 1, 1.0, seed)
    instance.X = instance.X[:d]
    Z, rows = instance.normalised(), rows_of(instance.X, sizes)
    chosen = np.flatnonzero(rng.random(d) < 0.6)
    part, out = rows.subset(chosen), np.empty(n)
    weights, change = rng.normal(size=len(chosen)), rng.integers(-1, 2, n).astype(np.int8)
    part.project(weights, out)
    np.testing.assert_allclose(out, Z[chosen].T @ weights, atol=1e-9)
    gram, signed = part.gram(change, instance.y)
    np.testing.assert_allclose(gram, (Z[chosen] * change) @ Z[chosen].T, atol=1e-9)
    np.testing.assert_allclose(signed, Z[chosen] @ (change * instance.y), atol=1e-9)
    np.testing.assert_allclose(rows.scores(out), Z @ out, atol=1e-9)  # those it was taken from are as they were


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
    assert find_gamma(margins, C, start) == pytest.approx(gamma_by_sorting(margins, C), rel=1e-12, abs=1e-14)
