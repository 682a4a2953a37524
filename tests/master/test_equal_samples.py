"""Merged samples: the groups of the definition, and the same choice of features as over all samples."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gdm_dask.cutting_plane import svm
from gdm_dask.cutting_plane.selection import choose
from gdm_dask.cutting_plane.svm import LocalMachine, Start
from gdm_dask.features.correlation import as_rows, correlation_limit
from gdm_dask.master.equal_samples import equal_samples
from gdm_dask.master.problem import Master
from gdm_dask.master.rows import Rows
from gdm_dask.master.sparse_kernels import SPAN
from gdm_dask.master.squared_loss import SquaredLoss

C = 30.0


def one_hot(n: int, d: int, seed: int, n_kinds: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Samples x features of few kinds, and the targets (3, n) of three classes."""
    rng = np.random.default_rng(seed)
    kinds = np.zeros((n_kinds, d))
    for column in kinds.T:  # sparse, and not constant
        column[rng.choice(n_kinds, max(1, n_kinds // 6), replace=False)] = 1.0
    X = kinds[rng.permutation(n) % n_kinds]
    classes = np.argmax(X @ rng.normal(size=(d, 3)) + rng.normal(size=(n, 3)), axis=1)
    return X, np.where(classes == np.arange(3)[:, None], 1.0, -1.0)


def rows_of(X: np.ndarray, weights: np.ndarray | None = None) -> Rows:
    w = np.ones(len(X)) if weights is None else weights
    means = w @ X / w.sum()
    rows = Rows(len(X))
    rows.append(sp.csr_array(X.T), means, np.sqrt(w @ (X - means) ** 2))
    return rows


@pytest.mark.parametrize("n", [50, 4000, 2 * SPAN + 100])
@pytest.mark.parametrize("seed", range(3))
def test_groups_are_the_different_samples(n: int, seed: int) -> None:
    X, targets = one_hot(n, 12, seed, n_kinds=8 if n == 50 else 40)
    weights = np.random.default_rng(seed).integers(0, 3, n).astype(float)
    for given in (None, weights):
        found = equal_samples(rows_of(X), targets, given)
        content = np.column_stack([X, targets.T, np.zeros(n) if given is None else given == 0])
        _, first, group = np.unique(content, axis=0, return_index=True, return_inverse=True)
        assert found is not None
        assert found.first.tolist() == np.sort(first).tolist()
        assert (found.first[found.group] == first[group.ravel()]).all()
        total = np.ones(n) if given is None else given
        assert found.weights(given).tolist() == [total[found.group == g].sum() for g in range(len(found.first))]


def test_merged_rows_have_the_same_products() -> None:
    X, targets = one_hot(2 * SPAN + 100, 12, 0)
    rows = rows_of(X)
    found = equal_samples(rows, targets, None)
    assert found is not None
    merged, weights = found.rows(rows), found.weights(None)
    assert merged.n_samples == len(found.first) < 200
    W, f, few = np.random.default_rng(0).normal(size=(2, 12)), np.empty((2, len(X))), np.empty((2, len(found.first)))
    rows.project(W, f)
    merged.project(W, few)
    assert np.array_equal(few, f[:, found.first])
    every = [
        one.normalised(one.moments(np.ones(one.n_samples, np.int8), w)) for one, w in ((rows, None), (merged, weights))
    ]
    for mine, others in zip(*every, strict=True):
        np.testing.assert_allclose(others, mine, atol=1e-9)


def test_samples_are_not_merged_unless_few_differ_and_all_values_are_0_or_1() -> None:
    X, targets = one_hot(1000, 12, 0)
    assert equal_samples(rows_of(X), targets, None) is not None
    assert equal_samples(rows_of(2.0 * X), targets, None) is None
    assert equal_samples(rows_of(np.column_stack([X, X[:, 0] == 0])), targets, None) is None  # a dense row
    assert equal_samples(rows_of(X), 0.5 * targets, None) is None
    rng = np.random.default_rng(0)
    assert equal_samples(rows_of((rng.random((1000, 60)) < 0.2).astype(float)), targets, None) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("search", [None, SquaredLoss()])
def test_the_choice_is_the_one_over_all_samples(
    weighted: bool, search: SquaredLoss | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, targets = one_hot(5000, 20, 1)
    weights = np.random.default_rng(1).integers(0, 3, 5000).astype(float) if weighted else None
    rows = rows_of(X[:, :12], weights)
    master = Master(targets, C, weights, *([search] if search else []))
    master.add_cut(np.arange(12), sp.csr_array(X[:, :12].T), rows._shifts / rows._scales, 1.0 / rows._scales)
    solution = master.solve_union()
    start = Start(solution.weights, solution.intercept, master.grams)
    others = as_rows(sp.csr_array(X[:, 12:]))
    found = [choose(master.rows, targets, C, 5, others, correlation_limit(0.25), weights, start=start)]
    monkeypatch.setattr(svm, "equal_samples", lambda *args: None)
    found.append(choose(master.rows, targets, C, 5, others, correlation_limit(0.25), weights, start=start))
    (chosen, coef), (expected, its_coef) = found
    assert chosen.tolist() == expected.tolist()
    np.testing.assert_allclose(coef, its_coef, rtol=1e-8, atol=1e-10)


def test_a_machine_for_several_outputs_looks_at_few_samples() -> None:
    X, targets = one_hot(5000, 12, 2)
    machine = LocalMachine(rows_of(X), targets, C)
    machine.solve(np.arange(12))
    assert machine.total_weight == 5000.0
    assert all(part._newton.A.shape[1] < 150 for part in machine.parts)
    assert all(part._newton.targets.flags.c_contiguous for part in machine.parts)  # others have kernels of their own
