"""The refitted SVM is at the minimum of its objective."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from gdm_dask.cutting_plane.svm import REFIT_C, refit
from gdm_dask.features.correlation import as_rows
from gdm_dask.master.losses import Loss, SquaredHinge
from gdm_dask.master.squared_loss import SquaredLoss


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_samples=st.integers(4, 60),
    n_features=st.integers(1, 12),
    density=st.sampled_from([0.1, 0.5, 1.0]),
    shift=st.sampled_from([0.0, 0.0, 1e3]),
    twice=st.booleans(),
)
@example(seed=904083282, n_samples=28, n_features=11, density=0.1, shift=0.0, twice=True)  # steps must be shortened
def test_no_weight_can_be_improved(
    seed: int, n_samples: int, n_features: int, density: float, shift: float, twice: bool
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) * (rng.random((n_samples, n_features)) < density) + shift
    X[0] += 1.0  # no column is constant
    if twice:
        X = np.hstack([X, -2.0 * X])
    y = np.where(rng.random(n_samples) < 0.5, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    rows = as_rows(sp.csr_array(X) if density < 0.5 and not shift else X)
    (coef,), (intercept,) = refit(rows, y[None])
    columns = (X - X.mean(axis=0)) / X.std(axis=0)
    weights = coef * X.std(axis=0)
    decision = columns @ weights + intercept + coef @ X.mean(axis=0)
    slack = np.maximum(1.0 - y * decision, 0.0)
    scale = 1.0 + np.abs(weights).max() + REFIT_C * n_samples
    np.testing.assert_allclose(weights, 2.0 * REFIT_C * columns.T @ (y * slack), atol=1e-7 * scale)
    assert (y * slack).sum() == pytest.approx(0.0, abs=1e-7 * scale)


def test_it_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(5.0, 3.0, size=(400, 8))
    y = np.where(X[:, 0] - X[:, 1] + rng.normal(size=400) > 0, 1.0, -1.0)
    (coef,), (intercept,) = refit(as_rows(X), y[None])
    columns = StandardScaler().fit_transform(X)
    svm = LinearSVC(C=REFIT_C, dual=False, tol=1e-10, intercept_scaling=1e3).fit(columns, y)
    np.testing.assert_allclose(X @ coef + intercept, svm.decision_function(columns), atol=1e-5)


@pytest.mark.parametrize("most_C", [np.inf, 5.0])
@pytest.mark.parametrize("density", [0.05, 1.0])
def test_very_many_features_are_left_to_an_iterative_solver(
    monkeypatch: pytest.MonkeyPatch, density: float, most_C: float
) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(2.0, 1.0, size=(600, 10)) * (rng.random((600, 10)) < density)
    y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=600) > 0.5, 1.0, -1.0)
    rows = as_rows(sp.csr_array(X) if density < 1 else X)
    (coef,), (intercept,) = refit(rows, y[None], most_C=most_C)
    monkeypatch.setattr("gdm_dask.cutting_plane.svm.MAX_DIRECT", 9)
    (other,), (other_intercept,) = refit(rows, y[None], most_C=most_C)
    assert not np.array_equal(coef, other)
    np.testing.assert_allclose(X @ other + other_intercept, X @ coef + intercept, atol=0.02)


@pytest.mark.parametrize("loss", [SquaredHinge(), SquaredLoss()])
def test_a_limit_shrinks_the_weights(loss: Loss) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(5.0, 3.0, size=(40, 8))
    y = np.where(X[:, 0] + 3.0 * rng.normal(size=40) > 5.0, 1.0, -1.0)
    columns = StandardScaler().fit_transform(X)
    (coef,), (intercept,) = refit(as_rows(X), y[None], loss, most_C=10.0)
    if loss.one_gram:
        expected = Ridge(40 / 10.0).fit(columns, y).predict(columns)
    else:
        svm = LinearSVC(C=10.0 / (2 * 40), dual=False, tol=1e-10, intercept_scaling=1e3)
        expected = svm.fit(columns, y).decision_function(columns)
    np.testing.assert_allclose(X @ coef + intercept, expected, atol=1e-5)
    (unlimited,), _ = refit(as_rows(X), y[None], loss)
    assert np.linalg.norm(coef) < 0.95 * np.linalg.norm(unlimited)
    np.testing.assert_array_equal(refit(as_rows(X), y[None], loss, most_C=1e9)[0], unlimited[None])


@pytest.mark.parametrize("most", [2500, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_are_refitted_by_ridge_regression(monkeypatch: pytest.MonkeyPatch, most: int, sparse: bool) -> None:
    monkeypatch.setattr("gdm_dask.cutting_plane.svm.MAX_DIRECT", most)
    rng = np.random.default_rng(2)
    X = rng.normal(3.0, 2.0, size=(200, 6)) * (rng.random((200, 6)) < (0.1 if sparse else 1.0))
    Y = (X[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(200, 3))).T
    coef, intercept = refit(as_rows(sp.csr_array(X) if sparse else X), Y, SquaredLoss())
    columns = StandardScaler().fit_transform(X)
    expected = Ridge(1.0).fit(columns, Y.T).predict(columns)
    np.testing.assert_allclose(X @ coef.T + intercept, expected, atol=1e-5)


def test_every_output_is_refitted_on_its_own() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 5))
    Y = np.where(rng.integers(0, 3, 150) == np.arange(3)[:, None], 1.0, -1.0)
    X[:, :3] += Y.T
    coef, intercept = refit(as_rows(X), Y)
    for k, y in enumerate(Y):
        (alone,), (own,) = refit(as_rows(X), y[None])
        np.testing.assert_allclose(coef[k], alone, rtol=1e-7, atol=1e-9)
        assert intercept[k] == pytest.approx(own, rel=1e-7)
