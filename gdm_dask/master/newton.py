"""Newton's method for the master problem in form P, in the weights of the features.

    P = min over W_t, b of  1/2 (sum_t ||W_t||_F)^2 + C sum_i w_i sum_k l(y_ik, f_ik + b_k),     f = sum_t W_t Z_t

The intercepts b for given W are found by passing over f. The corresponding duals A = C w R, with R = -dl/df, bound P
from below. The loss is piecewise quadratic; each piece corresponds to a set of active samples, the samples with A_ik !=
0. A step minimises P with the current piece extended everywhere, which eliminates the samples from the problem (see
`cuts_qp`). So the samples are passed over only a few times: for f and the scores of every step, and for the samples
that enter or leave the Gram matrix of the active samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gdm_dask.master.cuts_qp import Model, solve_model
from gdm_dask.master.losses import Loss, Sums, find_intercept
from gdm_dask.master.rows import Moments, Rows, in_parallel
from gdm_dask.system.scratch import page_aligned

MAX_STEPS = 500
LOOSE = 0.01
"""Gap to which the problem for a smaller C is solved."""
STRIDE, SHORTEST_STRIDE = 10.0, 1.01
"""Factors from one C to the next."""
ROUNDING = 1e-13
"""A relative rise of P up to this is a rounding error."""
CLOSED = 1e-12
"""A gap up to this is accepted if full steps do not reduce it: nothing else would."""


class Point(NamedTuple):
    """Weights of the features (K, d), intercepts (K,), and weights of the cuts (T,) on the simplex.

    A feature has weight zero unless a cut with a nonzero weight holds it.
    """

    W: np.ndarray
    b: np.ndarray
    mu: np.ndarray

    def towards(self, other: Point) -> Point:
        """Return the point halfway to another one."""
        return Point(*(0.5 * (mine + theirs) for mine, theirs in zip(self, other, strict=True)))


class Newton:
    """Iterates of a master problem, and the buffers they share.

    Parameters
    ----------
    rows : Rows
        The d unique features.
    targets : (K, n) array
    weights : (n,) array or None
        Sample weights.
    loss : Loss
    intercept : bool

    Attributes
    ----------
    grams : list of ActiveGram
        One for each output, or one for all.
    point : Point
    A : (K, n) array
        Duals at `point`.
    c : (K, d) array
        Scores A Z'.
    value : float
        P at `point`.
    linear, quadratic : float
        Parts of the dual value s linear - s^2 (quadratic + q/2) of s A, where q is the largest q_t.
    lower, upper, gap : float
        Bounds on theta = 1/(4P) from `value` and from A, and their distance relative to `upper`.
    n_steps : int
        Newton steps.
    """

    def __init__(
        self, rows: Rows, targets: np.ndarray, weights: np.ndarray | None, loss: Loss, intercept: bool
    ) -> None:
        self.rows, self.targets, self.weights, self.loss, self.intercept = rows, targets, weights, loss, intercept
        self.grams = [ActiveGram(rows, weights) for _ in range(1 if loss.one_gram else len(targets))]
        self._f, self._trial, self.A = (vectors(*targets.shape) for _ in range(3))

    def place_without_features(self, C: float) -> None:
        """Start from W = 0 with the best intercepts."""
        self.members = np.ones((self.rows.n_rows, 1))
        zeros = np.zeros(len(self.targets))
        self._place(Point(np.zeros((zeros.size, self.rows.n_rows)), zeros, np.ones(1)), C)

    def solve(self, members: np.ndarray, point: Point, C: float, tol: float) -> None:
        """Iterate from a point until the gap is at most `tol`, or as far as rounding permits.

        If full steps fail, as they may for a large C and few active samples, C is approached from below.

        Parameters
        ----------
        members : (d, T) array
            1 where cut t holds feature j, 0 elsewhere.
        point : Point
        C, tol : float
        """
        self.members = members
        self.n_steps = 0
        if self._iterate(point, C, tol) or self.gap <= CLOSED:
            return
        stalled = self.gap, self.point
        if self._approach(point, C, tol) or self.gap <= stalled[0]:
            return
        self._place(stalled[1], C)

    def _approach(self, point: Point, C: float, tol: float) -> bool:
        """Solve for a smaller C first, then for larger ones, with shorter strides if they fail.

        For a small C all samples are active and one step suffices; from there, the active samples change little at a
        time, and the active samples of one C predict the solution for the next.
        """
        smaller = C / STRIDE
        while not self._iterate(point, smaller, LOOSE) and self.n_steps < MAX_STEPS:
            smaller /= STRIDE
        stride = STRIDE
        while stride > SHORTEST_STRIDE and self.n_steps < MAX_STEPS:
            reached = self.point, self.C
            C_next = min(C, stride * self.C)
            if self._iterate(self._predict(C_next), C_next, tol if C_next == C else LOOSE):
                if C_next == C:
                    return True
                stride = min(STRIDE, stride**2)
            else:
                stride **= 0.5
                self._place(*reached)
        return self._iterate(self.point, C, tol, shortest=0.0)

    def _iterate(self, point: Point, C: float, tol: float, shortest: float = 0.1) -> bool:
        """Take Newton steps until the gap is at most `tol`, or a step would have to be shorter than allowed."""
        self._place(point, C)
        while self.gap > tol:
            if self.n_steps >= MAX_STEPS or not self._step(tol, shortest):
                return self._is_exact
        return True

    def _place(self, point: Point, C: float) -> None:
        """Start from a given point."""
        self.C, self._is_exact = C, False
        self.rows.project(point.W, self._f)
        self.point, self._sums, self.value = self._evaluate(point, self._f)
        self._certify()

    def _evaluate(self, point: Point, f: np.ndarray) -> tuple[Point, list[Sums], float]:
        """Find the best intercepts; return the point with them, the sums of each output, and P."""
        b, found = zip(*in_parallel(self._find_intercept, self.targets, f, point.b.tolist()), strict=True)
        loss = 0.5 * self.C * sum(output.squares for output in found)
        point = point._replace(b=np.array(b))
        return point, list(found), loss + 0.5 * sum_of_norms(point.W, point.mu, self.members) ** 2

    def _find_intercept(self, y: np.ndarray, f: np.ndarray, b: float) -> tuple[float, Sums]:
        """Return the best intercept of an output, searched from `b`, and its sums."""

        def sums(b: float) -> Sums:
            def part(begin: int, end: int) -> Sums:
                return self.loss.sums(y[begin:end], f[begin:end], b, self._weights_of(begin, end))

            return Sums(*map(sum, zip(*self.rows.over_ranges(part), strict=True)))

        return find_intercept(sums, b) if self.intercept else (b, sums(0.0))

    def _weights_of(self, begin: int, end: int) -> np.ndarray | None:
        return None if self.weights is None else self.weights[begin:end]

    def _certify(self) -> None:
        """Compute the duals, their scores, and the bounds."""
        self.linear = self.quadratic = 0.0
        for linear, squares in in_parallel(self._fill, range(len(self.A)), self._sums):
            self.linear += linear
            self.quadratic += squares / (2.0 * self.C)
        self.c = self.rows.scores(self.A)
        q = float((self.c**2 @ self.members).sum(axis=0).max(initial=0.0))
        self.upper = upper_bound(self.linear, self.quadratic, q)
        self.lower = 0.25 / self.value if self.value > 0 else np.inf
        self.gap = (self.upper - self.lower) / self.upper if self.upper < np.inf else 1.0

    def _factors(self, sums: Sums) -> tuple[float, float]:
        """Factors for positive and negative duals that make the duals of an output with an intercept sum to zero."""
        if not self.intercept:
            return self.C, self.C
        smaller = min(sums.rising, sums.falling)
        return tuple(self.C * smaller / side if side > 0 else self.C for side in (sums.rising, sums.falling))  # type: ignore[return-value]

    def _fill(self, k: int, sums: Sums) -> tuple[float, float]:
        """Write the duals of an output; return their linear part and their square."""
        y, f, b, a = self.targets[k], self._f[k], float(self.point.b[k]), self.A[k]
        rise, fall = self._factors(sums)

        def part(begin: int, end: int) -> tuple[float, float]:
            w = self._weights_of(begin, end)
            return self.loss.fill(y[begin:end], f[begin:end], b, w, rise, fall, a[begin:end])

        linear, squares = map(sum, zip(*self.rows.over_ranges(part), strict=True))
        return linear, squares

    def _step(self, tol: float, shortest: float) -> bool:
        """Take one Newton step; return False if it brings nothing or would have to be shorter than allowed.

        A full step is exact if no sample enters or leaves, unless a residual has crossed an insensitive zone: the gap
        tells.
        """
        n_changed, model, means = self.model()
        if self._is_exact and not n_changed and self.gap <= CLOSED:
            return False
        self._is_exact = False
        trial = self._solve_model(model, means, self._accuracy(tol) * self.value)
        self.rows.project(trial.W, self._trial)
        gap, step = self.gap, 1.0
        while True:
            trial, sums, value = self._evaluate(trial, self._trial)
            if value <= self.value * (1.0 + ROUNDING):
                break
            step *= 0.5
            if step < max(shortest, 1e-12):
                return False
            trial = self.point.towards(trial)
            self._trial += self._f
            self._trial *= 0.5
        falls = value < self.value * (1.0 - ROUNDING)
        self._f, self._trial = self._trial, self._f
        self.point, self._sums, self.value = trial, sums, value
        self._certify()
        self.n_steps += 1
        self._is_exact = step == 1.0 and trial.mu.size == 1
        return falls or self.gap < gap

    def _accuracy(self, tol: float) -> float:
        """Relative accuracy, as a part of P, to which a model is solved."""
        is_cheap = self.rows.n_samples < self.rows.n_rows**2  # a pass is cheaper than a quadratic programme
        if is_cheap and not self.loss.one_gram:  # with a single piece, the model is the problem itself
            return max(0.1 * tol, 0.1 * self.gap * min(self.gap, 1.0))
        return 0.1 * tol

    def model(self) -> tuple[int, Model, list[np.ndarray]]:
        """Update the Gram matrices to the active samples; return the number of changes, the model and the means."""
        n_changed, found = self.bring_up(self.grams)
        covariances, means = map(list, zip(*found * (len(self.A) // len(found)), strict=True))
        pull = pulls(self.c, covariances, self.point.W, self.C)
        return n_changed, Model(self.members, covariances, pull, self.C), means

    def bring_up(self, grams: list[ActiveGram]) -> tuple[int, list[tuple[np.ndarray, np.ndarray]]]:
        """Update Gram matrices to the active samples; return the number of changes, the covariances and the means."""
        active = [np.ones(self.rows.n_samples)] if self.loss.one_gram else self.A
        n_changed = sum(gram.update(a) for gram, a in zip(grams, active, strict=True))
        return n_changed, [gram.covariance(self.intercept) for gram in grams]

    def _solve_model(self, model: Model, means: list[np.ndarray], tol: float) -> Point:
        """Return the best point for fixed active samples."""
        W, mu = solve_model(model, self.point.mu, tol)
        return Point(W, self.point.b - ((W - self.point.W) * np.array(means)).sum(axis=1), mu)

    def _predict(self, C: float) -> Point:
        """Return the best point for another C and fixed active samples."""
        _, model, means = self.model()
        larger = C / self.C
        model = Model(self.members, model.covariances, larger * model.pull, C)
        return self._solve_model(model, means, LOOSE**2 * larger * self.value)


class ActiveGram:
    """Second moments of rows over the active samples of one output.

    New rows add their products over the current active samples; samples that enter or leave add or subtract theirs.
    Once as many have changed as are active, everything is summed again: this costs no more and stops the drift of
    rounding.

    Parameters
    ----------
    rows : Rows
    weights : (n,) array or None
        Sample weights.
    """

    def __init__(self, rows: Rows, weights: np.ndarray | None) -> None:
        self._rows, self._weights = rows, weights
        self._active = np.zeros(rows.n_samples, np.int8)
        self._moments = Moments.zeros(0)
        self._turnover = 0

    def subset(self, rows: Rows, chosen: np.ndarray) -> ActiveGram:
        """Return the moments for some of the rows, given by increasing positions."""
        part = ActiveGram(rows, self._weights)
        if self._moments.sums.size == self._rows.n_rows:
            part._active[:] = self._active
            part._moments, part._turnover = self._moments.subset(chosen), self._turnover
        return part

    def merged(self, rows: Rows, weights: np.ndarray, first: np.ndarray) -> ActiveGram:
        """Return the moments for merged samples: the first ones of groups that are active or not as a whole."""
        part = ActiveGram(rows, weights)
        part._active[:] = self._active[first]
        part._moments, part._turnover = self._moments, self._turnover * len(first) // len(self._active)
        return part

    def update(self, duals: np.ndarray) -> int:
        """Make the samples with nonzero duals active; return how many enter or leave."""
        rows, known, active = self._rows, self._moments.sums.size, self._active
        change = np.empty_like(active)

        def compare(begin: int, end: int) -> tuple[int, int]:
            part = slice(begin, end)
            now = duals[part] != 0.0
            np.subtract(now.view(np.int8), active[part], out=change[part])
            return int(np.count_nonzero(now)), int(np.count_nonzero(change[part]))

        n_active, n_changed = map(sum, zip(*rows.over_ranges(compare), strict=True))
        self._turnover += n_changed
        is_anew = not known or self._turnover >= n_active
        if known < rows.n_rows and not is_anew:
            self._moments = self._moments.padded(rows.n_rows)
            new = rows.moments(active, self._weights, known)
            new.count = 0.0
            self._moments.add(new)
        active += change
        if is_anew:
            self._moments, self._turnover = rows.moments(active, self._weights), 0
        elif n_changed:
            self._moments.add(rows.moments(change, self._weights))
        return n_changed

    def covariance(self, centred: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of w (z - mean)(z - mean)' over the active samples, and the mean (zero if not `centred`)."""
        gram, sums = self._rows.normalised(self._moments, centred)
        mean = sums / self._moments.count if centred and self._moments.count > 0 else np.zeros_like(sums)
        # Rounding must not make it indefinite; for any matrix, a fixed point of the step is a solution.
        gram.flat[:: mean.size + 1] += 1e-15 * np.trace(gram)
        return gram, mean

    def state(self) -> dict[str, np.ndarray]:
        """Return everything the next update starts from."""
        moments = self._moments
        counts = np.array([moments.count, self._turnover])
        return {"gram": moments.gram, "sums": moments.sums, "counts": counts, "active": np.packbits(self._active)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a state."""
        known = min(state["sums"].size, self._rows.n_rows)
        for name, shape in {"gram": (known, known), "sums": (known,), "counts": (2,)}.items():
            check_state(name, state[name], shape)
        check_state("active", state["active"], (-(-self._active.size // 8),), np.uint8)
        count, turnover = state["counts"].tolist()
        self._moments, self._turnover = Moments(state["gram"].copy(), state["sums"].copy(), count), int(turnover)
        self._active[:] = np.unpackbits(state["active"], count=self._active.size)


def check_state(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: Any = np.float64) -> None:
    """Refuse an array of a saved state that kernels would read beyond its end, or as another type."""
    if array.shape != shape or array.dtype != dtype or not np.isfinite(array).all():
        kind = np.dtype(dtype)
        raise ValueError(f"{name} must be finite {kind} of shape {shape}, got {array.dtype} of {array.shape}")


def vectors(n_outputs: int, n_samples: int) -> np.ndarray:
    """Allocate a vector over the samples for each output."""
    return page_aligned(8 * n_outputs * n_samples).view(np.float64).reshape(n_outputs, n_samples)


def pulls(c: np.ndarray, covariances: list[np.ndarray], W: np.ndarray, C: float) -> np.ndarray:
    """Return the scores (K, d) at W = 0 for fixed active samples."""
    images = [covariance @ w for covariance, w in zip(covariances, W, strict=True)]
    return c + C * np.array(images)


def upper_bound(linear: float, quadratic: float, q: float) -> float:
    """Return the bound on theta from duals: their best multiple bounds P from below."""
    return (quadratic + 0.5 * q) / linear**2 if linear > 0 else np.inf


def sum_of_norms(W: np.ndarray, mu: np.ndarray, members: np.ndarray) -> float:
    """Return sum_t ||W_t||_F for the split of W in which cut t gets mu_t / s_j^2 of feature j.

    W (K, d) is zero where no cut with mu_t > 0 holds the feature; `members` is (d, T).
    """
    shares = members @ mu
    ratios = np.divide(W, shares, out=np.zeros_like(W), where=shares > 0)
    return float(mu @ np.sqrt((ratios**2 @ members).sum(axis=0)))
