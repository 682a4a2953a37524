"""Weights equal repetition: a fit with integer weights is a fit of repeated samples, and 0 drops a sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.clusters import Stop, stop_after
from helpers.instances import data_of, informative, many, memory, seeds, whole
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.fit import fit
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.svm import inverse_of, refit
from gdm_dask.errors import BadInput
from gdm_dask.features.moments import with_weights
from gdm_dask.master.losses import SquaredHinge
from gdm_dask.master.squared_loss import SquaredLoss
from gdm_dask.settings.settings import choose_settings
from gdm_dask.settings.weights import sample_weights

#: Without ties: rounding decides between equal features, and sums of repeated samples round differently.
untied = st.sampled_from(["noise", "groups", "float32"])
close = {"rtol": 1e-9, "atol": 1e-12}


def whole_weights(y: np.ndarray, seed: int) -> np.ndarray:
    """Draw weights from 0 to 3, not all 0 in any class."""
    weights = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float)
    weights[[np.argmax(y), np.argmin(y)]] = 1.0
    return weights


def repeated(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    times = weights.astype(int)
    return np.repeat(X, times, axis=1), np.repeat(y, times)


@pytest.mark.filterwarnings("ignore:.*fewer than n_features_to_select")
@many(30)
@given(untied, st.integers(5, 40), st.integers(30, 60), st.booleans(), st.sampled_from([None, 3]), st.booleans(),
       st.sampled_from(["greedy", "exact"]), seeds)  # fmt: skip
def test_a_fit_with_weights_is_the_fit_of_repeated_samples(kind, m, n, sparse, k, intercept, matching, seed) -> None:
    X, y = informative(m, n, seed, kind)
    weights = whole_weights(y, seed)
    X_long, y_long = repeated(X, y, weights)
    settings = choose_settings(m, len(y_long), k=k, max_cuts=6, intercept=intercept, matching=matching, master="cuts")
    with data_of(memory(X_long, sparse)) as data:
        expected = fit(data, y_long[None], settings, k, certify=k is not None)
    for block_bytes in (400, 1 << 20):
        with data_of(memory(X, sparse, block_bytes)) as data:
            found = fit(data, y[None], settings, k, certify=k is not None, weights=weights)
        assert [it.cut for it in found.history] == [it.cut for it in expected.history]
        assert found.stopped == expected.stopped
        scores = [[iteration.best_score for iteration in one.history] for one in (found, expected)]
        np.testing.assert_allclose(*scores, **close)
        np.testing.assert_array_equal(found.support_features, expected.support_features)
        for support, group in expected.groups.items():
            np.testing.assert_array_equal(found.groups[support], group)
        for name in ("lower_bounds", "upper_bounds", "weights", "coef", "redundancy_rate"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **close)
        if k is not None:
            assert found.certified_share == pytest.approx(expected.certified_share, abs=1e-9)


@many(20)
@given(untied, st.integers(5, 30), st.integers(40, 60), st.booleans(), seeds)
def test_weights_of_the_samples_of_a_fold(kind, m, n, sparse, seed) -> None:
    X, y = informative(m, n, seed, kind)
    rng = np.random.default_rng(seed)
    fold, weights = np.sort(rng.choice(n, n - 10, replace=False)), rng.gamma(1.0, size=n - 10)
    settings = choose_settings(m, n, max_cuts=6)
    problem, alone = Problem(y[fold], settings, fold, weights), Problem(y[fold], settings, weights=weights)
    with data_of(memory(X, sparse, 700)) as data, data_of(memory(X[:, fold], sparse)) as own:
        solve([problem], data)
        solve([alone], own)
    assert problem.cuts == alone.cuts
    np.testing.assert_array_equal(problem.upper_bounds, alone.upper_bounds)
    np.testing.assert_array_equal(problem.master.duals, alone.master.duals)


@many(20)
@given(untied, st.integers(5, 30), st.integers(40, 60), st.booleans(), seeds)
def test_weight_zero_leaves_a_sample_out(kind, m, n, sparse, seed) -> None:
    X, y = informative(m, n, seed, kind)
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.0, size=n) * (rng.random(n) < 0.8)
    kept = weights > 0
    X[:, ~kept] *= 1e6
    settings = choose_settings(m, n, max_cuts=6)
    with data_of(memory(X, sparse)) as data, data_of(memory(X[:, kept], sparse)) as own:
        found = fit(data, y[None], settings, None, weights=weights)
        expected = fit(own, y[None, kept], settings, None, weights=weights[kept])
    np.testing.assert_array_equal(found.support_features, expected.support_features)
    np.testing.assert_allclose(found.upper_bounds, expected.upper_bounds, **close)
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-7, atol=1e-12)
    assert {k: v.tolist() for k, v in found.groups.items()} == {k: v.tolist() for k, v in expected.groups.items()}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("most_C", [np.inf, 10.0])
@pytest.mark.parametrize("loss", [SquaredHinge(), SquaredLoss()])
def test_a_refit_with_weights_is_the_refit_of_repeated_samples(
    monkeypatch, is_direct: bool, most_C: float, loss, sparse: bool
) -> None:
    if not is_direct:
        monkeypatch.setattr("gdm_dask.cutting_plane.svm.MAX_DIRECT", 0)
    X, y = informative(4, 60, 3, "float32")
    weights = whole_weights(y, 3)
    X_long, y_long = repeated(X, y, weights)
    coef, intercept = refit(with_weights(whole(X, sparse), weights), y[None], loss, most_C)
    expected, expected_intercept = refit(whole(X_long, sparse), y_long[None], loss, most_C)
    np.testing.assert_allclose(coef, expected, rtol=1e-9 if is_direct else 1e-4)
    assert intercept == pytest.approx(expected_intercept, rel=1e-4, abs=1e-4)


def test_a_checkpoint_goes_on_with_the_same_weights_only(tmp_path: Path) -> None:
    X, y = informative(60, 80, 1)
    store = ingest(X.T, tmp_path / "data.zarr", y, block_bytes=4000)
    weights = np.random.default_rng(0).gamma(2.0, size=80)
    machine = GroupDiscoveryMachine(cut_size=3, max_cuts=6, tol=0.0, scheduler="synchronous")
    expected = clone(machine).fit(store, sample_weight=weights)

    state = tmp_path / "state.npz"
    with pytest.raises(Stop):
        machine.fit(store, sample_weight=weights, callback=stop_after(2), checkpoint=state)
    with pytest.raises(BadInput, match="belongs to another fit: weights was"):
        machine.fit(store, checkpoint=state)
    found = machine.fit(store, sample_weight=weights, checkpoint=state)
    np.testing.assert_array_equal(found.support_features_, expected.support_features_)
    np.testing.assert_array_equal(found.upper_bounds_, expected.upper_bounds_)
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_a_search_weighs_the_classes_of_each_split(tmp_path: Path) -> None:
    X, y = informative(30, 120, 0, "noise")
    store = ingest(X.T, tmp_path / "data.zarr", y)
    for name, class_weight in {"one": None, "other": {1: 50.0}}.items():
        tune(store, GroupDiscoveryMachine(4, class_weight=class_weight), {"C": [1.0, 50.0]}, tmp_path / name)
    assert (tmp_path / "one").read_text() != (tmp_path / "other").read_text()


CLASSES = np.array(["no", "yes"])
CODES = np.array([0, 0, 0, 1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 1, 1], r"must have shape \(4,\), one for each sample, got \(3,\)"),
        (np.ones((4, 1)), r"must have shape \(4,\)"),
        (2.0, r"must have shape \(4,\)"),
        ([1, -1, 1, 1], "must be finite and >= 0, got -1.0 for sample 1"),
        ([1, 1, np.nan, 1], "must be finite and >= 0, got nan for sample 2"),
        ([1, 1, 1, np.inf], "must be finite and >= 0, got inf for sample 3"),
        (["much"] * 4, "must hold numbers"),
        ([0, 0, 0, 0], "must be positive for at least one sample, got zeros only"),
        ([1e-61] * 4, r"must have a sum from 1e-60 to 1e\+30, got 4e-61: divide by the mean weight"),
        ([1e308] * 4, r"must have a sum from 1e-60 to 1e\+30, got inf: divide by the mean weight"),
        ([1, 1, 1, 0], "must be positive for a sample of each class, but all are zero in class 'yes'"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, message: str) -> None:
    with pytest.raises(BadInput, match=f"`sample_weight` {message}"):
        sample_weights(weights, None, CLASSES, CODES)
    with pytest.raises(BadInput, match="`sample_weight`"):
        GroupDiscoveryMachine().fit(np.eye(4), CLASSES[CODES], sample_weight=weights)


def test_class_weights_multiply_the_weights_of_samples() -> None:
    own = np.array([1.0, 2.0, 0.0, 0.5])
    assert sample_weights(own, {"yes": 4}, CLASSES, CODES).tolist() == [1.0, 2.0, 0.0, 2.0]
    balanced = sample_weights(own, "balanced", CLASSES, CODES)
    assert np.bincount(CODES, balanced) == pytest.approx([1.75, 1.75])
    with pytest.raises(BadInput, match=r"`class_weight` must name classes among \['no', 'yes'\], got 'maybe'"):
        sample_weights(None, {"maybe": 1.0}, CLASSES, CODES)
    with pytest.raises(BadInput, match="`sample_weight` times `class_weight` must be positive"):
        sample_weights(None, {"yes": 0.0}, CLASSES, CODES)
    with pytest.raises(BadInput, match="`sample_weight` times `class_weight` must have a sum from 1e-60"):
        sample_weights(None, {"yes": 1e31}, CLASSES, CODES)


@pytest.mark.parametrize("kind", [GroupDiscoveryMachine, GroupDiscoveryRegressor])
@pytest.mark.parametrize("scale", [1e-59, 1e12])
def test_fits_with_any_sum_of_weights_end(kind, scale: float) -> None:
    X, y = informative(20, 90, 5)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 90)
    expected = kind(2, C=1.0).fit(X.T, y, sample_weight=weights)
    found = kind(2, C=1.0).fit(X.T, y, sample_weight=scale * weights)
    assert {*map(len, found.groups_.values())} == {*map(len, expected.groups_.values())}
    assert np.isfinite(found.coef_).all()


def test_a_problem_beyond_the_precision_of_a_machine_names_the_remedy() -> None:
    with pytest.raises(BadInput, match="singular to machine precision: pass a smaller `C`, or smaller sample weights"):
        inverse_of(np.full((2, 2), 1e30))


def test_balanced_classes_are_those_of_repeated_samples() -> None:
    X, y = informative(20, 90, 5)
    rare = np.flatnonzero((y < 0) | (np.arange(90) % 3 == 0))
    given = {"C": 50.0, "master": "cuts"}  # no folds: copies of a sample would be in several
    found = GroupDiscoveryMachine(3, **given, class_weight="balanced").fit(X[:, rare].T, y[rare])
    counts = np.bincount((y[rare] > 0).astype(int))
    times = np.where(y[rare] > 0, counts[0], counts[1])
    expected = GroupDiscoveryMachine(3, **given).fit(np.repeat(X[:, rare], times, axis=1).T, np.repeat(y[rare], times))
    np.testing.assert_array_equal(found.support_features_, expected.support_features_)
    np.testing.assert_allclose(found.upper_bounds_ * len(rare), expected.upper_bounds_ * times.sum(), rtol=1e-9)
    assert found.profile_.class_counts.tolist() == counts.tolist()  # the profile counts samples


def test_class_weights_come_back_from_a_models_files(tmp_path: Path) -> None:
    X, y = informative(10, 40, 5)
    weights = {np.int64(-1): 2.0, 1: 0.5}
    GroupDiscoveryMachine(2, class_weight=weights).fit(X.T, y.astype(int)).save(tmp_path)
    assert GroupDiscoveryMachine.load(tmp_path).class_weight == {-1: 2.0, 1: 0.5}
