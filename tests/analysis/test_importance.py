"""Group importance equals permuting the columns of a matrix, and finds what single features hide."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.report_cases import fitted, grouped
from sklearn.exceptions import NotFittedError

from gdm_dask import GroupDiscoveryMachine, group_importance, ingest, stability_selection
from gdm_dask.analysis import importance
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.errors import BadInput
from gdm_dask.features.correlation import as_rows
from gdm_dask.settings.settings import effective_samples
from gdm_dask.settings.tasks import task_of


def permuted_accuracies(X, y, coef, intercept, columns, permutations) -> np.ndarray:
    """Slow reference: shuffle the columns themselves."""

    def accuracy(matrix: np.ndarray) -> float:
        return float(np.mean((matrix @ coef + intercept > 0) == (y == "yes")))

    drops = []
    for permutation in permutations:
        shuffled = X.copy()
        shuffled[:, columns] = X[permutation][:, columns]
        drops.append(accuracy(X) - accuracy(shuffled))
    return np.array(drops)


def test_drops_equal_shuffled_columns() -> None:
    machine, (X, y), (T, t) = fitted(), grouped(), grouped(1)
    found = group_importance(machine, (T, t), train=(X, y), n_repeats=3, seed=4)
    rng = np.random.default_rng(4)
    permutations = [rng.permutation(len(t)) for _ in range(3)]
    members = np.unique(np.concatenate(list(machine.groups_.values())))
    coef, intercept = np.zeros(X.shape[1]), 0.0
    outputs = np.where(y == "yes", 1, -1)
    n_effective = effective_samples([np.sum(outputs > 0), np.sum(outputs < 0)])
    limit = task_of("two classes").refit_limit(n_effective, len(machine.support_features_))
    (coef[members],), (intercept,) = refit(as_rows(X[:, members]), outputs[None], most_C=limit)
    own = np.zeros(X.shape[1])
    own[machine.support_features_] = machine.coef_[0]
    for k, (support, group) in enumerate(machine.groups_.items()):
        truth = permuted_accuracies(T, t, coef, intercept, group, permutations)
        assert found.group[k] == pytest.approx(truth.mean())
        assert found.group_std[k] == pytest.approx(truth.std())
        assert found.alone[k] == pytest.approx(
            permuted_accuracies(T, t, coef, intercept, [support], permutations).mean()
        )
        assert found.support[k] == pytest.approx(
            permuted_accuracies(T, t, own, machine.intercept_[0], [support], permutations).mean()
        )
    assert found.accuracy_supports == pytest.approx(machine.score(T, t))
    assert found.n_members == len(members)


def test_twins_hide_each_other_but_not_their_group() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 300)
    X = rng.normal(size=(600, 20))
    X[:, 0] += 2.5 * y
    X[:, 1:6] = X[:, [0]]
    X[:, :6] += 0.7 * rng.normal(size=(600, 6))
    machine = GroupDiscoveryMachine(1, scheduler="synchronous").fit(X, y)
    found = group_importance(machine, (X, y), train=(X, y))
    assert found.group[0] > 0.25
    assert found.alone[0] < found.group[0] / 2


@pytest.mark.parametrize("kind", ["sparse", "store", "sparse store"])
def test_all_kinds_of_data_tell_the_same(kind: str, tmp_path: Path) -> None:
    machine, (X, y) = fitted(), grouped()
    expected = group_importance(machine, (X, y), train=(X, y)).to_dict()
    matrix = sp.csr_array(X) if "sparse" in kind else X
    data = ingest(matrix, tmp_path / "data.zarr", y) if "store" in kind else (matrix, y)
    found = group_importance(machine, data, train=data).to_dict()
    for key in ("support", "group", "alone"):
        np.testing.assert_allclose(found[key], expected[key], atol=1e-9)


def test_many_samples_and_members_are_cut(monkeypatch) -> None:
    monkeypatch.setattr(importance, "MAX_SAMPLES", 50)
    monkeypatch.setattr(importance, "MAX_MEMBERS", 8)
    machine, data = fitted(), grouped()
    found = group_importance(machine, data, train=data)
    assert found.n_samples == 50
    assert found.members_per_group == 1
    assert found.n_members == 6


def test_without_training_data_there_is_no_model_on_members() -> None:
    found = group_importance(fitted(), grouped())
    assert found.group is None
    assert found.accuracy_members is None


def test_no_repeats_are_refused() -> None:
    with pytest.raises(BadInput, match="n_repeats"):
        group_importance(fitted(), grouped(), n_repeats=0)


@pytest.mark.parametrize("kind", [str, float, bool, np.uint8])
def test_labels_of_another_type_are_known_by_value_or_text(kind: type) -> None:
    X, y = grouped()
    numbers = (y == "yes").astype(int)
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(X, numbers)
    expected = group_importance(machine, (X, numbers))
    assert expected.accuracy_supports > 0.8
    assert group_importance(machine, (X, numbers.astype(kind))) == expected


def test_classes_of_a_store_are_taken_by_name_and_not_by_order(tmp_path: Path) -> None:
    X, y = grouped()
    numbers = np.where(y == "yes", 10, 2)
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(X, numbers)
    as_text = ingest(X, tmp_path / "text.zarr", numbers.astype(str))
    assert as_text.classes == ["10", "2"]  # sorted as text
    found = group_importance(machine, as_text)
    assert found.accuracy_supports == group_importance(machine, (X, numbers)).accuracy_supports


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y[:-1]), "has 160 samples, but there are 159 labels"),
        (lambda X, y: (X, "yes"), "has 160 samples, but there are 1 labels"),
        (lambda X, y: (X[:, 1:], y), "has 39 features, but the model was fitted on 40"),
        (lambda X, y: (X[:, 0], y), r"X must be a matrix of samples x features, got an array of shape \(160,\)"),
        (
            lambda X, y: (X, np.where(y == "yes", "a", "b")),
            r"the classes \['a', 'b'\], but the model was fitted on \['no', 'yes'\]",
        ),
        (lambda X, y: (da.from_array(X), y), "ingest it and pass the store"),
        (lambda X, y: X, "the data must be a store, .*, got ndarray"),
    ],
)
def test_data_that_does_not_fit_is_refused(change, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        group_importance(fitted(), change(*grouped()))


def test_a_machine_that_was_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        group_importance(GroupDiscoveryMachine(), grouped())


def test_columns_in_another_order_are_refused() -> None:
    X, y = grouped()
    table = pd.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])])
    machine = GroupDiscoveryMachine(n_features_to_select=3).fit(table, y)
    moved = table[table.columns[::-1]]
    uses = (
        lambda: group_importance(machine, (moved, y)),
        lambda: machine.report(test=(moved, y)),
        lambda: stability_selection(machine, moved, y, n_repeats=2),
    )
    for use in uses:
        with pytest.raises(BadInput, match="same order: got 'c39' in place of 'c0'"):
            use()
    assert group_importance(machine, (table, y)) == group_importance(machine, (X, y))


def test_many_wrong_labels_are_named_in_one_short_sentence() -> None:
    X, _ = grouped()
    with pytest.raises(BadInput, match=r"has the classes \[.*\] and 155 more, but the model was fitted on"):
        group_importance(fitted(), (X, np.arange(len(X)) + 0.5))
