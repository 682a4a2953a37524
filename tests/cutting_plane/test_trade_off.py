"""The choice of C from the training data alone: by a rule with many samples, by folds with few."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.clusters import Stop, same_model
from helpers.instances import data_of, informative, memory
from sklearn.svm import LinearSVC

from gdm_dask import FeatureStore, GroupDiscoveryMachine, ingest
from gdm_dask.cutting_plane import trade_off
from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.trade_off import RIDGE_FACTORS, decide, held_out_losses, splits_of
from gdm_dask.errors import BadInput
from gdm_dask.pipeline.run_directory import RunDirectory
from gdm_dask.settings.settings import Settings, choose_settings, effective_samples, settings_from


def auto(n_samples: int, k: int | None, **options) -> Settings:
    return choose_settings(1000, n_samples, k=k, C="auto", **options)


def test_with_many_samples_a_rule_serves() -> None:
    found = auto(500, 20)
    assert (found.C, found.n_supports, found.C_choice, found.C_by) == (2.5, 60, None, "rule")
    assert not found.rivals
    assert auto(100_000, 20).C == 30.0
    assert auto(499, 20).rivals


def test_without_a_choice_the_rule_is_the_most_shrunk_candidate() -> None:
    found = auto(100_000, 501)
    assert (found.C, found.n_supports, found.C_by) == (pytest.approx(0.06 * 100_000 / 501), 501, "rule")
    assert auto(1000, 501).C_by == "rule"


def test_with_few_samples_folds_decide() -> None:
    found = auto(100, 20)
    assert [one.C for one in (found, *found.rivals)] == pytest.approx([0.3, 1.5, 6.0])
    assert {one.n_supports for one in (found, *found.rivals)} == {20}
    assert (found.n_folds, found.C_by) == (4, "folds")
    *_, last = auto(400, 20).rivals  # enough samples to try the choice of 20 of 60
    assert (last.C, last.n_supports, last.C_choice, last.cut_size) == (6.0, 60, 50.0, 3)


def test_a_rare_class_counts_as_few_samples() -> None:
    assert auto(5000, 20, counts=(4950, 50)).n_folds == 4
    assert pytest.approx(0.06 * 198 / 20) == auto(5000, 20, counts=(4950, 50)).C
    too_few = auto(5000, 20, counts=(4961, 39))
    assert (too_few.n_folds, too_few.rivals, too_few.C_by) == (0, (), "rule")


def test_there_are_no_more_folds_than_samples_of_a_class() -> None:
    found = [auto(100, 20, counts=(99 - n, n, 1 + n), task="classes") for n in (3, 1)]
    assert [(one.n_folds, one.C_by) for one in found] == [(3, "folds"), (0, "rule")]


@pytest.mark.parametrize(("k", "options"), [(None, {}), (20, {"tau": 0}), (20, {"master": "cuts"})])
def test_the_master_over_all_cuts_has_one_trade_off(k, options) -> None:
    found = auto(100, k, **options)
    assert (found.C, found.C_by, found.rivals) == (50.0, "fixed", ())


def test_a_number_skips_all_this() -> None:
    found = choose_settings(1000, 100, k=20, C=3.0)
    assert (found.C, found.C_by, found.rivals, found.C_choice) == (3.0, "given", (), None)
    X, y = informative(20, 40, 0)
    with pytest.raises(BadInput, match="`C` must be 'auto' or a positive number, got 'much'"):
        GroupDiscoveryMachine(5, C="much").fit(X.T, y)


@pytest.mark.parametrize(
    ("means", "spread", "chosen"),
    [((0.5, 0.4, 0.45), 0.01, 1), ((0.41, 0.4, 0.45), 0.1, 0), ((0.5, 0.45, 0.4), 0.06, 2), ((0.5, 0.42, 0.4), 0.1, 1)],
)
def test_the_most_shrunk_within_one_standard_error_is_taken(means, spread, chosen) -> None:
    candidates = [choose_settings(10, 40, k=2, C=C) for C in (1.0, 2.0, 3.0)]
    wave = spread * np.array([-1.0, 1.0, -1.0, 1.0])[:, None, None]
    losses = np.array(means)[None, :, None] + wave + np.array([0.3, 0.0])  # the second ridge is the better one
    found = decide(candidates, losses)
    assert (found.chosen, found.C, found.n_folds) == (chosen, candidates[chosen].C, 4)
    np.testing.assert_allclose([one.loss for one in found.candidates], means)
    np.testing.assert_allclose([one.error for one in found.candidates], spread * np.sqrt(4 / 3) / 2)


def test_numbers_are_compared_fold_by_fold() -> None:
    candidates = [choose_settings(10, 40, k=2, C=C) for C in (1.0, 2.0, 3.0)]
    hard = np.array([1.0, 9.0, 2.0, 4.0])[:, None]  # folds differ more than candidates
    losses = (hard * np.array([1.3, 1.001, 1.0]) + np.array([0.0, 0.01, -0.01, 0.0])[:, None] * [0, 1, 0])[:, :, None]
    assert decide(candidates, losses).chosen == 0
    assert decide(candidates, losses, paired=True).chosen == 1


@pytest.mark.parametrize("paired", [False, True])
def test_rounding_does_not_choose_between_candidates_of_equal_loss(paired: bool) -> None:
    candidates = [choose_settings(10, 40, k=2, C=C) for C in (1.0, 2.0, 3.0)]
    losses = np.ones((4, 1)) * (0.05 * (1.0 + np.array([4e-16, 2e-16, 0.0])))
    assert decide(candidates, losses[:, :, None], paired=paired).chosen == 0


def test_a_fold_is_judged_by_a_machine_on_its_supports() -> None:
    X, y = informative(40, 80, 1, "noise")
    fold = splits_of(y, 4)[0]
    problem = Problem(y[fold.train], choose_settings(40, 60, k=5, C=1.0), fold.train)
    with data_of(memory(X, False)) as data:
        solve([problem], data)
    supports = problem.supports.features
    train = X[np.ix_(supports, fold.train)]
    means, norms = train.mean(axis=1, keepdims=True), np.sqrt(60) * train.std(axis=1, keepdims=True)
    for factor, found in zip(RIDGE_FACTORS, held_out_losses(problem, 5, fold.test, y[None, fold.test]), strict=True):
        C = factor * effective_samples(problem.task.class_weights(y[None, fold.train], None)) / 5
        # a long column in place of the intercept is hardly shrunk
        machine = LinearSVC(C=C / 2, dual=False, tol=1e-10, max_iter=10_000, intercept_scaling=1e3)
        machine.fit(((train - means) / norms).T, y[fold.train])
        margins = y[fold.test] * machine.decision_function(((X[np.ix_(supports, fold.test)] - means) / norms).T)
        assert found == pytest.approx(np.mean(np.maximum(1.0 - margins, 0.0) ** 2), rel=2e-2)


def test_a_fold_without_a_feature_that_differs_is_judged_by_the_intercept() -> None:
    y = np.repeat([-1.0, 1.0], [30, 10])
    fold = splits_of(y, 2)[0]
    X = np.zeros((3, 40))
    X[:, fold.test] = 1.0
    problem = Problem(y[fold.train], choose_settings(3, 20, k=2, C=1.0), fold.train)
    with data_of(memory(X, False)) as data:
        solve([problem], data)
    assert held_out_losses(problem, 2, fold.test, y[None, fold.test]) == [pytest.approx(0.75)] * len(RIDGE_FACTORS)


class Recorded(trade_off.Trials):
    """Trials that keep the problems on folds."""

    def _judge(self) -> None:
        self.judged = dict(self._problems)
        super()._judge()


def searched(X: np.ndarray, y: np.ndarray, k: int = 6) -> Recorded:
    settings = settings_from(GroupDiscoveryMachine(k).get_params(), len(X), "two classes", y[None])
    with data_of(memory(X, False)) as data:
        trials = Recorded(data, y[None], settings, None)
        trials.search()
    return trials


def test_what_a_fold_holds_out_does_not_reach_its_selection() -> None:
    """Only the training data reaches a fit; otherwise it depends on sizes and labels alone."""
    X, y = informative(60, 90, 3, "noise")
    held_out = splits_of(y, 4)[1].test
    other = X.copy()
    other[:, held_out] = np.random.default_rng(0).normal(size=(60, len(held_out)))
    one, two = searched(X, y), searched(other, y)
    n_candidates = len(one._candidates)
    assert n_candidates == 3
    second = range(2 * n_candidates, 3 * n_candidates)
    for number in second:
        assert one.judged[number].cuts == two.judged[number].cuts
        np.testing.assert_array_equal(one.judged[number].master.duals, two.judged[number].master.duals)
        assert one._losses[number] != two._losses[number]
    (winner,), (other_winner,) = one._problems.values(), two._problems.values()  # on all samples
    assert winner.cuts != other_winner.cuts
    # same data in another form, between fits of other data: same choice
    first = GroupDiscoveryMachine(6).fit(X.T, y)
    GroupDiscoveryMachine(6).fit(other.T, y).predict(X.T)
    again = GroupDiscoveryMachine(6).fit(sp.csr_array(X.T), y)
    assert again.support_features_.tolist() == first.support_features_.tolist()
    assert again.C_ == first.C_
    assert [row["C"] for row in again.C_path_["candidates"]] == [row["C"] for row in first.C_path_["candidates"]]


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    X, y = informative(120, 90, 1, "counts")
    return ingest(X.T, tmp_path / "data.zarr", y, block_bytes=8_000)


def test_the_choice_is_in_every_output(store, tmp_path: Path) -> None:
    machine = GroupDiscoveryMachine(6).fit(store)
    path = machine.C_path_
    assert path["how"] == "folds"
    assert path["candidates"][path["chosen"]]["C"] == path["C"] == machine.C_
    machine.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["C_path_"] == path
    loaded = GroupDiscoveryMachine.load(tmp_path / "model")
    assert (loaded.C_, loaded.C_path_, loaded.C) == (machine.C_, path, "auto")
    facts = json.loads(loaded.report(tmp_path / "report.json"))["facts"]
    assert facts["C_path"] == path
    assert "by 4 folds, the most shrunk of" in facts["trade_off"]


@pytest.mark.parametrize(("k", "how"), [(6, "folds"), (3, "rule")])
def test_it_is_a_fit_with_that_number(store, k, how) -> None:
    machine = GroupDiscoveryMachine(k).fit(store)
    assert (machine.C_path_["how"], machine.C_path_["C_choice"]) == (how, None)
    alone = GroupDiscoveryMachine(k, C=machine.C_).fit(store)
    assert alone.support_features_.tolist() == machine.support_features_.tolist()
    assert alone.weights_.tolist() == machine.weights_.tolist()
    assert alone.counts_["passes"] == machine.counts_["passes"]
    assert alone.lower_bounds_.tolist() == machine.lower_bounds_.tolist()
    assert alone.upper_bounds_.tolist() == machine.upper_bounds_.tolist()


def test_folds_that_do_not_fit_into_memory_at_once_take_turns(store, monkeypatch) -> None:
    expected = GroupDiscoveryMachine(6, scheduler="synchronous").fit(store)
    at_once: list[int] = []
    monkeypatch.setattr(trade_off, "solve", lambda some, *rest: at_once.append(len(some)) or solve(some, *rest))
    monkeypatch.setattr("gdm_dask.cutting_plane.memory.DRIVER_VECTORS", 140_000)  # 100 MB for each problem
    found = GroupDiscoveryMachine(6, scheduler="synchronous", memory_limit="1GB").fit(store)
    assert at_once == [4, 4, 4, 1]
    assert found.C_path_ == expected.C_path_
    assert found.weights_.tolist() == expected.weights_.tolist()


@pytest.mark.parametrize("in_turns", [False, True])
def test_a_choice_that_stops_goes_on_to_the_same_bits(store, tmp_path: Path, monkeypatch, in_turns) -> None:
    monkeypatch.setattr("gdm_dask.settings.settings.CUTS_PER_READ", 2)
    whole, parted = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "parted")
    whole.fit(GroupDiscoveryMachine(6, scheduler="synchronous"), store)
    if in_turns:
        monkeypatch.setattr("gdm_dask.cutting_plane.memory.DRIVER_VECTORS", 140_000)
    machine = GroupDiscoveryMachine(6, scheduler="synchronous", memory_limit="1GB")
    n_cuts = 0

    def stop_at_fifth(iteration) -> None:
        nonlocal n_cuts
        n_cuts += 1
        if n_cuts % 5 == 0:
            raise Stop

    n_stops = 0
    while not parted.model.exists():
        with suppress(Stop):
            parted.fit(machine, store, resume=True, callback=stop_at_fifth)
        n_stops += 1
        assert n_stops < 20
    assert n_stops > 1
    same_model(parted.path, whole.path)


def test_the_lead_reports_its_cuts(store) -> None:
    cuts: list[int] = []
    machine = GroupDiscoveryMachine(6).fit(store, callback=lambda iteration: cuts.append(iteration.number))
    assert cuts == [iteration.number for iteration in machine.history_]


def test_samples_of_weight_zero_are_in_no_fold() -> None:
    X, y = informative(40, 90, 2, "noise")
    weights = (np.arange(90) % 5 > 0).astype(float)
    there = np.flatnonzero(weights)
    found = GroupDiscoveryMachine(6).fit(X.T, y, sample_weight=weights)
    expected = GroupDiscoveryMachine(6).fit(X.T[there], y[there])
    assert found.support_features_.tolist() == expected.support_features_.tolist()
    for one, other in zip(found.C_path_["candidates"], expected.C_path_["candidates"], strict=True):
        assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_more_classes_and_numbers_need_more_samples_to_choose(task: str) -> None:
    def settings(n_samples: int) -> Settings:
        counts = {"classes": [n_samples // 10] * 10, "numbers": [n_samples]}[task]
        return choose_settings(1000, n_samples, counts=counts, k=20, C="auto", task=task)

    many, few = settings(2000), settings(1990)
    assert (many.C_by, many.n_supports, many.rivals) == ("rule", 60, ())
    assert few.C_by == "folds"
    assert few.candidates[-1].n_supports == 60
