"""Features that must or must not be supports: the whole fit. `test_variables.py` compares cuts and bounds."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.clusters import Stop, same_model, stop_after
from helpers.instances import data_of, informative, kinds, many, memory, seeds, whole
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, load_model, stability_selection
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.certificate import certify
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.selection import select
from gdm_dask.errors import BadInput
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.settings.constraints import Constraints, resolve
from gdm_dask.settings.settings import Settings, choose_settings


def drawn(X: np.ndarray, seed: int, n_included: int) -> Constraints:
    """Choose some varying features to include, and some others to exclude."""
    rng = np.random.default_rng(seed + 3)
    varied = rng.permutation(np.flatnonzero(np.ptp(X, axis=1) > 0))
    include, rest = np.sort(varied[:n_included]), varied[n_included:]
    return Constraints(include, np.sort(rest[: len(rest) // 3]))


def test_without_covering_the_bounds_meet() -> None:
    X, y = informative(7, 40, 3, "noise")
    constraints = Constraints(np.array([2, 5]), np.array([0]))
    problem = Problem(y, Settings(100.0, 0.0, 2, 1000, 1e-5, intercept=False, constraints=constraints))
    with data_of(memory(X)) as data:
        solve([problem], data)
    assert problem.stopped == "tolerance"
    best = reference.optimum(X, y, reference.correlated(X, 0.0), 2, 100.0, [1, 3, 4, 6], [2, 5])
    assert problem.lower_bounds[-1] == pytest.approx(best, rel=1e-4)


def test_a_certificate_counts_what_the_choice_adds() -> None:
    """If a covariate explains nearly everything, the other features get no credit for it."""
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], 50)
    X = np.vstack([y + 0.2 * rng.normal(size=100), y + rng.normal(size=100), rng.normal(size=(6, 100))])
    shares = {}
    for chosen in ((0, 1), (0, 5)):
        settings = Settings(1.0, 0.25, 1, 99, 1e-3, constraints=Constraints(np.array([0])))
        with data_of(memory(X)) as data:
            shares[chosen] = certify(data, y, settings, 2, np.array(chosen), whole(X).rows(np.array(chosen))).share
    assert shares[0, 1] > 0.9
    assert shares[0, 5] < 0.5


def test_nothing_is_left_to_choose() -> None:
    X, y = informative(8, 40, 1)
    machine = GroupDiscoveryMachine(2, include=[3, 6], certify=True, C=1.0, scheduler="synchronous").fit(X.T, y)
    assert sorted(machine.support_features_.tolist()) == [3, 6]
    assert machine.certified_share_ == 1.0
    assert machine.counts_["certify_passes"] == 0
    assert machine.n_cuts_ == len(machine.lower_bounds_) == 1
    assert machine.lower_bounds_[0] <= machine.upper_bounds_[0] < np.inf


@many(20)
@given(kinds, st.integers(8, 30), st.integers(30, 80), st.integers(0, 3), st.booleans(), seeds)
def test_the_choice_of_k_keeps_its_promises(kind, m, n, n_included, sparse, seed) -> None:
    """Backward steps and swaps remove no included feature, and add no excluded one."""
    X, y = informative(m, n, seed, kind)
    constraints = drawn(X, seed, n_included)
    k = 3 + len(constraints.include)
    settings = Settings(
        10.0, 0.25, 2, 99, 1e-3, n_supports=3 * k, pool_per_cut=8, merged=True, constraints=constraints
    )  # fmt: skip
    problem = Problem(y, settings)
    with data_of(memory(X, sparse)) as data:
        solve([problem], data)
    if problem.supports.rows is None:
        return
    features = select(problem, k)[0].tolist()
    assert len(features) == min(k, len(problem.supports.features))
    assert set(constraints.include.tolist()) <= set(features)
    assert not set(constraints.exclude.tolist()) & set(features)
    close = reference.correlated(X, 0.25)
    include = constraints.include.tolist()
    close[np.ix_(include, include)] = False
    assert not close[np.ix_(features, features)].any()


def data(task: str, sparse: bool = False, n: int = 120, m: int = 30):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.6)
    X[:, 10:14] = X[:, :1] + 0.1 * rng.normal(size=(n, 4))  # feature 0 and its like
    margin = X[:, [0, 5, 6, 7]] @ [2.0, 1.0, 1.0, -1.0] + 0.3 * rng.normal(size=n)
    y = {"two": margin > 0, "three": np.digitize(margin, [-1, 1]), "numbers": margin}[task]
    return (sp.csc_array(X) if sparse else X), y


def estimator(task: str, k: int | None = 5, **options):
    kind = GroupDiscoveryRegressor if task == "numbers" else GroupDiscoveryMachine
    return kind(k, **{"scheduler": "synchronous", "include": [12, 3], "exclude": [5, 0], **options})


@pytest.mark.parametrize("task", ["two", "three", "numbers"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("options", [{}, {"C": 1.0}, {"C": 50.0, "master": "cuts"}, {"k": None, "max_cuts": 5}])
def test_fits_of_every_kind_keep_them(task, sparse, options) -> None:
    X, y = data(task, sparse)
    machine = estimator(task, **options).fit(X, y)
    supports = set(machine.support_features_.tolist())
    assert {3, 12} <= supports
    assert not supports & {0, 5}
    assert not supports & {10, 11, 13}  # covered by feature 12
    assert machine.included_.tolist() == [3, 12]
    assert {0, 10, 11, 12, 13} <= set(machine.groups_[12].tolist())  # excluded features may be affiliated
    if "k" not in options:
        assert len(supports) == 5


@pytest.mark.parametrize("task", ["two", "numbers"])
def test_a_weight_is_as_good_as_a_repetition(task) -> None:
    X, y = data(task)
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    weighed = estimator(task, C=1.0).fit(X, y, sample_weight=weights)
    repeated = estimator(task, C=1.0).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighed.support_features_.tolist() == repeated.support_features_.tolist()
    np.testing.assert_allclose(weighed.weights_, repeated.weights_, rtol=1e-4)
    np.testing.assert_allclose(weighed.upper_bounds_, repeated.upper_bounds_, rtol=1e-4)


@pytest.mark.parametrize("C", ["auto", 1.0])
def test_the_same_bits_from_any_source_on_any_scheduler(tmp_path, C) -> None:
    X, y = data("two", sparse=True)
    folders = []
    for number, (block, scheduler) in enumerate([("1MB", "synchronous"), ("2KB", "threads")]):
        store = ingest(X, tmp_path / f"{number}.zarr", y, block_bytes=block, scheduler="synchronous")
        folders.append(tmp_path / f"run{number}")
        estimator("two", C=C, certify=True, scheduler=scheduler).fit(store).save(folders[-1])
    estimator("two", C=C, certify=True).fit(X, y).save(tmp_path / "memory")
    for folder in [*folders[1:], tmp_path / "memory"]:
        same_model(folder, folders[0])


@pytest.mark.parametrize("C", ["auto", 1.0])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_fit_that_stops_after_any_cut_goes_on_to_the_same_bits(tmp_path, C, cut) -> None:
    X, y = data("two")
    store = ingest(X, tmp_path / "s.zarr", y, scheduler="synchronous")
    options = {"C": C, "cut_size": 1}
    RunDirectory(tmp_path / "whole").fit(estimator("two", **options), store)
    parted = RunDirectory(tmp_path / "parted")
    with pytest.raises(Stop):
        parted.fit(estimator("two", **options), store, callback=stop_after(cut))
    parted.fit(estimator("two", **options), store, resume=True)
    same_model(parted.path, tmp_path / "whole")


@pytest.mark.parametrize("other", [{"include": [12]}, {"include": None}, {"exclude": [5, 1]}, {"exclude": None}])
def test_a_checkpoint_of_other_constraints_is_refused(tmp_path, other) -> None:
    X, y = data("two")
    store = ingest(X, tmp_path / "s.zarr", y, scheduler="synchronous")
    with pytest.raises(Stop):
        estimator("two", C=1.0).fit(store, checkpoint=tmp_path / "c.npz", callback=stop_after(1))
    with pytest.raises(BadInput, match=f"another fit: {next(iter(other))} was '2 features"):
        estimator("two", C=1.0, **other).fit(store, checkpoint=tmp_path / "c.npz")


def test_a_saved_model_knows_them(tmp_path) -> None:
    X, y = data("two")
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    machine = estimator("two", include=["f12", "f3"], exclude=np.array([0, 5])).fit(frame, y)
    assert machine.included_.tolist() == [3, 12]
    machine.save(tmp_path)
    assert json.loads((tmp_path / "model.json").read_bytes())["parameters"]["include"] == ["f12", "f3"]
    loaded = load_model(tmp_path)
    assert loaded.included_.tolist() == [3, 12]
    assert loaded.get_params()["include"] == ["f12", "f3"]
    assert loaded.get_params()["exclude"] == [0, 5]
    found = stability_selection(loaded, frame, y, n_repeats=3)
    places = [found.supports.index(feature) for feature in (3, 12)]
    assert [found.support_frequency[place] for place in places] == [1.0, 1.0]
    assert not {other["name"] for other in found.others} & {"f0", "f5"}


@pytest.mark.parametrize("kind", [tuple, set, pd.Index, pd.Series, np.array, dict.fromkeys])
def test_a_saved_model_knows_them_in_any_form(tmp_path, kind) -> None:
    X, y = data("two")
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    estimator("two", include=kind(["f12"]), exclude=kind(["f3"])).fit(frame, y).save(tmp_path)
    loaded = load_model(tmp_path)
    assert (loaded.include, loaded.exclude) == (["f12"], ["f3"])


def test_a_grid_is_searched_with_them(tmp_path, monkeypatch) -> None:
    X, y = data("two")
    store = ingest(X, tmp_path / "s.zarr", y, scheduler="synchronous")
    seen = []

    def noted(problem, k):
        seen.append(problem.supports.features)
        return select(problem, k)

    monkeypatch.setattr("gdm_dask.analysis.cross_validation.select", noted)
    tune(store, estimator("two"), {"tau": [0.25, 0.5], "folds": 2})
    assert len(seen) == 4
    assert all(features[:2] == [3, 12] and not {0, 5} & set(features) for features in seen)


def test_a_feature_that_is_constant_on_a_fold_is_left_out_there() -> None:
    X, y = data("two")
    X[:, 3] = 0.0
    X[0, 3] = 1.0  # constant on all folds but for those with the first sample
    machine = estimator("two", C="auto").fit(X, y)
    assert machine.C_path_["how"] == "folds"
    assert {3, 12} <= set(machine.support_features_.tolist())


def test_many_excluded_features_cost_little() -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 120_000), density=1e-3, rng=rng, format="csc")
    y = np.repeat([0, 1], 25)
    kept = np.arange(0, 120_000, 100)
    names = [f"f{j}" for j in range(120_000)]
    found = resolve({"exclude": np.setdiff1d(np.arange(120_000), kept)}, 120_000, lambda: names)
    machine = GroupDiscoveryMachine(5, C=1.0, exclude=found.exclude, groups=False, scheduler="synchronous").fit(X, y)
    alone = GroupDiscoveryMachine(5, C=1.0, groups=False, scheduler="synchronous").fit(X[:, kept], y)
    assert machine.support_features_.tolist() == kept[alone.support_features_].tolist()
    assert machine.upper_bounds_.tolist() == alone.upper_bounds_.tolist()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"include": "age"}, "`include` must be None or a list of names or numbers of features, got 'age'"),
        ({"include": 3}, "`include` must be None or a list"),
        ({"include": np.array(3)}, "`include` must be None or a list"),
        ({"include": iter([3])}, "`include` must be None or a list"),
        ({"exclude": [1.5]}, r"`exclude` must be a list of names or numbers of features, got 1.5 in it"),
        ({"exclude": [True]}, "got True in it"),
        ({"include": ["weight"]}, "no feature is named 'weight': check the spelling"),
        ({"include": ["twin"]}, "features 2 and 3 are both named 'twin': pass their numbers"),
        ({"include": [4]}, "feature 4 is out of range: features are numbered 0 to 3"),
        ({"exclude": [-1]}, "feature -1 is out of range"),
        ({"include": ["age", 1]}, "`include` names feature 1 twice"),
        ({"include": ["age"], "exclude": [0, 1]}, "`include` and `exclude` both name feature 1"),
        ({"include": [0, 1], "n_features_to_select": 1}, "at most n_features_to_select=1 features, got 2"),
        ({"exclude": [0, 1, 2, 3]}, "`exclude` names all features"),
    ],
)
def test_bad_input_is_named(parameters, message) -> None:
    with pytest.raises(BadInput, match=message):
        resolve(parameters, 4, lambda: ["id", "age", "twin", "twin"])


def test_text_is_a_number_where_there_are_no_names() -> None:
    assert resolve({"include": ["2", 0]}, 4, lambda: None).include.tolist() == [0, 2]
    with pytest.raises(BadInput, match="the features have no names, got 'age': pass numbers from 0 to 3"):
        resolve({"include": ["age"]}, 4, lambda: None)
    assert resolve({"include": [], "exclude": ()}, 4, lambda: None) is None


def test_a_constant_feature_cannot_be_included() -> None:
    X, y = data("two")
    X[:, 3] = 7.0
    with pytest.raises(BadInput, match="`include`: feature 3 is constant: leave it out"):
        estimator("two").fit(X, y)
    weights = np.ones(len(y))
    X[0, 3] = 8.0
    weights[0] = 0.0
    with pytest.raises(BadInput, match="feature 3 is constant"):
        estimator("two").fit(X, y, sample_weight=weights)


def test_settings_of_a_search_without_constraints_hold_none() -> None:
    assert choose_settings(10, 100, k=3).constraints is None
