"""Group importance equals what permuting the columns of a matrix gives, and sees what single features hide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from report_cases import fitted, grouped

from gdm_dask import GroupDiscoveryMachine, group_importance, importance, ingest
from gdm_dask.correlation import as_rows
from gdm_dask.errors import BadInput
from gdm_dask.refit import refit


def permuted_accuracies(X, y, coef, intercept, columns, permutations) -> np.ndarray:
    """Slow truth: shuffle the columns themselves."""

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
    coef[members], intercept = refit(as_rows(X[:, members]), np.where(y == "yes", 1, -1))
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
