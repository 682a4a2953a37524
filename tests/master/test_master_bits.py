"""The master problem gives the same bits on any number of cores, and the same answer for all kinds of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.master_instances import add, alpha_of, assert_certified, feed, make, same_bits
from scipy import sparse
from threadpoolctl import threadpool_limits

from gdm_dask.master.problem import Master


@pytest.mark.parametrize("kind", ["mixed", "far from zero", "sparse"])
def test_same_input_same_bits(kind: str) -> None:
    instance = make(kind, n=300, d=30, n_cuts=8, C=100.0, seed=2)
    assert same_bits(feed(instance)[0].solve(), feed(instance)[0].solve())


@pytest.mark.parametrize("kind", ["mixed", "far from zero", "sparse", "binary"])
def test_a_restored_master_goes_on_to_the_same_bits(kind: str) -> None:
    instance = make(kind, n=300, d=30, n_cuts=8, C=100.0, seed=2)
    master, order = feed(instance, cuts=[])
    for cut in instance.cuts[:5]:
        add(master, instance, cut, order)
        master.solve()
    restored, restored_order = feed(instance, instance.cuts[:5])
    restored.restore(restored.state())  # before the first solution, which is as good a state to restore
    restored.restore({name: array.copy() for name, array in master.state().items()})
    assert restored.duals.tobytes() == master.duals.tobytes()
    assert restored.bound(2.0) == master.bound(2.0)
    add(master, instance, instance.cuts[5], order)
    add(restored, instance, instance.cuts[5], restored_order)
    assert same_bits(master.solve(), restored.solve())


def test_a_restored_master_with_many_samples_goes_on_to_the_same_bits() -> None:
    """Sums over the active samples are carried from cut to cut, and are part of the state."""
    rng, n, d, size = np.random.default_rng(3), 150_000, 36, 6
    X = sparse.random_array((d, n), density=0.02, format="csr", rng=rng)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    means = np.asarray(X.sum(axis=1)).ravel() / n
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel() - n * means**2)

    def grow(master: Master, numbers: range) -> None:
        for number in numbers:
            new = slice(number * size, (number + 1) * size)
            master.add_cut(np.arange(d)[new], X[new], means[new], norms[new])

    master, restored = Master(y, C=100.0), Master(y, C=100.0)
    for number in range(5):
        grow(master, range(number, number + 1))
        assert (master.solve().duals != 0).mean() > 0.5
    grow(restored, range(5))
    restored.restore(master.state())
    grow(master, range(5, 6))
    grow(restored, range(5, 6))
    assert same_bits(master.solve(), restored.solve())


def test_number_of_cores_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make("mixed", n=200_000, d=24, n_cuts=5, C=100.0, seed=4)
    solutions = []
    for n_cores in (1, 2, 5):
        monkeypatch.setattr("gdm_dask.master.rows.n_cores", lambda n_cores=n_cores: n_cores)
        with threadpool_limits(n_cores):
            master, order = feed(instance)
            assert len(master.rows._ranges) > 1
            solutions.append(master.solve())
    assert same_bits(solutions[0], solutions[1])
    assert same_bits(solutions[0], solutions[2])
    assert_certified(instance, solutions[0], order)


@pytest.mark.parametrize("kind", ["sparse", "mixed", "binary", "noise"])
def test_sparse_and_dense_rows_agree(kind: str) -> None:
    instance = make(kind, n=500, d=30, n_cuts=8, C=100.0, seed=6)
    dense = feed(instance, tol=1e-9)[0].solve()
    for form in (sparse.csr_array, sparse.csr_matrix, lambda X: sparse.csc_array(X).tocsr()):
        other = feed(instance, as_rows=form, tol=1e-9)[0].solve()
        np.testing.assert_allclose(alpha_of(other), alpha_of(dense), rtol=1e-9, atol=1e-12)


def test_centring_in_place_of_shifts_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make("sparse", n=500, d=30, n_cuts=8, C=100.0, seed=6)
    shifted = feed(instance, tol=1e-9)[0].solve()
    monkeypatch.setattr("gdm_dask.master.rows.DENSE_FROM", -1.0)
    centred = feed(instance, tol=1e-9)[0].solve()
    np.testing.assert_allclose(alpha_of(shifted), alpha_of(centred), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool_])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_types_of_values(dtype: type, form: Callable[[np.ndarray], Any]) -> None:
    binary = make("binary", n=400, d=20, n_cuts=6, C=100.0, seed=7)
    expected = feed(binary)[0].solve()
    solution = feed(binary, as_rows=lambda X: form(X.astype(dtype)))[0].solve()
    np.testing.assert_allclose(alpha_of(solution), alpha_of(expected), rtol=1e-12)


def test_float32_far_from_zero() -> None:
    instance = make("far from zero", n=1000, d=20, n_cuts=6, C=100.0, seed=8)
    instance.X = instance.X.astype(np.float32)
    master, order = feed(instance)
    assert_certified(instance, master.solve(), order)
