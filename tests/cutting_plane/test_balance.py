"""Classes of different sizes: the search gives them the same weight; correlations, groups and the model do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import reference
from helpers.instances import data_of, informative, many, memory, seeds
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask import GroupDiscoveryMachine, ingest
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.fit import fit
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.svm import LocalMachine
from gdm_dask.cutting_plane.trade_off import held_out_losses, splits_of
from gdm_dask.cutting_plane.working_set import score_pass, seen_by
from gdm_dask.features.correlation import as_rows
from gdm_dask.master.rows import Rows
from gdm_dask.settings.settings import Settings, choose_settings


def uneven(m: int, seed: int, kind: str = "noise", n_rare: int = 10, times: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Draw features and labels; the negative class has `times` as many samples."""
    X, y = informative(m, 4 * n_rare * (1 + times), seed, kind)
    kept = [np.flatnonzero(y == label)[:n] for label, n in ((1, n_rare), (-1, times * n_rare))]
    chosen = np.sort(np.concatenate(kept))
    return X[:, chosen], y[chosen]


def balanced(m: int, k: int, y: np.ndarray, **options: object) -> Settings:
    counts = [float((y < 0).sum()), float((y > 0).sum())]
    found = choose_settings(m, len(y), counts=counts, k=k, C="auto", **options)
    assert found.is_balanced
    return replace(found, rivals=(), n_folds=0)


def repeated(X: np.ndarray, y: np.ndarray, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Repeat the samples of the rare class."""
    counts = np.where(y > 0, times, 1)
    return np.repeat(X, counts, axis=1), np.repeat(y, counts)


@pytest.mark.parametrize(
    ("counts", "options", "expected"),
    [
        ((60, 40), {}, True),  # few samples
        ((50, 50), {}, False),
        ((6000, 4000), {}, False),  # many
        ((9200, 800), {}, True),  # many, but one class is rare
        ((800, 9200), {}, True),
        ((8800, 1200), {}, False),
        ((60, 40), {"C": 3.0}, False),
        ((60, 40), {"master": "cuts"}, False),
        ((60, 40), {"tau": 0}, False),
        ((60, 40), {"k": None}, False),
        ((60, 40), {"class_weight": "balanced"}, False),  # nothing left to do
        ((60, 40), {"class_weight": {}}, False),
        ((60, 40), {"task": "numbers"}, False),
    ],
)
def test_few_samples_and_rare_classes_are_balanced(counts, options, expected: bool) -> None:
    assert choose_settings(1000, sum(counts), counts=counts, **{"k": 20, "C": "auto"} | options).is_balanced is expected


def test_candidates_on_the_same_samples_share_a_fold_and_rows() -> None:
    X, y = uneven(30, 0)
    train = np.flatnonzero(np.arange(len(y)) % 4)
    settings = balanced(30, 4, y)
    candidates = [replace(settings, C=C) for C in (1.0, 4.0)]
    problems = [Problem(y[own], one, samples)
                for own, samples in ((slice(None), None), (train, train)) for one in candidates]  # fmt: skip
    pass_ = score_pass([problem.question() for problem in problems], [problem.fold for problem in problems])
    assert [question.fold for question in pass_.questions] == [0, 0, 1, 1]
    with data_of(memory(X, False)) as data:
        seen = list(seen_by(data, pass_, data.run(pass_)))
    assert seen[0].rows is seen[1].rows
    assert seen[2].rows is seen[3].rows
    for problem, found in zip(problems, seen, strict=True):
        expected = problem.fold.of(as_rows(X.T)).rows(found.features)
        for name in ("values", "means", "norms", "weights"):
            np.testing.assert_array_equal(getattr(found.rows, name), getattr(expected, name))


@many(20)
@given(st.sampled_from(["noise", "float32"]), st.booleans(), st.sampled_from([400, 1 << 20]), seeds)
def test_a_balanced_search_is_the_search_of_repeated_samples(kind, sparse, block_bytes, seed) -> None:
    X, y = uneven(30, seed, kind)
    settings = balanced(30, 4, y)
    X_long, y_long = repeated(X, y, 4)
    close = reference.correlated(X, settings.tau) | reference.correlated(X_long, settings.tau)
    if close.any():
        return  # repetition changes correlations, balance does not
    problem = Problem(y[None], settings)
    longer = Problem(y_long[None], replace(settings, is_balanced=False))
    with data_of(memory(X, sparse, block_bytes)) as data, data_of(memory(X_long, sparse)) as other:
        solve([problem], data)
        solve([longer], other)
    assert problem.cuts == longer.cuts
    scale = y_long.size / y.size  # of the sum of the weights
    np.testing.assert_allclose(problem.upper_bounds, np.array(longer.upper_bounds) * scale, rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_working", [3, 2048])
def test_balance_does_not_change_what_correlates(sparse: bool, n_working: int) -> None:
    """Twins in one class only: over all samples each pair has |rho| of about 0.5 to 0.9, on both sides of the limit."""
    rng = np.random.default_rng(0)
    X, y = uneven(12, 0, n_rare=20)
    noise = rng.normal(size=X.shape) * np.where(y > 0, 2.0, rng.uniform(0.2, 1.2, (12, 1)))
    X = np.concatenate([X, X + noise])
    rho, weighted = (np.abs(np.corrcoef(samples)) for samples in (X, repeated(X, y, 4)[0]))
    assert ((rho >= 0.75) != (weighted >= 0.75)).any()
    settings = replace(balanced(24, 12, y), n_working=n_working, cut_size=1)
    with data_of(memory(X, sparse, 700)) as data:
        found = fit(data, y[None], settings, 12)
    own = np.abs(np.corrcoef(X[found.support_features]))
    np.fill_diagonal(own, 0.0)
    assert own.max() < 0.75
    np.testing.assert_allclose(np.abs(found.rho) - np.eye(len(own)), own, atol=1e-12)
    assert found.redundancy_rate == pytest.approx(own.sum() / len(own) / (len(own) - 1) / 2)
    for support, group in found.groups.items():
        np.testing.assert_array_equal(group, np.flatnonzero(rho[support] >= 0.75))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_model_does_not_weigh_classes(weighted: bool) -> None:
    X, y = uneven(30, 1, n_rare=15)
    weights = np.random.default_rng(0).gamma(2.0, size=len(y)) if weighted else None
    found = GroupDiscoveryMachine(5).fit(X.T, y, sample_weight=weights)
    # all of the chosen features alone: nothing to search
    expected = GroupDiscoveryMachine(5, C=1.0).fit(X[found.support_features_].T, y, sample_weight=weights)
    order = np.argsort(expected.support_features_)
    np.testing.assert_allclose(found.coef_[0], expected.coef_[0][order], rtol=1e-6)
    assert found.intercept_ == pytest.approx(expected.intercept_, rel=1e-6)


def test_class_weights_are_no_samples() -> None:
    """C, the folds and the number of supports that enter follow the samples, not the costs of errors."""
    X, y = uneven(60, 2, n_rare=12, times=40)
    one, other = (GroupDiscoveryMachine(4, class_weight=weight).fit(X.T, y) for weight in (None, "balanced"))
    for mine, its in zip(one.C_path_["candidates"], other.C_path_["candidates"], strict=True):
        assert mine == pytest.approx(its)
    assert one.C_ == other.C_
    np.testing.assert_array_equal(np.sort(one.support_features_), np.sort(other.support_features_))
    assert one.intercept_ < other.intercept_  # the model does weigh them if asked to


def test_a_fold_is_judged_with_balanced_classes() -> None:
    X, y = uneven(30, 3, n_rare=12)
    fold = splits_of(y, 4)[0]
    settings = balanced(30, 4, y)
    problem = Problem(y[fold.train], settings, fold.train)
    with data_of(memory(X, False)) as data:
        solve([problem], data)
    weights = np.where(y[fold.test] > 0, 0.5 / (y[fold.test] > 0).sum(), 0.5 / (y[fold.test] < 0).sum())
    found = held_out_losses(problem, 4, fold.test, y[None, fold.test])
    problem.settings = replace(settings, is_balanced=False)
    assert found == pytest.approx(held_out_losses(problem, 4, fold.test, y[None, fold.test], weights))
    assert found != pytest.approx(held_out_losses(problem, 4, fold.test, y[None, fold.test]))


@pytest.mark.filterwarnings("ignore:.*fewer than n_features_to_select")
@many(30)
@given(st.integers(3, 7), st.booleans(), st.sampled_from([1, 2048]), seeds)
def test_no_balanced_selection_is_certified_beyond_the_truth(m, sparse, n_working, seed) -> None:
    X, y = uneven(m, seed, "groups", n_rare=5)
    settings = replace(balanced(m, 2, y), n_working=n_working)
    X_long, y_long = repeated(X, y, 4)
    rows = Rows(len(y_long))
    block = as_rows(X_long.T)
    rows.append(X_long, block.means, block.norms)
    machine = LocalMachine(rows, y_long, settings.C)
    gains = {}
    for cut in reference.feasible_cuts(reference.correlated(X, settings.tau), 2, list(range(m))):
        machine.solve(np.array(sorted(cut)))
        gains[tuple(sorted(cut))] = machine.explained
    with data_of(memory(X, sparse)) as data:
        found = fit(data, y[None], settings, 2, certify=True)
    share = gains[tuple(sorted(found.support_features.tolist()))] / max(gains.values())
    assert 0.0 < found.certified_share <= share + 1e-6


def test_a_search_for_parameters_balances_each_split(tmp_path: Path) -> None:
    X, y = uneven(40, 4, n_rare=15)
    store = ingest(X.T, tmp_path / "data.zarr", y)
    for name, class_weight in {"one": None, "other": {}}.items():
        tune(store, GroupDiscoveryMachine(4, class_weight=class_weight), {"tau": [0.25, 0.5]}, tmp_path / name)
    assert (tmp_path / "one").read_text() != (tmp_path / "other").read_text()
