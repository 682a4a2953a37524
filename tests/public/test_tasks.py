"""Several classes, and numbers, from matrices, stores and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.store_helpers import gdm
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from gdm_dask import (
    FeatureStore,
    GroupDiscoveryMachine,
    GroupDiscoveryRegressor,
    group_importance,
    ingest,
    stability_selection,
)
from gdm_dask.errors import BadInput


@pytest.fixture(scope="module")
def X() -> np.ndarray:  # noqa: N802
    """Sparse columns; column 10 is nearly a copy of column 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(2.0, 1.0, size=(240, 20)) * (rng.random((240, 20)) < 0.4)
    X[:, 10] = 3.0 * X[:, 0] + 0.1 * rng.normal(size=240) * (X[:, 0] != 0)
    return X


@pytest.fixture(scope="module")
def labels(X: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=(240, 3))
    return np.array(["ape", "bat", "cat"])[np.argmax(X[:, :3] + 0.3 * noise, axis=1)]


@pytest.fixture(scope="module")
def numbers(X: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(2).normal(size=(240, 2))
    return 100.0 + X[:, :3] @ np.array([[5.0, 0.0], [2.0, 1.0], [0.0, -4.0]]) + noise


def small(kind: type, k: int = 3, **options):
    return kind(k, scheduler="synchronous", **options)


def test_classes_share_their_supports(X: np.ndarray, labels: np.ndarray) -> None:
    machine = small(GroupDiscoveryMachine).fit(X, labels)
    assert sorted(j % 10 for j in machine.support_features_.tolist()) == [0, 1, 2]
    assert machine.classes_.tolist() == ["ape", "bat", "cat"]
    assert machine.coef_.shape == machine.output_weights_.shape == (3, 3)
    values = machine.decision_function(X)
    np.testing.assert_allclose(values, X[:, machine.support_features_] @ machine.coef_.T + machine.intercept_)
    np.testing.assert_array_equal(machine.predict(X), machine.classes_[np.argmax(values, axis=1)])
    assert machine.score(X, labels) == np.mean(machine.predict(X) == labels) > 0.7
    np.testing.assert_allclose(machine.weights_, np.linalg.norm(machine.output_weights_, axis=0))
    assert (np.diff(machine.weights_) <= 0).all()
    own = {0: "ape", 10: "ape", 1: "bat", 2: "cat"}
    sides, places = machine.target_.sides(machine.output_weights_)
    assert [sides[place] for place in places] == [own[j] for j in machine.support_features_.tolist()]
    assert machine.profile_.class_counts.tolist() == [np.sum(labels == name) for name in machine.classes_]
    expected = reference.groups(X.T, machine.support_features_.tolist(), 0.25)
    assert {support: group.tolist() for support, group in machine.groups_.items()} == expected


def test_all_classes_share_the_reads(tmp_path: Path, X: np.ndarray, labels: np.ndarray) -> None:
    store = ingest(X, tmp_path / "train.zarr")
    several = small(GroupDiscoveryMachine).fit(store, labels)
    two = small(GroupDiscoveryMachine).fit(store, labels == "ape")
    assert several.counts_["passes"] == two.counts_["passes"]


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_numbers_are_predicted_in_their_units(X: np.ndarray, numbers: np.ndarray, n_outputs: int) -> None:
    y = numbers[:, 0] if n_outputs == 1 else numbers
    machine = small(GroupDiscoveryRegressor, 2 if n_outputs == 1 else 3).fit(X, y)
    features = machine.support_features_
    assert machine.coef_.shape == (n_outputs, len(features))
    assert machine.predict(X).shape == y.shape
    np.testing.assert_allclose(machine.predict(X), np.squeeze(X[:, features] @ machine.coef_.T + machine.intercept_))
    columns = StandardScaler().fit_transform(X[:, features])
    alpha = max(1.0, len(features) / 1.2)
    np.testing.assert_allclose(machine.predict(X), Ridge(alpha).fit(columns, y).predict(columns), rtol=1e-6)
    assert machine.score(X, y) > 0.8
    moved = small(GroupDiscoveryRegressor, len(features)).fit(X, 1e4 * y - 7.0)
    assert moved.support_features_.tolist() == features.tolist()
    np.testing.assert_allclose(moved.predict(X), 1e4 * machine.predict(X) - 7.0, rtol=1e-9)


@pytest.mark.parametrize("kind", [GroupDiscoveryMachine, GroupDiscoveryRegressor])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_store_gives_the_same_bits(X, labels, numbers, kind, sparse, tmp_path) -> None:
    matrix = sp.csr_array(X) if sparse else X
    y = labels if kind is GroupDiscoveryMachine else numbers
    store = ingest(matrix, tmp_path / "s.zarr", y, block_bytes=2000)
    machine, stored = small(kind, certify=True).fit(matrix, y), small(kind, certify=True).fit(store)
    for name in ("support_features_", "output_weights_", "coef_", "intercept_", "upper_bounds_"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(machine, name))
    np.testing.assert_array_equal(stored.predict(store), machine.predict(X))
    assert stored.score(store) == machine.score(X, y)
    assert 0.3 < stored.certified_share_ == machine.certified_share_ <= 1.0
    assert stored.transform(store).shape == (240, 3)


@pytest.mark.parametrize("kind", [GroupDiscoveryMachine, GroupDiscoveryRegressor])
def test_weights_equal_repetition(X, labels, numbers, kind) -> None:
    y = labels if kind is GroupDiscoveryMachine else numbers
    weights = np.random.default_rng(3).integers(0, 4, 240)
    repeated = np.repeat(np.arange(240), weights)
    one, other = small(kind).fit(X, y, sample_weight=weights), small(kind).fit(X[repeated], y[repeated])
    assert one.support_features_.tolist() == other.support_features_.tolist()
    np.testing.assert_allclose(one.output_weights_, other.output_weights_, rtol=1e-6)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=1e-6)


def test_balanced_classes_count_the_same(X, labels) -> None:
    machine = small(GroupDiscoveryMachine, class_weight="balanced").fit(X, labels)
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    same = small(GroupDiscoveryMachine).fit(X, labels, sample_weight=(80.0 / counts)[codes])
    np.testing.assert_allclose(machine.coef_, same.coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", [GroupDiscoveryMachine, GroupDiscoveryRegressor])
def test_analyses_and_pages(X, labels, numbers, kind, tmp_path) -> None:
    y = labels if kind is GroupDiscoveryMachine else numbers
    machine = small(kind).fit(X, y)
    found = group_importance(machine, (X, y), train=(X, y))
    assert min(found.group) > 0.05
    assert found.accuracy_supports == pytest.approx(machine.score(X, y))
    assert stability_selection(machine, X, y, n_repeats=2).group_frequency == [1.0, 1.0, 1.0]
    report = json.loads(machine.report(tmp_path / "r.json", store=(X, y)))
    assert len(report["supports"]["output_weights"]) == len(machine.coef_)
    shown = [report["data"]["sides"][side] for side in report["supports"]["side"]]
    text = machine.report(tmp_path / "r.md", store=(X, y))
    assert all(name in text for name in shown)
    assert ("training accuracy" if kind is GroupDiscoveryMachine else "training R2") in text
    assert kind.__name__ in machine._repr_html_inner()


def test_numbers_on_the_command_line(capsys, X, numbers, tmp_path) -> None:
    """A store of floats is a regression task; one of integers only if `task` says so."""
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", numbers[:, 0].round())
    np.save(tmp_path / "few.npy", (numbers[:, 0] > 104).astype(int) + (numbers[:, 0] > 110))
    path, run = str(tmp_path / "s.zarr"), str(tmp_path / "run")
    common = ["--scheduler", "synchronous"]

    def run_command(*arguments: str) -> str:
        code, out, err = gdm(capsys, *arguments)
        assert code == 0, err
        return out

    files = str(tmp_path / "X.npy"), path, "--target", str(tmp_path / "y.npy")
    run_command("ingest", *files, "--task", "regression", *common)
    run_command("fit", path, "--run", run, "-k", "2", *common)
    facts = json.loads(run_command("evaluate", run, path, "--json"))
    assert facts["r2"] > 0.8
    predicted = np.array(run_command("predict", run, path).split(), float)
    assert np.corrcoef(predicted, numbers[:, 0])[0, 1] > 0.9
    run_command("report", run, "-o", str(tmp_path / "r.html"), "--store", path)
    for task, kind in (("regression", "numbers"), ("classification", "classes")):
        folder = tmp_path / task
        few = str(tmp_path / "few.npy")
        run_command("fit", path, "--run", str(folder), "-k", "2", "--target", few, "--task", task, *common)
        document = json.loads((folder / "model.json").read_text())
        assert document["target"]["kind"] == kind


@pytest.mark.parametrize(
    ("kind", "y", "message"),
    [
        (GroupDiscoveryMachine, np.linspace(0, 1, 240), "Unknown label type: continuous"),
        (GroupDiscoveryMachine, np.zeros(240), "two classes"),
        (GroupDiscoveryRegressor, np.zeros(240), "every sample has the number"),
        (GroupDiscoveryRegressor, np.repeat(["a", "b"], 120), "regression needs numbers, got text such as 'a'"),
        (GroupDiscoveryRegressor, np.where(np.arange(240) == 7, np.nan, 1.0), "NaN"),
    ],
)
def test_targets_of_another_task_are_refused(X, kind, y, message) -> None:
    with pytest.raises(ValueError, match=message):
        small(kind).fit(X, y)


def test_a_store_of_the_other_task_is_refused(X, labels, numbers, tmp_path) -> None:
    text, store = (ingest(X, tmp_path / f"{n}.zarr", y) for n, y in enumerate((labels, numbers)))
    assert isinstance(text, FeatureStore)
    with pytest.raises(BadInput, match="regression needs numbers, got text such as 'ape'"):
        small(GroupDiscoveryRegressor).fit(text)
    with pytest.raises(BadInput, match="fit numbers with GroupDiscoveryRegressor"):
        small(GroupDiscoveryMachine).fit(store)


def test_a_bad_epsilon_is_refused(X, numbers) -> None:
    with pytest.raises(BadInput, match="`epsilon` must be a number >= 0, got -1"):
        small(GroupDiscoveryRegressor, epsilon=-1).fit(X, numbers)
