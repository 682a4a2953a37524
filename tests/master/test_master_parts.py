"""Parts of the master problem: products of rows, Gram matrices, the minimum on the simplex, intercepts."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.master_instances import Instance, assert_on_simplex, kinds, make, moments
from hypothesis import given, settings
from hypothesis import strategies as st

from gdm_dask.master.cuts_qp import minimise_on_simplex
from gdm_dask.master.losses import SquaredHinge, Sums, find_intercept
from gdm_dask.master.newton import ActiveGram
from gdm_dask.master.problem import Rows


def rows_of(X: np.ndarray, sizes: list[int]) -> Rows:
    rows, first = Rows(X.shape[1]), 0
    for size in sizes:
        part = X[first : first + size]
        rows.append(part, *moments(part))
        first += size
    return rows


def instance_of(kind: str, n: int, sizes: list[int], seed: int) -> tuple[Instance, Rows]:
    """Make an instance with cuts of these sizes; returns its rows by cut, too."""
    d = sum(sizes)
    instance = make(kind, n, d + 1, 1, 1.0, seed)
    instance.X = instance.X[:d]
    return instance, rows_of(instance.X, sizes)


def gram_of(rows: Rows, change: np.ndarray, w: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    return rows.normalised(rows.moments(change, w))


weightings = st.sampled_from([None, "some"])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kinds,
    st.integers(2, 60),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(1, 3),
    weightings,
    st.integers(0, 999),
)
def test_products_of_rows(
    kind: str, n: int, sizes: list[int], n_outputs: int, weighting: str | None, seed: int
) -> None:
    instance, rows = instance_of(kind, n, sizes, seed)
    rng, Z, out = np.random.default_rng(seed), instance.normalised(), np.empty((n_outputs, n))
    weights, a = rng.normal(size=(n_outputs, len(Z))), rng.normal(size=(n_outputs, n))
    rows.project(weights, out)
    np.testing.assert_allclose(out, weights @ Z, atol=1e-9)
    np.testing.assert_allclose(rows.scores(a), a @ Z.T, atol=1e-9)
    w = rng.uniform(0, 2, n) if weighting else None
    change = rng.integers(-1, 2, n).astype(np.int8)
    counts = change if w is None else change * w
    gram, sums = gram_of(rows, change, w)
    np.testing.assert_allclose(gram, (Z * counts) @ Z.T, atol=1e-9)
    np.testing.assert_allclose(sums, Z @ counts, atol=1e-9)
    chosen = np.flatnonzero(rng.random(len(Z)) < 0.6)
    part = rows.subset(chosen)
    part.project(weights[:, chosen], out)
    np.testing.assert_allclose(out, weights[:, chosen] @ Z[chosen], atol=1e-9)
    gram, sums = gram_of(part, change, w)
    np.testing.assert_allclose(gram, (Z[chosen] * counts) @ Z[chosen].T, atol=1e-9)
    np.testing.assert_allclose(sums, Z[chosen] @ counts, atol=1e-9)
    np.testing.assert_allclose(rows.scores(a), a @ Z.T, atol=1e-9)  # the original is unchanged


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kinds,
    st.integers(2, 60),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    weightings,
    st.booleans(),
    st.integers(0, 999),
)
def test_carried_gram_matrices(
    kind: str, n: int, sizes: list[int], weighting: str | None, centred: bool, seed: int
) -> None:
    """Rows and samples come and go in any order, also for a part of the rows and after a restore."""
    d = sum(sizes)
    instance = make(kind, n, d + 1, 1, 1.0, seed)
    rng, Z, rows = np.random.default_rng(seed), instance.normalised(), Rows(n)
    w = rng.uniform(0.1, 2, n) if weighting else None
    gram, duals, first = ActiveGram(rows, w), np.ones(n), 0
    for size in sizes:
        new = instance.X[first : first + size]
        rows.append(new, *moments(new))
        first += size
        for share in (0.0, 0.1, 0.1, 0.9):
            flipped = rng.random(n) < share
            duals = np.where(flipped, 1.0 - duals, duals)
            assert gram.update(duals) >= 0
            assert gram.update(duals) == 0
            restored = ActiveGram(rows, w)
            restored.restore(gram.state())
            chosen = np.flatnonzero(rng.random(first) < 0.6)
            part = gram.subset(rows.subset(chosen), chosen)
            assert part.update(duals) == 0 or not first
            counts = duals if w is None else duals * w
            for each, at in ((gram, np.arange(first)), (restored, np.arange(first)), (part, chosen)):
                mean = Z[at] @ counts / max(counts.sum(), 1e-300) * centred
                expected = ((Z[at] - mean[:, None]) * counts) @ (Z[at] - mean[:, None]).T
                covariance, found = each.covariance(centred)
                np.testing.assert_allclose(covariance, expected, atol=1e-9)
                np.testing.assert_allclose(found, mean, atol=1e-9)


def test_gram_matrices_are_summed_up_anew_when_as_many_samples_have_changed_as_are_active() -> None:
    _, rows = instance_of("noise", 200, [7], 0)
    gram, rng = ActiveGram(rows, None), np.random.default_rng(0)
    duals, n_changed, anew = np.ones(200), 0, []
    gram.update(duals)
    for _ in range(40):
        duals = np.where(rng.random(200) < 0.1, 1.0 - duals, duals)
        n_changed += gram.update(duals)
        fresh = ActiveGram(rows, None)
        fresh.update(duals)
        is_anew = gram.state()["counts"][1] == 0
        assert is_anew == (n_changed >= duals.sum())
        assert not is_anew or gram.state()["gram"].tobytes() == fresh.state()["gram"].tobytes()
        np.testing.assert_allclose(gram.state()["gram"], fresh.state()["gram"], atol=1e-12)
        anew.append(is_anew)
        n_changed = 0 if is_anew else n_changed
    assert 3 <= sum(anew) <= 30


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("values", ["ones", "floats"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gram_matrices_of_many_samples(share: float, values: str, weighted: bool) -> None:
    """Several spans and ranges, with few and with most samples changed, for all rows and for new ones."""
    rng, n, d = np.random.default_rng(0), 150_000, 21
    X = (rng.random((d, n), np.float32) < rng.uniform(0.01, 0.2, d)[:, None]).astype(np.float64)
    if values == "floats":
        X *= rng.random((d, n))
    rows, (means, norms) = rows_of(X, [9, 0, 12]), moments(X)
    Z = (X - means[:, None]) / norms[:, None]
    change = np.where(rng.random(n) < share, rng.choice([-1, 1], n), 0).astype(np.int8)
    w = rng.uniform(0, 2, n) if weighted else None
    counts = change if w is None else change * w
    expected = (Z * counts) @ Z.T
    np.testing.assert_allclose(gram_of(rows, change, w)[0], expected, atol=1e-11)
    np.testing.assert_allclose(gram_of(rows, change, w)[1], Z @ counts, atol=1e-9)
    carried = rows_of(X[:9], [9]).moments(change, w).padded(d)
    new = rows.moments(change, w, first=9)
    new.count = 0.0
    carried.add(new)
    np.testing.assert_allclose(rows.normalised(carried)[0], expected, atol=1e-11)


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


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(2, 200), st.floats(-3, 3), st.floats(-10, 10), weightings, st.integers(0, 999))
def test_intercepts(n: int, log_scale: float, start: float, weighting: str | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    f = 10**log_scale * rng.normal(size=n).round(1) + y
    w = rng.uniform(0.1, 2, n) if weighting else None

    def sums(b: float) -> Sums:
        return SquaredHinge().sums(y, f, b, w)

    b, found = find_intercept(sums, start)
    weights = np.ones(n) if w is None else w
    R = y * np.maximum(1 - y * (f + b), 0)
    expected = ((weights * R)[R > 0].sum(), -(weights * R)[R < 0].sum(), (weights * R * R).sum(), weights[R != 0].sum())
    assert tuple(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert found.rising == pytest.approx(found.falling, rel=1e-8, abs=1e-12 * 10**log_scale * n)
    for other in (b - 1e-3, b + 1e-3):
        assert sums(other).squares >= found.squares * (1 - 1e-9)
