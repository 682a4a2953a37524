"""A new loss is one class: two of them, written here in numpy, against Clarabel."""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest
from helpers.master_instances import Instance, add, form_p_optimum, make, widen

from gdm_dask.master.losses import Loss, Sums
from gdm_dask.master.problem import Master


@dataclass(frozen=True)
class EpsilonInsensitive:
    """1/2 (|y - u| - epsilon)_+^2; the squared loss where epsilon is 0."""

    epsilon: float

    @property
    def one_gram(self) -> bool:
        return self.epsilon == 0

    def check(self, targets: np.ndarray) -> None:
        pass

    def _residual(self, y: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.sign(y - u) * np.maximum(np.abs(y - u) - self.epsilon, 0)

    def sums(self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None) -> Sums:
        R, w = self._residual(y, f + b), np.ones(y.size) if w is None else w
        curved = w.sum() if self.one_gram else w[R != 0].sum()
        return Sums(float(w @ np.maximum(R, 0)), float(w @ np.maximum(-R, 0)), float(w @ R**2), float(curved))

    def fill(
        self, y: np.ndarray, f: np.ndarray, b: float, w: np.ndarray | None, rise: float, fall: float, out: np.ndarray
    ) -> tuple[float, float]:
        R = self._residual(y, f + b)
        v = R * np.where(R > 0, rise, fall)
        out[:] = v if w is None else w * v
        return float(out @ y - self.epsilon * np.abs(out).sum()), float(out @ v)


def numbers(instance: Instance, seed: int) -> Instance:
    """The instance with numbers as targets."""
    rng, Z = np.random.default_rng(seed), instance.normalised()
    signal = rng.normal(size=(len(instance.targets), 6)) @ Z[:6]
    instance.y = 3.0 + signal / signal.std() + 0.5 * rng.normal(size=signal.shape)
    return instance


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("weights", ["none", "zeros"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [1.0, 500.0])
def test_agrees_with_clarabel(epsilon: float, n_outputs: int, weights: str, intercept: bool, C: float) -> None:
    instance = make("mixed", n=80, d=30, n_cuts=6, C=C, seed=3)
    instance = numbers(widen(instance, n_outputs, weights, intercept, seed=3), seed=3)
    loss: Loss = EpsilonInsensitive(epsilon)
    master = Master(instance.y, C, instance.weights, loss, intercept, tol=1e-10)
    order: list[int] = []
    for cut in instance.cuts:
        add(master, instance, cut, order)
        solution = master.solve()
    optimum = form_p_optimum(instance, lambda Y, f: cp.pos(cp.abs(Y - f) - epsilon))
    assert 0.25 / solution.upper <= optimum * (1 + 1e-9)
    assert 0.25 / solution.lower == pytest.approx(optimum, rel=1e-7)
    assert solution.gap <= 1e-10
    if epsilon == 0:
        assert solution.n_newton <= 2, "no sample enters or leaves"
