"""The estimator: scikit-learn's own checks, use with scikit-learn's tools, and the meaning of its attributes."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import reference
from helpers.clusters import same_fit
from helpers.instances import informative
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, redundancy_rate


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Samples x features, with labels that some groups of features predict."""
    X, y = informative(40, 120, 1)
    return X.T.copy(), y


@pytest.fixture(scope="module")
def fitted(data) -> GroupDiscoveryMachine:
    return GroupDiscoveryMachine(tau=0.4, cut_size=3).fit(*data)


def scikit_learn_checks() -> dict:
    """What `parametrize_with_checks` runs, by name. The one exception skips itself: scipy has to be imported with
    SCIPY_ARRAY_API set for it, and it is about array types that the estimator does not claim to take.
    """
    checks = {}
    for kind in (GroupDiscoveryMachine, GroupDiscoveryRegressor):
        for estimator, check in estimator_checks_generator(kind(scheduler="synchronous")):
            name = str(getattr(check, "func", check).__name__)
            if name != "check_array_api_input":
                checks[f"{kind.__name__}-{name}-{len(checks)}"] = (estimator, check)
    return checks


@pytest.mark.parametrize(("estimator", "check"), scikit_learn_checks().values(), ids=scikit_learn_checks().keys())
def test_scikit_learn_conventions(estimator, check) -> None:
    check(estimator)


def test_supports_are_sorted_by_weight_and_do_not_correlate(data, fitted) -> None:
    assert (np.diff(np.abs(fitted.weights_)) <= 0).all()
    assert (fitted.weights_ != 0).all()
    close = reference.correlated(data[0].T, 0.4)
    assert not close[np.ix_(fitted.support_features_, fitted.support_features_)].any()
    assert fitted.support_features_.tolist() == list(fitted.groups_)
    assert np.flatnonzero(fitted.support_).tolist() == sorted(fitted.support_features_)
    assert fitted.get_support(indices=True).tolist() == sorted(fitted.support_features_)


def test_groups_are_those_of_brute_force(data, fitted) -> None:
    expected = reference.groups(data[0].T, fitted.support_features_.tolist(), 0.4)
    assert {support: group.tolist() for support, group in fitted.groups_.items()} == expected


def test_affiliations_tell_every_pair_and_one_owner_for_each_feature(data, fitted) -> None:
    table, rho = fitted.affiliations_, reference.correlations(data[0].T)
    pairs = [(s, j) for s, group in fitted.groups_.items() for j in group]
    assert list(zip(table["support"], table["feature"], strict=True)) == pairs
    np.testing.assert_allclose(table["correlation"], rho[table["support"], table["feature"]], rtol=0, atol=1e-12)
    for feature, rows in table.groupby("feature"):
        owner = rows.loc[rows["owner"], "support"]
        strongest = max(rows["support"], key=lambda s: abs(rho[s, feature]))
        assert owner.tolist() == [strongest]


def test_bounds_and_certificate(fitted) -> None:
    assert len(fitted.lower_bounds_) == len(fitted.upper_bounds_) == fitted.n_cuts_ == len(fitted.history_)
    lower, upper = fitted.lower_bounds_[-1], fitted.upper_bounds_[-1]
    assert 0 < lower <= upper
    assert fitted.gap_ == max(0.0, (upper - lower) / upper)
    assert fitted.converged_ == (fitted.gap_ <= fitted.tol)


def test_redundancy_rate_is_that_of_the_supports(data, fitted) -> None:
    columns = data[0][:, fitted.support_features_]
    assert fitted.redundancy_rate_ == pytest.approx(reference.redundancy_rate(columns.T), abs=1e-14)
    assert fitted.redundancy_rate_ == pytest.approx(redundancy_rate(columns), abs=1e-14)


def test_refit_is_a_linear_svm_on_standardised_supports(data, fitted) -> None:
    X, y = data
    columns = X[:, fitted.support_features_]
    n_effective = 4 * np.sum(y == y.max()) * np.sum(y != y.max()) / len(y)
    C = min(1.0, 3.0 * n_effective / len(fitted.support_features_) / (2 * len(y)))
    assert C < 1.0
    svm = make_pipeline(StandardScaler(), LinearSVC(C=C, dual=False, tol=1e-10, intercept_scaling=1e3))
    svm.fit(columns, y)
    np.testing.assert_allclose(fitted.decision_function(X), svm.decision_function(columns), atol=1e-5)
    np.testing.assert_allclose(fitted.decision_function(X), columns @ fitted.coef_[0] + fitted.intercept_, atol=1e-12)
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y) > 0.9


def test_a_positive_weight_speaks_for_the_second_class() -> None:
    y = np.repeat(["no", "yes"], 30)
    X = np.random.default_rng(0).normal(size=(60, 5))
    X[:, 2] += 3 * (y == "yes")
    X[:, 3] -= 3 * (y == "yes")
    gdm = GroupDiscoveryMachine(n_features_to_select=2).fit(X, y)
    signs = dict(zip(gdm.support_features_.tolist(), np.sign(gdm.weights_).tolist(), strict=True))
    assert signs == {2: 1.0, 3: -1.0}
    assert np.sign(gdm.coef_[0]).tolist() == np.sign(gdm.weights_).tolist()
    assert gdm.score(X, y) > 0.9
    assert gdm.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("C", [0.1, 100.0])
@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize("cut_size", ["auto", 3, 50])
def test_exactly_as_many_features_as_wanted(data, k: int, cut_size, C: float) -> None:
    """Exactly k are selected, also with a strong ridge, for which a few features would do."""
    gdm = GroupDiscoveryMachine(n_features_to_select=k, tau=0.4, cut_size=cut_size, C=C).fit(*data)
    assert len(gdm.support_features_) == len(gdm.weights_) == gdm.coef_.shape[1] == k
    assert len(set(gdm.support_features_.tolist())) == k
    assert (np.diff(np.abs(gdm.weights_)) <= 0).all()
    assert gdm.transform(data[0]).shape == (120, k)


def test_fewer_features_than_wanted_is_a_warning_with_their_number(data) -> None:
    X, y = data
    close = reference.correlated(X.T, 0.4)
    with pytest.warns(UserWarning, match=r"(\d+) support features were found, fewer than n_features_to_select=40"):
        gdm = GroupDiscoveryMachine(n_features_to_select=40, tau=0.4).fit(X, y)
    found = gdm.support_features_.tolist()
    assert reference.uncovered(close, found) == sorted(found)  # no feature is left to take


def test_the_warning_counts_a_single_support_in_the_singular() -> None:
    with pytest.warns(UserWarning, match=r"^1 support feature was found, fewer than n_features_to_select=2: "):
        GroupDiscoveryMachine(n_features_to_select=2).fit([[0, 0], [1, 2], [2, 4], [3, 6]], [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_cuts": 2, "cut_size": 3}, "after max_cuts=2 cuts of up to 3"),
        ({"tau": 0}, "all others are constant, or their scores are 0"),
    ],
)
def test_the_warning_tells_why_there_are_fewer(data, limit: dict, reason: str) -> None:
    X, y = data
    with pytest.warns(UserWarning, match=reason):
        GroupDiscoveryMachine(n_features_to_select=1000, **limit).fit(X, y)


def test_transform_keeps_the_order_of_columns_and_can_be_inverted(data, fitted) -> None:
    X, _ = data
    reduced = fitted.transform(X)
    np.testing.assert_array_equal(reduced, X[:, np.sort(fitted.support_features_)])
    back = fitted.inverse_transform(reduced)
    np.testing.assert_array_equal(back[:, fitted.support_], reduced)
    assert not back[:, ~fitted.support_].any()


def test_names_come_from_the_data_frame(data) -> None:
    X, y = data
    frame = pd.DataFrame(X, columns=[f"pixel {j}" for j in range(X.shape[1])])
    gdm = GroupDiscoveryMachine(tau=0.4, cut_size=3).set_output(transform="pandas").fit(frame, y)
    names = [f"pixel {j}" for j in sorted(gdm.support_features_)]
    assert gdm.feature_names_in_.tolist() == frame.columns.tolist()
    assert gdm.get_feature_names_out().tolist() == names
    reduced = gdm.transform(frame)
    pd.testing.assert_frame_equal(reduced, frame[names])
    with pytest.raises(ValueError, match="feature names"):
        gdm.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize("groups", [True, False])
def test_table_of_the_supports(data, groups: bool) -> None:
    X, y = data
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(X.shape[1])])
    machine = GroupDiscoveryMachine(5, tau=0.4, groups=groups).fit(frame, np.where(y > 0, "ill", "well"))
    table = machine.supports_
    assert table["feature"].tolist() == machine.support_features_.tolist()
    assert table["name"].tolist() == [f"gene {j}" for j in machine.support_features_]
    assert table["weight"].tolist() == machine.weights_.tolist()
    numbered = GroupDiscoveryMachine(5, tau=0.4, groups=groups).fit(X, (y > 0).astype(int)).supports_
    assert (numbered["speaks_for"] == (numbered["weight"] > 0)).all()
    assert table["speaks_for"].tolist() == ["well" if weight > 0 else "ill" for weight in machine.weights_]
    assert ("members" in table) == groups
    if groups:
        assert table["members"].tolist() == [len(group) for group in machine.groups_.values()]


def test_names_of_another_fit_are_forgotten(data) -> None:
    X, y = data
    frame = pd.DataFrame(X).add_prefix("pixel ")
    gdm = GroupDiscoveryMachine(n_features_to_select=2).fit(frame, y).fit(X, y)
    assert not hasattr(gdm, "feature_names_in_")
    assert gdm.get_feature_names_out().tolist() == [f"x{j}" for j in sorted(gdm.support_features_)]


def test_in_a_pipeline_under_grid_search(data) -> None:
    X, y = data
    pipeline = make_pipeline(StandardScaler(), GroupDiscoveryMachine(n_features_to_select=4, groups=False), LinearSVC())
    grid = {"groupdiscoverymachine__tau": [0.0, 0.25], "groupdiscoverymachine__C": [1.0, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.7
    assert len(search.cv_results_["params"]) == 4
    scores = cross_val_score(GroupDiscoveryMachine(n_features_to_select=4), X, y, cv=3)
    assert scores.mean() > 0.7


def test_clones_and_pickles_and_fitting_again_give_the_same(data, fitted) -> None:
    same_fit(fitted, clone(fitted).fit(*data))
    same_fit(fitted, pickle.loads(pickle.dumps(fitted)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = clone(fitted).fit(data[0][:, :10], data[1])
    same_fit(fitted, again.fit(*data))


def test_without_groups(data, fitted) -> None:
    gdm = clone(fitted).set_params(groups=False).fit(*data)
    assert gdm.groups_ is None
    assert gdm.affiliations_ is None
    np.testing.assert_array_equal(gdm.support_features_, fitted.support_features_)


def test_without_constraint_every_group_is_its_support_alone(data) -> None:
    gdm = GroupDiscoveryMachine(n_features_to_select=5, tau=0.0).fit(*data)
    assert {support: group.tolist() for support, group in gdm.groups_.items()} == {
        support: [support] for support in gdm.support_features_.tolist()
    }


def test_parameters_and_fitted_attributes_are_documented(fitted) -> None:
    names = [*fitted.get_params(), *(name for name in vars(fitted) if name.endswith("_") and name[0] != "_")]
    words = set(re.findall(r"\w+", GroupDiscoveryMachine.__doc__))
    assert [name for name in (*names, *fitted.C_path_) if name not in words] == []


def test_callback_and_lines(data, capsys) -> None:
    seen: list = []
    gdm = GroupDiscoveryMachine(cut_size=2, max_cuts=4, verbose=1).fit(*data, callback=seen.append)
    assert [iteration.number for iteration in seen] == list(range(1, gdm.n_cuts_ + 1))
    assert seen == gdm.history_
    lines = capsys.readouterr().err.splitlines()  # another test's scheduler may write there, too
    assert [line for line in lines if line.startswith("cut ")] == [str(iteration) for iteration in seen]
    assert any(
        line.startswith(f"supports: {len(gdm.support_features_)} of {data[0].shape[1]} features") for line in lines
    )
    assert {"scores", "matching", "master", "groups", "refit", "total"} <= set(gdm.timings_)
