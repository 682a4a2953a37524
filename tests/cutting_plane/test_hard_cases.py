"""Single cases that break algorithms of this kind."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.instances import informative, normal_rows

from gdm_dask import GroupDiscoveryMachine

forms = pytest.mark.parametrize("form", [np.asarray, sp.csr_array])


def noise(m: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, n))


def halves(n: int) -> np.ndarray:
    return np.repeat([-1, 1], n // 2)


@forms
@pytest.mark.parametrize("matching", ["greedy", "exact"])
def test_exact_duplicates_by_the_thousand(form, matching: str) -> None:
    """Copies of the best feature fill the ranking; one becomes a support, its group has all, and others are found."""
    y = halves(60)
    signal = y + 0.5 * noise(1, 60)[0]
    rest = noise(5, 60, 1) + 0.3 * y
    X = np.vstack([np.repeat(signal[None], 3000, axis=0), rest])
    gdm = GroupDiscoveryMachine(n_features_to_select=4, cut_size=2, matching=matching).fit(form(X.T), y)
    assert [s for s in gdm.support_features_ if s < 3000] == [0]
    assert gdm.groups_[0][:3000].tolist() == list(range(3000))
    assert not reference.correlated(X[gdm.support_features_], 0.25).any()


@forms
def test_thousands_of_near_copies(form) -> None:
    y = halves(100)
    signal = y + 0.5 * noise(1, 100)[0]
    X = np.vstack([signal + 0.05 * noise(4000, 100, 2), noise(5, 100, 1) + 0.3 * y])
    gdm = GroupDiscoveryMachine(n_features_to_select=4, cut_size=2).fit(form(X.T), y)
    assert sum(s < 4000 for s in gdm.support_features_) == 1
    assert {s: g.tolist() for s, g in gdm.groups_.items()} == reference.groups(X, gdm.support_features_.tolist(), 0.25)


@forms
def test_one_hot_pair(form) -> None:
    """x and 1 - x share no nonzero and correlate with -1: one support, one group."""
    y = halves(80)
    x = (y + noise(1, 80)[0] > 0).astype(float)
    X = np.vstack([noise(3, 80, 1), x, 1 - x])
    gdm = GroupDiscoveryMachine(n_features_to_select=2).fit(form(X.T), y)
    pair = [s for s in gdm.support_features_.tolist() if s in (3, 4)]
    assert len(pair) == 1
    assert gdm.groups_[pair[0]].tolist() == [3, 4]
    table = gdm.affiliations_.set_index(["support", "feature"])["correlation"]
    assert table[pair[0], 7 - pair[0]] == pytest.approx(-1.0, abs=1e-12)


@forms
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e8])
def test_constant_features(form, value: float) -> None:
    X, y = informative(10, 60, 0)
    X = np.vstack([np.full((3, 60), value), X, np.full((2, 60), value)])
    gdm = GroupDiscoveryMachine(tau=0.9, cut_size=15).fit(form(X.T), y)
    members = set(np.concatenate(list(gdm.groups_.values())).tolist())
    assert members <= set(range(3, 13))
    assert np.isfinite(gdm.coef_).all()
    assert np.isfinite(gdm.affiliations_["correlation"]).all()


@forms
def test_far_from_zero(form) -> None:
    """Mean 10^6 and standard deviation 1: the same model as with mean 0."""
    X, y = informative(40, 100, 3)
    X = normal_rows(X) * np.sqrt(100)
    here = GroupDiscoveryMachine(tau=0.4, cut_size=3, max_cuts=8).fit(form(X.T), y)
    there = GroupDiscoveryMachine(tau=0.4, cut_size=3, max_cuts=8).fit(form(X.T + 1e6), y)
    np.testing.assert_array_equal(here.support_features_, there.support_features_)
    np.testing.assert_allclose(here.weights_, there.weights_, rtol=1e-3, atol=1e-6)
    assert {s: g.tolist() for s, g in here.groups_.items()} == {s: g.tolist() for s, g in there.groups_.items()}
    np.testing.assert_array_equal(here.predict(form(X.T)), there.predict(form(X.T + 1e6)))


@forms
def test_correlation_at_the_limit_counts(form) -> None:
    """|rho| = 3/4 exactly, however it rounds in floating point."""
    z = np.vstack([np.kron([1, -1], np.ones(8)), np.kron([1, -1, 1, -1], np.ones(4))])  # orthogonal, mean 0
    mixed = 3 * z[0] + np.sqrt(7) * z[1]
    y = np.sign(z[0] + 0.1 * z[1])
    for scale in (1.0, 0.1, 1 / 3, -7.0):
        X = np.vstack([z[0], scale * mixed])
        at = GroupDiscoveryMachine(tau=0.25, cut_size=2).fit(form(X.T), y)
        assert [group.tolist() for group in at.groups_.values()] == [[0, 1]]
        below = GroupDiscoveryMachine(tau=0.2499, cut_size=2, max_cuts=1).fit(form(X.T), y)
        assert sorted(below.support_features_) == [0, 1]


@forms
def test_all_noise(form) -> None:
    X = noise(300, 80)
    gdm = GroupDiscoveryMachine(n_features_to_select=10).fit(form(X.T), halves(80))
    assert len(gdm.support_features_) == 10
    assert (gdm.lower_bounds_ <= gdm.upper_bounds_).all()


@forms
def test_cut_larger_than_what_can_be_found(form) -> None:
    X, y = informative(9, 50, 1)
    gdm = GroupDiscoveryMachine(tau=0.5, cut_size=1000).fit(form(X.T), y)
    close = reference.correlated(X, 0.5)
    assert not close[np.ix_(gdm.support_features_, gdm.support_features_)].any()
    with pytest.warns(UserWarning, match=r"\d support features were found, fewer than n_features_to_select=1000"):
        gdm = GroupDiscoveryMachine(n_features_to_select=1000, tau=0.5).fit(form(X.T), y)
    supports = gdm.support_features_.tolist()
    assert reference.uncovered(close, supports) == sorted(supports)


@forms
def test_two_samples(form) -> None:
    """With two samples, all features that vary correlate perfectly."""
    X = np.array([[0.0, 1.0], [5.0, 2.0], [3.0, 3.0], [0.0, 0.0]])
    gdm = GroupDiscoveryMachine().fit(form(X.T), ["a", "b"])
    assert len(gdm.support_features_) == 1
    assert gdm.groups_[gdm.support_features_[0]].tolist() == [0, 1]
    assert gdm.predict(form(X.T)).tolist() == ["a", "b"]


@forms
def test_one_informative_feature(form) -> None:
    y = halves(100)
    X = noise(200, 100)
    X[123] = 3.0 * y + 0.3 * noise(1, 100, 1)[0]
    gdm = GroupDiscoveryMachine(n_features_to_select=1).fit(form(X.T), y)
    assert gdm.support_features_.tolist() == [123]
    assert gdm.score(form(X.T), y) == 1.0
    assert GroupDiscoveryMachine().fit(form(X.T), y).support_features_[0] == 123


@forms
def test_heavy_imbalance(form) -> None:
    """99 to 1: the feature that marks the rare class is found."""
    y = np.where(np.arange(1000) < 10, "rare", "common")
    X = noise(50, 1000)
    X[17, :10] += 6.0
    gdm = GroupDiscoveryMachine(n_features_to_select=3).fit(form(X.T), y)
    assert gdm.support_features_[0] == 17
    predicted = gdm.predict(form(X.T))
    assert np.mean(predicted[:10] == "rare") >= 0.8
    assert np.mean(predicted[10:] == "common") >= 0.99


@forms
def test_non_transitive_triple(form) -> None:
    """f1 correlates with f2 and f3, which do not correlate: greedy takes f1 first, exact takes the better pair."""
    angles = np.radians([0, 40, -40])
    plane = np.array([[2.0, -2, 0, 0, 0, 0], [0, 0, 1, -1, 1, -1]])
    plane /= np.linalg.norm(plane, axis=1, keepdims=True)
    X = np.column_stack([np.cos(angles), np.sin(angles)]) @ plane
    y = np.array([1, -1, 1, -1, -1, 1])  # so that uniform weights pull along f1
    greedy = GroupDiscoveryMachine(cut_size=2, max_cuts=1, C=100.0).fit(form(X.T), y)
    exact = GroupDiscoveryMachine(cut_size=2, max_cuts=1, C=100.0, matching="exact").fit(form(X.T), y)
    assert greedy.support_features_.tolist() == [0]
    assert sorted(exact.support_features_) == [1, 2]
    close = reference.correlated(X, 0.25)
    optimum = reference.optimum(X, y, close, 2, 100.0, [0, 1, 2])
    for gdm in (greedy, exact):
        assert gdm.history_[0].upper >= optimum * (1 - 1e-7)
        assert gdm.lower_bounds_[0] <= optimum * (1 + 1e-7)
