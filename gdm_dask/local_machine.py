"""A linear SVM with squared hinge loss on subsets of a few features: problem (3) with an intercept.

    F(S) = min over w, b of  1/2 ||w||^2 + C/2 sum_i (1 - y_i (w . z_i + b))_+^2     on the features S.

With the active samples fixed, those inside the margin, F is a quadratic function of w and b. Newton's method solves it,
finds the active samples anew, and ends at the exact minimum when they stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np

from gdm_dask.compiled import compiled
from gdm_dask.master_gram import BLOCK
from gdm_dask.master_rows import Rows
from gdm_dask.store.block import Block

MAX_NEWTON_STEPS = 100

#: H and g of ``F = 1/2 w'H w - g'w + const``, with b eliminated; and the best b as a function of w.
Quadratic: TypeAlias = tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], float]]


class LocalMachine:
    """Solves (3) with an intercept on subsets of the rows; each solution starts from the one before.

    Attributes
    ----------
    w : ndarray of shape (d,)
        Weights of all rows; zero for those that are not in the subset.
    b : float
    value : float
        F of the subset.
    chosen : SubsetMachine
        The machine on the subset alone.
    """

    chosen: SubsetMachine

    def __init__(self, rows: Rows, y: np.ndarray, C: float) -> None:
        self._rows, self._y, self._C = rows, y, C
        self.n_samples = rows.n_samples
        self.w = np.zeros(rows.n_rows)
        self.b = 0.0
        self.value = np.inf
        self._moments = ActiveMoments(rows, y)

    def solve(self, chosen: np.ndarray) -> None:
        """Newton's method on the subset `chosen`, given by increasing positions."""
        self.chosen = SubsetMachine(self._rows.subset(chosen), self._y, self._C, self.w[chosen], self.b)
        self.chosen.solve()
        self.w = np.zeros_like(self.w)
        self.w[chosen] = self.chosen.w
        self.b, self.value = self.chosen.b, self.chosen.value

    def quadratic(self) -> Quadratic:
        """F as a function of the weights of all rows, for the active samples of the subset."""
        self._moments.update(self.chosen.active)
        return self._moments.quadratic(self._C)

    def extended(self, others: Block, chosen: np.ndarray) -> LocalMachine:
        """The same machine with further rows, solved on the same subset."""
        rows = self._rows.copy()
        rows.append(others.matrix(), others.means, others.norms)
        machine = LocalMachine(rows, self._y, self._C)
        machine.w[: len(self.w)], machine.b = self.w, self.b
        machine.solve(chosen)
        return machine

    @cached_property
    def correlations(self) -> np.ndarray:
        """``|rho|`` of the rows, 0 on the diagonal: the Gram matrix of normalised rows over all samples has it."""
        gram, _ = self._rows.gram(np.ones(self.n_samples, np.int8), self._y)
        np.fill_diagonal(gram, 0.0)
        return np.abs(gram)

    @property
    def explained(self) -> float:
        """G of the subset: by how much it lowers F, which is known in closed form without features."""
        return 0.5 * self._C * len(self._y) * (1.0 - float(self._y.mean()) ** 2) - self.value


class ActiveMoments:
    """Second moments of rows over the active samples, kept up to date as these change."""

    def __init__(self, rows: Rows, y: np.ndarray) -> None:
        self._rows, self._y = rows, y
        self._active = np.zeros(rows.n_samples, bool)
        self._gram = np.zeros((rows.n_rows, rows.n_rows))
        self._signed = np.zeros(rows.n_rows)

    def update(self, active: np.ndarray) -> int:
        """Take these as the active samples; returns how many are new or gone."""
        change = np.subtract(active, self._active, dtype=np.int8)
        n_changed = int(np.count_nonzero(change))
        if n_changed:
            gram, signed = self._rows.gram(change, self._y)
            self._gram += gram
            self._signed += signed
            self._active[:] = active
        return n_changed

    def quadratic(self, C: float) -> Quadratic:
        """F as a function of the weights."""
        active = self._active.astype(np.float64)
        count, labels = max(1.0, float(active.sum())), float(active @ self._y)
        sums = self._rows.scores(active)
        hessian = self._gram - np.outer(sums, sums / count)
        hessian *= C
        hessian[np.diag_indices_from(hessian)] += 1.0
        gradient = C * (self._signed - sums * labels / count)
        return hessian, gradient, lambda w: (labels - float(sums @ w)) / count


class SubsetMachine:
    """Solves (3) with an intercept on all of its rows.

    Parameters
    ----------
    rows : Rows
    y : ndarray of shape (n_samples,)
    C : float
    w, b
        Where to begin.
    """

    def __init__(self, rows: Rows, y: np.ndarray, C: float, w: np.ndarray, b: float) -> None:
        self._rows, self._y, self._C = rows, y, C
        self.w, self.b = w, b
        self._projected = np.zeros(rows.n_samples)
        self.active = np.zeros(rows.n_samples, bool)
        self._moments = ActiveMoments(rows, y)
        self.value = self._evaluate(w, b)

    def solve(self) -> None:
        """Newton's method, until the active samples stay the same over a whole step."""
        step = 0.0
        for _ in range(MAX_NEWTON_STEPS):
            _find_active(self._projected, self._y, self.b, self.active)
            if not self._moments.update(self.active) and step == 1.0:
                return
            hessian, gradient, intercept = self.quadratic()
            w = np.linalg.solve(hessian, gradient)
            step = self._line_search(w, intercept(w))
            if step == 0.0:
                return

    def quadratic(self) -> Quadratic:
        """F as a function of the weights, for the active samples."""
        return self._moments.quadratic(self._C)

    def _evaluate(self, w: np.ndarray, b: float) -> float:
        """F at (w, b); sets the margins' projection."""
        self._rows.project(w, self._projected)
        return 0.5 * float(w @ w) + 0.5 * self._C * _squared_slack(self._projected, self._y, b)

    def _line_search(self, w: np.ndarray, b: float) -> float:
        """Go towards (w, b), halving the step until F falls; returns the step, or 0 where F hardly falls."""
        start_w, start_b, start = self.w, self.b, self.value
        step = 1.0
        while step > 1e-6:
            trial_w, trial_b = start_w + step * (w - start_w), start_b + step * (b - start_b)
            value = self._evaluate(trial_w, trial_b)
            if value < start:
                self.w, self.b, self.value = trial_w, trial_b, value
                return step if value < start * (1 - 1e-12) else 0.0
            step *= 0.5
        self._evaluate(start_w, start_b)
        return 0.0


@compiled
def _squared_slack(projected, y, b):  # type: ignore[no-untyped-def]
    """Sum of the squares of ``(1 - y (projected + b))_+``, block by block, so that no digit is lost to its length."""
    total = 0.0
    for begin in range(0, len(y), BLOCK):
        part = 0.0
        for i in range(begin, min(begin + BLOCK, len(y))):
            slack = max(1.0 - y[i] * (projected[i] + b), 0.0)
            part += slack * slack
        total += part
    return total


@compiled
def _find_active(projected, y, b, active):  # type: ignore[no-untyped-def]
    """Write which samples are inside the margin."""
    for i in range(len(y)):
        active[i] = y[i] * (projected[i] + b) < 1.0
