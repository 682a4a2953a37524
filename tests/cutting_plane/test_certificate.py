"""The certificate for k against enumeration: it never claims more than the truth, and it claims something."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.instances import data_of, informative, kinds, many, measures, memory, seeds, suited, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.cutting_plane import certificate
from gdm_dask.cutting_plane.certificate import Certificate, certify
from gdm_dask.settings.settings import Settings

SCHEDULERS = ["synchronous", "threads"]


def objective(X: np.ndarray, y: np.ndarray, C: float, intercept: bool) -> float:
    """P of the SVM on all rows of X, by Newton's method on the squared hinge loss with step halving."""
    Z = np.vstack([reference.normalise(X), np.ones((int(intercept), len(y)))]) * y
    ridge = np.diag([*np.ones(len(X)), *np.zeros(int(intercept))])

    def value(w: np.ndarray) -> float:
        return float(0.5 * w @ ridge @ w + 0.5 * C * np.sum(np.maximum(0.0, 1.0 - w @ Z) ** 2))

    w = np.zeros(len(Z))
    for _ in range(200):
        active = Z[:, w @ Z < 1.0]
        gradient = ridge @ w - C * active @ (1.0 - w @ active)
        step = np.linalg.lstsq(ridge + C * active @ active.T, gradient, rcond=None)[0]
        size = 1.0
        while size > 1e-9 and value(w - size * step) > value(w):
            size /= 2
        if value(w - size * step) >= value(w) * (1 - 1e-15):
            break
        w = w - size * step
    return value(w)


class Truth:
    """Gains of all sets of at most k uncorrelated features."""

    def __init__(self, X: np.ndarray, y: np.ndarray, settings: Settings, k: int) -> None:
        close = reference.correlated(X, settings.tau, settings.measure)
        varied = [j for j in range(len(X)) if np.ptp(X[j]) > 0]
        empty = objective(X[:0], y, settings.C, settings.intercept)
        self.gains = {
            cut: empty - objective(X[list(cut)], y, settings.C, settings.intercept)
            for cut in reference.feasible_cuts(close, k, varied)
        }
        self.best = max(self.gains, key=self.gains.__getitem__, default=())
        self.empty = empty

    def share(self, features: tuple[int, ...]) -> float:
        return self.gains[features] / self.gains[self.best]


def certified(
    X: np.ndarray, y: np.ndarray, settings: Settings, k: int, features: tuple[int, ...], sparse: bool = False
) -> Certificate:
    chosen = np.array(features)
    with data_of(memory(X, sparse)) as data:
        found = certify(data, y, settings, k, chosen, whole(X, sparse).rows(chosen))
        assert data.counts.passes == found.n_reads <= certificate.CERTIFY_READS
    assert 0.0 <= found.share <= 1.0
    return found


def settings_of(tau: float = 0.25, C: float = 50.0, **options: object) -> Settings:
    return Settings(C, tau, cut_size=1, max_cuts=99, tol=1e-3, **options)


@many(150)
@given(
    kinds, st.integers(2, 9), st.integers(6, 30), st.integers(1, 3), st.sampled_from([0.0, 0.25, 0.6]),
    st.sampled_from([0.1, 1.0, 100.0]), st.booleans(), st.booleans(), st.sampled_from(["greedy", "exact"]),
    st.sampled_from([1, 2048]), measures, seeds,
)  # fmt: skip
def test_no_set_is_certified_beyond_the_truth(
    kind, m, n, k, tau, C, sparse, intercept, matching, n_working, measure, seed
) -> None:
    X, y = informative(m, n, seed, kind)
    X = suited(X, measure)
    settings = settings_of(tau, C, matching=matching, intercept=intercept, n_working=n_working, measure=measure)
    truth = Truth(X, y, settings, k)
    if not truth.gains or truth.gains[truth.best] <= 1e-6 * truth.empty:
        return
    some = list(truth.gains)[seed % len(truth.gains)]
    for features in (truth.best, some):
        found = certified(X, y, settings, k, features, sparse)
        assert found.share <= truth.share(features) + 1e-6


@pytest.mark.parametrize("intercept", [False, True])
def test_the_objective_is_that_of_the_paper(intercept) -> None:
    X, y = informative(4, 20, 3)
    found = objective(X, y, 10.0, intercept)
    if intercept:
        assert found < objective(X, y, 10.0, False)
    else:
        assert 0.25 / found == pytest.approx(reference.master_optimum(X, y, [(0, 1, 2, 3)], 10.0), rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_all_features_together_are_certified_in_full(sparse, intercept) -> None:
    X, y = informative(6, 40, 2, "noise")
    found = certified(X, y, settings_of(0.0, intercept=intercept), 6, tuple(range(6)), sparse)
    assert found.share == pytest.approx(1.0, abs=1e-4)


def test_a_feature_that_a_support_covers_counts_as_well() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], 30)
    better = y + 0.3 * rng.normal(size=60)
    worse = better + 0.6 * rng.normal(size=60)
    X = np.stack([worse, better, rng.normal(size=60)])
    settings = settings_of(0.5)
    truth = Truth(X, y, settings, 1)
    assert reference.correlated(X, 0.5)[0, 1]
    assert truth.best == (1,)
    share = truth.share((0,))
    assert share < 0.9
    found = certified(X, y, settings, 1, (0,))
    assert 0.5 * share < found.share <= share


def joint(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose best single feature is not among the best two; too few samples for a choice after the search."""
    rng = np.random.default_rng(5)
    y = np.repeat([-1.0, 1.0], n // 2)
    shared = rng.normal(size=n)
    alone = y + 1.2 * rng.normal(size=n)
    return np.stack([shared + 0.5 * y, shared - 0.5 * y, alone, rng.normal(size=n)]), y


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_greedy_choice_that_is_not_the_best_is_not_certified_as_such(intercept, sparse) -> None:
    X, y = joint()
    settings = settings_of(0.05, intercept=intercept)
    truth = Truth(X, y, settings, 2)
    assert truth.best == (0, 1)
    machine = GroupDiscoveryMachine(
        2, tau=0.05, C=50.0, master="cuts", cut_size=1, fit_intercept=intercept, certify=True, scheduler="synchronous"
    ).fit(sp.csr_array(X.T) if sparse else X.T, y)
    chosen = tuple(sorted(machine.support_features_.tolist()))
    assert truth.share(chosen) < 0.99
    assert 0.0 < machine.certified_share_ <= truth.share(chosen)


def test_a_certificate_changes_nothing_but_the_reads() -> None:
    X, y = informative(80, 60, 6)
    plain, proved = (GroupDiscoveryMachine(4, certify=c, scheduler="synchronous").fit(X.T, y) for c in (False, True))
    assert plain.certified_share_ is None
    assert 0.0 < proved.certified_share_ < 1.0
    assert proved.support_features_.tolist() == plain.support_features_.tolist()
    assert proved.weights_.tolist() == plain.weights_.tolist()
    assert proved.upper_bounds_.tolist() == plain.upper_bounds_.tolist()
    assert "certify_passes" not in plain.counts_
    assert proved.counts_["passes"] == plain.counts_["passes"] + proved.counts_["certify_passes"]


def test_a_certificate_has_the_same_bits_on_threads() -> None:
    X, y = informative(80, 60, 6)
    shares = {GroupDiscoveryMachine(4, certify=True, scheduler=s).fit(X.T, y).certified_share_ for s in SCHEDULERS}
    assert len(shares) == 1


def test_further_reads_improve_the_bound(monkeypatch) -> None:
    X, y = informative(200, 100, 4, "groups")
    settings = settings_of(n_supports=5)
    features = tuple(GroupDiscoveryMachine(5, scheduler="synchronous").fit(X.T, y).support_features_.tolist())
    several = certified(X, y, settings, 5, features)
    monkeypatch.setattr(certificate, "CERTIFY_READS", 1)
    one = certified(X, y, settings, 5, features)
    assert one.n_reads == 1 < several.n_reads
    assert 0.0 < one.share < several.share - 0.01


def test_features_that_explain_nothing_have_a_share_of_zero() -> None:
    y = np.tile([-1.0, 1.0], 20)
    X = np.stack([np.repeat([0.0, 1.0], 20), y + np.repeat([0.5, -0.5], 20)])
    found = certified(X, y, settings_of(), 1, (0,))
    assert found.share == pytest.approx(0.0, abs=1e-9)


def test_cuts_hold_so_many_features_in_all(monkeypatch) -> None:
    X, y = informative(200, 100, 4, "groups")
    monkeypatch.setattr(certificate, "FEW_FEATURES", 0)
    held = []
    add = certificate.Search.add
    monkeypatch.setattr(certificate.Search, "add", lambda self, *cut: (add(self, *cut), held.append(self.master.rows)))
    features = tuple(GroupDiscoveryMachine(5, scheduler="synchronous").fit(X.T, y).support_features_.tolist())
    certified(X, y, settings_of(n_supports=5), 5, features)
    assert 5 < held[-1].n_rows <= certificate.MOST_FEATURES * 5
