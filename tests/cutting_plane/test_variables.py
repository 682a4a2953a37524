"""Variables, some included or excluded: cuts, bounds and certificates against enumeration, and the whole fit."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.clusters import Stop, same_model, stop_after
from helpers.instances import data_of, informative, kinds, many, memory, seeds, solved, whole
from helpers.misaligned import MisalignedEngine
from hypothesis import given
from hypothesis import strategies as st
from test_certificate import objective

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, load_model, stability_selection
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.cutting_plane.certificate import certify
from gdm_dask.cutting_plane.memory import FitWork, planned_work
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.errors import BadInput
from gdm_dask.features.scores import scores
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.settings.constraints import Constraints, named_variables, resolve
from gdm_dask.settings.settings import Settings, choose_settings, expected_supports

taus, sizes = st.sampled_from([0.0, 0.25, 0.6]), st.integers(1, 3)


class Case:
    """Features, alone or in variables, some of them included or excluded; numbers are of variables but where said."""

    def __init__(self, X: np.ndarray, tau: float, seed: int, n_included: int, together: bool) -> None:
        rng = np.random.default_rng(seed + 3)
        owner = rng.integers(0, max(1, 2 * len(X) // 3), len(X)) if together else np.arange(len(X))
        given = {str(v): np.flatnonzero(owner == v) for v in np.unique(owner)}
        exclude = np.flatnonzero(rng.random(len(X)) < 0.15)[: len(X) - 1]
        varied = [j for j in range(len(X)) if np.ptp(X[j]) > 0 and j not in exclude]
        named = rng.permutation(varied)[:n_included].tolist()
        parameters = {"groups_of": given, "include": named, "exclude": exclude}
        self.constraints = resolve(parameters, len(X), lambda: None) or Constraints()
        kept = [[j for j in own.tolist() if j in varied] for own in given.values()]
        self.all = sorted((own for own in kept if own), key=lambda own: own[0])
        self.included = [v for v, own in enumerate(self.all) if set(named) & set(own)]
        self.include = [j for v in self.included for j in self.all[v]]  # features
        self.close = reference.correlated_variables(reference.correlated(X, tau), self.all)

    def of(self, features: list[int]) -> list[int]:
        """Variables that hold some features."""
        return [v for v, own in enumerate(self.all) if set(own) & set(features)]

    def free(self, supports: list[int]) -> list[int]:
        """Variables that may join supports, which are features."""
        return [v for v in reference.uncovered(self.close, self.of(supports)) if v not in self.included]


def searched(X, y, case: Case, sparse: bool = False, **options) -> tuple[Problem, list[np.ndarray], list[list[int]]]:
    """Solve a problem; return it, and the duals and supports before each cut and at the end."""
    defaults = {"C": 100.0, "tau": 0.25, "cut_size": 2, "max_cuts": 12, "tol": 1e-5, "intercept": False}
    problem, duals = solved(X, y, Settings(**defaults | options, constraints=case.constraints), sparse, 1000)
    supports = itertools.accumulate(problem.cuts, lambda old, cut: list(dict.fromkeys([*old, *cut])), initial=[])
    return problem, [one for (one,) in duals], list(supports)


@many(80)
@given(
    kinds, st.integers(3, 25), st.integers(4, 40), taus, sizes, st.integers(0, 4), st.booleans(), st.booleans(), seeds
)
def test_every_cut_is_the_literal_one(kind, m, n, tau, size, n_included, sparse, together, seed) -> None:
    X, y = informative(m, n, seed, kind)
    case = Case(X, tau, seed, min(n_included, 2) if together else n_included, together)
    problem, duals, supports = searched(X, y, case, sparse, tau=tau, cut_size=size, cuts_per_read=1)
    block = whole(X, sparse)
    for t, iteration in enumerate(problem.iterations):
        c = reference.variable_scores(scores(block, duals[t][None])[0], case.all)
        if t == 0 and case.included:
            expected = sorted(case.included, key=lambda v: (-abs(c[v]), v))
        else:
            expected = reference.greedy_cut(c, case.close, size, case.of(supports[t]), tuple(case.included))
        assert sorted(iteration.cut) == sorted(j for v in expected for j in case.all[v])
        assert iteration.best_score == pytest.approx(max(c[expected]) / np.linalg.norm(duals[t]))
        assert iteration.n_new == len(case.of(supports[t + 1])) - len(case.of(supports[t]))
        if not together:
            assert iteration.cut == [case.all[v][0] for v in expected]
            np.testing.assert_allclose(iteration.scores, np.abs(c[expected]) / np.linalg.norm(duals[t]))
    entered = case.of(problem.supports.features)
    assert sorted(problem.supports.features) == sorted(supports[-1]) == sorted(j for v in entered for j in case.all[v])
    assert problem.supports.n_entered == len(entered)


@many(70)
@given(
    kinds, st.integers(3, 8), st.integers(4, 25), taus, sizes, st.integers(0, 3), st.sampled_from([0.1, 1.0, 100.0]),
    st.sampled_from(["greedy", "exact"]), st.booleans(), st.booleans(), seeds,
)  # fmt: skip
def test_bounds_enclose_the_optimum_with_all_cuts(
    kind, m, n, tau, size, n_included, C, matching, merged, together, seed
) -> None:
    """Every cut holds the included features, and no cut holds an excluded one; for both masters."""
    X, y = informative(m, max(n, 12) if together else n, seed, kind)
    case = Case(X, tau, seed, min(n_included, 1) if together else n_included, together)
    wanted = {"merged": True, "n_supports": len(case.included) + 2 * size} if merged else {}
    problem, _, supports = searched(X, y, case, tau=tau, cut_size=size, C=C, matching=matching, **wanted)
    assert (np.diff(problem.lower_bounds) >= 0).all()
    assert (np.diff(problem.upper_bounds) <= 0).all()
    for t, (lower, upper) in enumerate(zip(problem.lower_bounds, problem.upper_bounds, strict=True)):
        free = case.free(supports[t + 1])
        best = reference.optimum(X, y, case.close, size, C, free, case.include, case.all)
        assert lower <= best * (1 + 1e-7)
        assert upper >= best * (1 - 1e-7)
        assert problem.iterations[t].upper >= best * (1 - 1e-7)


@many(70)
@given(
    kinds, st.integers(3, 9), st.integers(6, 30), st.integers(1, 2), st.integers(0, 2), taus,
    st.sampled_from([0.1, 1.0, 100.0]), st.booleans(), st.booleans(), st.booleans(), seeds,
)  # fmt: skip
def test_no_set_is_certified_beyond_the_truth(
    kind, m, n, more, n_included, tau, C, sparse, intercept, together, seed
) -> None:
    X, y = informative(m, n, seed, kind)
    case = Case(X, tau, seed, min(n_included, 1) if together else n_included, together)
    sets = [
        (*case.include, *(j for v in cut for j in case.all[v]))
        for cut in reference.feasible_cuts(case.close, more, case.free(case.include))
    ]
    empty = objective(X[case.include], y, C, intercept)
    gains = {cut: empty - objective(X[list(cut)], y, C, intercept) for cut in sets}
    if not gains or max(gains.values()) <= 1e-6 * empty:
        return
    settings = Settings(C, tau, 1, 99, 1e-3, intercept=intercept, constraints=case.constraints)
    best = max(gains, key=gains.__getitem__)
    for features in {best, sets[seed % len(sets)]}:
        chosen = np.array(features)
        with data_of(memory(X, sparse)) as data:
            found = certify(
                data, y, settings, len(case.included) + more, chosen, whole(X, sparse).rows(chosen)
            )  # fmt: skip
        assert found.share <= gains[features] / gains[best] + 1e-6


def one_hot(task: str = "two", n: int = 200):
    """Columns: six noise, four of a variable that tells, six noise, three of one that does not; two spread apart."""
    rng = np.random.default_rng(2)
    colour, shape = rng.integers(0, 4, n), rng.integers(0, 3, n)
    noise = rng.normal(size=(n, 12))
    X = np.column_stack([noise[:, :6], colour[:, None] == np.arange(4), noise[:, 6:], shape[:, None] == np.arange(3)])
    X = X[:, [*range(6), 6, 10, 7, 11, 8, 12, 9, 13, 14, 15, 16, 17, 18]]
    margin = np.array([1.5, -1.0, 0.5, -1.2])[colour] + noise[:, 0] + 0.3 * rng.normal(size=n)
    y = {"two": margin > 0, "three": np.digitize(margin, [-1, 1]), "numbers": margin}[task]
    return X, y, {"colour": [6, 8, 10, 12], "shape": [16, 17, 18]}


def estimator(task: str, groups_of, k: int | None = 3, **options):
    kind = GroupDiscoveryRegressor if task == "numbers" else GroupDiscoveryMachine
    return kind(k, **{"scheduler": "synchronous", "groups_of": groups_of, **options})


@pytest.mark.parametrize("task", ["two", "three", "numbers"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("options", [{}, {"C": 50.0, "master": "cuts"}, {"k": None, "max_cuts": 4}])
def test_features_enter_together_in_every_kind_of_fit(task, sparse, options) -> None:
    X, y, groups_of = one_hot(task)
    machine = estimator(task, groups_of, **options).fit(sp.csr_array(X) if sparse else X, y)
    supports = set(machine.support_features_.tolist())
    assert machine.variables_["colour"] == [6, 8, 10, 12]
    assert {0, 6, 8, 10, 12} <= supports
    assert len({16, 17, 18} & supports) in (0, 3)
    if "k" not in options:
        assert len(supports) - sum(len(own) - 1 for own in machine.variables_.values()) == 3
        assert machine.history_[-1].n_supports == 3


@pytest.mark.parametrize("k", [1, 2])
def test_a_variable_counts_as_one_at_the_limit(k) -> None:
    X, y, groups_of = one_hot()
    machine = estimator("two", groups_of, k, C=1.0, cut_size=2, certify=True).fit(X, y)
    assert set(machine.support_features_.tolist()) == ({6, 8, 10, 12}, {0, 6, 8, 10, 12})[k - 1]
    assert 0.5 < machine.certified_share_ <= 1.0


def test_inclusion_and_exclusion_of_some_of_its_features() -> None:
    X, y, groups_of = one_hot()
    machine = estimator("two", groups_of, 2, C=1.0, include=[17], exclude=[8]).fit(X, y)
    assert machine.included_.tolist() == [16, 17, 18]
    assert machine.variables_ == {"shape": [16, 17, 18], "colour": [6, 10, 12]}


def test_columns_that_cannot_be_supports_stay_outside() -> None:
    X, y, groups_of = one_hot()
    X[:, 10] = 1.0
    machine = estimator("two", groups_of, 2, C=1.0, include=[6]).fit(X, y)
    assert machine.variables_["colour"] == [6, 8, 12]
    with pytest.raises(BadInput, match="feature 10 is constant"):
        estimator("two", groups_of, 2, C=1.0, include=[10]).fit(X, y)


def test_a_variable_with_a_covered_column_does_not_enter() -> None:
    X, y, groups_of = one_hot()
    X[:, 1] = X[:, 8] + 0.01 * np.random.default_rng(0).normal(size=len(X))
    machine = estimator("two", groups_of, 3, C=1.0, include=[1]).fit(X, y)
    assert "colour" not in machine.variables_
    assert not {6, 8, 10, 12} & set(machine.support_features_.tolist())


@pytest.mark.parametrize(("measure", "is_covered"), [("pearson", False), ("spearman", True)])
def test_the_measure_decides_what_is_covered(measure, is_covered) -> None:
    X, y, groups_of = one_hot()
    X[:, 1] = np.exp(4 * X[:, 3])  # they correlate by rank only
    groups_of = {"pair": [0, 1], **groups_of}
    machine = estimator("two", groups_of, 3, C=1.0, tau=0.1, include=[3], measure=measure).fit(X, y)
    assert ("pair" in machine.variables_) != is_covered


def test_weights_are_as_good_as_repetitions() -> None:
    X, y, groups_of = one_hot()
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    weighed = estimator("two", groups_of, C=1.0).fit(X, y, sample_weight=weights)
    repeated = estimator("two", groups_of, C=1.0).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighed.support_features_.tolist() == repeated.support_features_.tolist()
    np.testing.assert_allclose(weighed.upper_bounds_, repeated.upper_bounds_, rtol=1e-4)


@pytest.mark.parametrize("C", ["auto", 1.0])
def test_the_same_bits_from_any_source_on_any_scheduler(tmp_path, C, monkeypatch) -> None:
    X, y, groups_of = one_hot()
    for number, (block, scheduler) in enumerate([("1MB", "synchronous"), ("2KB", "threads")]):
        store = ingest(X, tmp_path / f"{number}.zarr", y, block_bytes=block, scheduler="synchronous")
        estimator("two", groups_of, C=C, certify=True, scheduler=scheduler).fit(store).save(tmp_path / f"run{number}")
    assert store.n_blocks > 5  # variables are cut into pieces
    monkeypatch.setattr("gdm_dask.inputs.open_engine", lambda *_: MisalignedEngine())  # passes travel as messages
    estimator("two", groups_of, C=C, certify=True).fit(X, y).save(tmp_path / "memory")
    same_model(tmp_path / "run0", tmp_path / "memory")
    same_model(tmp_path / "run1", tmp_path / "memory")


@pytest.mark.parametrize("C", ["auto", 1.0])
def test_a_fit_that_stops_goes_on_to_the_same_bits(tmp_path, C) -> None:
    X, y, groups_of = one_hot()
    store = ingest(X, tmp_path / "s.zarr", y, scheduler="synchronous")
    options = {"C": C, "cut_size": 1, "include": [17]}
    whole_run, parted = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "parted")
    whole_run.fit(estimator("two", groups_of, **options), store)
    with pytest.raises(Stop):
        parted.fit(estimator("two", groups_of, **options), store, callback=stop_after(2))
    if parted.checkpoint.exists():  # while folds choose C, the state is saved after reads only
        with pytest.raises(BadInput, match="groups_of was '7 features"):
            parted.fit(estimator("two", {"colour": groups_of["colour"]}, **options), store, resume=True)
    parted.fit(estimator("two", groups_of, **options), store, resume=True)
    same_model(parted.path, whole_run.path)


def test_models_stability_and_grids_know_them(tmp_path) -> None:
    X, y, groups_of = one_hot()
    store = ingest(X, tmp_path / "s.zarr", y, scheduler="synchronous")
    machine = estimator("two", groups_of).fit(store)
    machine.save(tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert loaded.variables_ == machine.variables_
    assert loaded.get_params()["groups_of"] == groups_of
    found = stability_selection(loaded, store, n_repeats=3)
    assert [found.support_frequency[found.supports.index(j)] for j in groups_of["colour"]] == [1.0] * 4
    assert tune(store, estimator("two", groups_of), {"tau": [0.25, 0.5], "folds": 2})["tau"] in (0.25, 0.5)


def test_the_plan_counts_the_features_of_variables() -> None:
    constraints = resolve({"groups_of": {"a": range(5), "b": range(5, 8)}, "include": [9]}, 20, lambda: None)
    assert expected_supports(choose_settings(20, 100, k=3, constraints=constraints)) == 9
    assert choose_settings(20, 100_000, k=3, constraints=constraints).n_supports == 3  # no choice among more


def test_the_plan_counts_the_bytes_of_constraints() -> None:
    def work(**parameters) -> FitWork:
        constraints = resolve(parameters, 10**6, lambda: None)
        return planned_work([10**6], [10**6], 100, choose_settings(10**6, 100, k=3, constraints=constraints))

    free, bound = work(), work(exclude=range(10**5), groups_of={"a": range(10**5, 10**5 + 1000)})
    assert bound.task_bytes - free.task_bytes == 8 * 10**5 + 56 * 1000
    assert bound.driver_bytes - free.driver_bytes >= 8 * 10**5


def test_variables_can_be_lists_or_the_variable_of_each_feature(tmp_path) -> None:
    X, y = informative(6, 80, 0)
    lists, labels = [[1, 4], [2, 3]], [None, "b", "c", "c", "b", None]
    named = {"b": [1, 4], "c": [2, 3]}
    first, second, third = (
        GroupDiscoveryMachine(2, groups_of=given, tau=0.01).fit(X.T, y) for given in (named, lists, np.array(labels))
    )
    assert first.variables_
    assert {"b": "0", "c": "1"}.keys() >= first.variables_.keys()
    for other in (second, third):
        assert first.support_features_.tolist() == other.support_features_.tolist()
    assert first.variables_ == third.variables_
    assert [*first.variables_.values()] == [*second.variables_.values()]
    for model in (second, third):
        model.save(tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert [*again.groups_of.values()] == lists
        assert again.fit(X.T, y).variables_ == model.variables_
        assert "2 variables" in model.report(tmp_path / "report.md")


@pytest.mark.parametrize(
    "kind",
    [
        list,
        pd.Series,
        pd.Categorical,
        pa.array,
        pl.Series,
        lambda titles: [pd.NA if title is None else title for title in titles],
        lambda titles: [np.nan if title is None else float(ord(title)) for title in titles],
    ],
)
def test_a_feature_whose_variable_is_missing_is_on_its_own(kind) -> None:
    given = kind([None, "b", "c", "c", "b", None])
    assert [*named_variables(given, 6).values()] == [[1, 4], [2, 3]]


@pytest.mark.parametrize(
    ("groups_of", "message"),
    [
        (7, "`groups_of` must be None or a list of names or numbers of features, got 7"),
        (["a"], r"`groups_of` must be a dict or a list of lists of features, or have the variable of each of the \d+"),
        ([[0, 1], [1, 2]], "feature 1 belongs to '0' and to '1': name it in one"),
        ({"a": "b"}, r"`groups_of\['a'\]` must be None or a list"),
        ({"a": [0, 9]}, "variable 'a' of `groups_of`: feature 9 is out of range"),
        ({"a": [0, 0]}, "variable 'a' of `groups_of` names feature 0 twice"),
        ({"a": [0, 1], "b": [1, 2]}, "feature 1 belongs to 'a' and to 'b': name it in one"),
        ({"a": ["x"]}, "variable 'a' of `groups_of`: the features have no names, got 'x'"),
    ],
)
def test_bad_input_is_named(groups_of, message) -> None:
    with pytest.raises(BadInput, match=message):
        resolve({"groups_of": groups_of}, 4, lambda: None)


def test_the_number_of_included_variables_is_limited() -> None:
    groups_of = {"a": [0, 1], "b": [2, 3]}
    resolve({"groups_of": groups_of, "include": [0, 1, 2], "n_features_to_select": 2}, 5, lambda: None)
    with pytest.raises(BadInput, match="at most n_features_to_select=2 features, got 3"):
        resolve({"groups_of": groups_of, "include": [0, 2, 4], "n_features_to_select": 2}, 5, lambda: None)
