"""A linear machine on small subsets of features: problem (3) with an intercept, for any loss and number of outputs.

    F(S) = min over W, b of  1/2 ||W||^2 + C sum_i w_i sum_k l(y_ik, W_k . z_i + b_k)     on the features S.

This is the master problem with a single cut that holds all of S, and is solved as such.

While the active samples stay the same, F is quadratic in the weights. A removal or an exchange of features then changes
the inverse Hessian, and all that follows from it, by products of two vectors.

On the chosen supports alone, the same machine is the refit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotri
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC

from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.master.equal_samples import EqualSamples, equal_samples
from gdm_dask.master.losses import Loss
from gdm_dask.master.newton import ActiveGram, Newton, Point, pulls
from gdm_dask.master.problem import SQUARED_HINGE
from gdm_dask.master.rows import Rows, in_parallel
from gdm_dask.system.blas import single_threaded_blas
from gdm_dask.system.jit import kernel

#: Gap at the level of rounding: the active samples decide when the minimum is reached.
EXACT = 1e-15

#: H (d, d) and g (K, d) of ``F = sum_k (1/2 W_k' H W_k - g_k' W_k) + const`` over the K outputs of a part, with b
#: eliminated.
Quadratic: TypeAlias = tuple[np.ndarray, np.ndarray]
#: W, b, F, and F as a function of the weights of all rows, if known.
Solution: TypeAlias = tuple[np.ndarray, np.ndarray, float, Quadratic | None]


class Start(NamedTuple):
    """Where to start from: weights (K, d) of all rows, intercepts (K,), and Gram matrices of any active samples."""

    W: np.ndarray
    b: np.ndarray
    grams: Sequence[ActiveGram] = ()

    def merged(self, rows: Rows, found: EqualSamples, weights: np.ndarray) -> Start:
        """Return the same start for merged samples."""
        return self._replace(grams=[gram.merged(rows, weights, found.first) for gram in self.grams])


class LocalMachine:
    """Solve (3) with an intercept on subsets of the rows; each solution starts from the previous one.

    Outputs with a Hessian of their own are solved apart: together, the slowest would set the pace.

    Parameters
    ----------
    rows : Rows
    targets : ndarray of shape (n_outputs, n_samples) or (n_samples,)
    C : float
    weights : ndarray of shape (n_samples,), optional
        Weights of the samples.
    loss : Loss
    start : Start, optional
        Where the first solution starts from, without features by default.
    others : Block, optional
        Raw rows that `extend` adds.

    Attributes
    ----------
    parts : list of Part
        Outputs that share a Hessian.
    W : ndarray of shape (n_outputs, d)
        Weights of all rows; zero for rows outside the subset.
    b : ndarray of shape (n_outputs,)
    value : float
        F of the subset.
    total_weight : float
        Sum of the sample weights; by default the number of samples.
    """

    def __init__(
        self,
        rows: Rows,
        targets: np.ndarray,
        C: float,
        weights: np.ndarray | None = None,
        loss: Loss = SQUARED_HINGE,
        start: Start | None = None,
        others: Block | None = None,
    ) -> None:
        self.total_weight = float(rows.n_samples if weights is None else np.add.reduce(weights))
        targets = np.atleast_2d(targets)
        self._every: Callable[[], Rows] = partial(_extended, rows, others)
        if len(targets) > 1 and not loss.one_gram:  # the threads are busy with the outputs
            rows = rows.in_one_range()
            every = _extended(rows, others)
            self._every = lambda: every
            if (found := equal_samples(every, targets, weights)) is not None:
                every = found.rows(every)
                rows, targets = every.subset(np.arange(rows.n_rows)), np.take(targets, found.first, axis=1)
                weights = found.weights(weights)
                start = start and start.merged(rows, found, weights)
        self._rows, self._weights = rows, weights
        shared = [targets] if loss.one_gram else [*targets[:, None]]
        self.parts = in_parallel(lambda some: Part(self._rows, some, C, weights, loss), shared)
        self._gather()
        self._without_features = self.value
        if start is not None:
            starts = zip(self.parts, np.split(start.W, len(shared)), np.split(start.b, len(shared)), strict=True)
            for number, (part, W, b) in enumerate(starts):
                part.start(W, b, start.grams[number % len(start.grams)] if start.grams else None)

    @property
    def explained(self) -> float:
        """G of the subset: the amount by which it lowers F."""
        return self._without_features - self.value

    def solve(self, chosen: np.ndarray, tol: float = EXACT, weights: Sequence[np.ndarray] | None = None) -> None:
        """Run Newton's method on the subset `chosen`, given by increasing positions, until the gap is at most `tol`.

        Start from the previous solution, or from other weights of the subset, one array for each part.
        """
        rows = self._rows.subset(chosen)
        starts = [part.W[:, chosen] for part in self.parts] if weights is None else weights
        in_parallel(lambda part, start: part.solve(rows, chosen, tol, start), self.parts, starts)
        self._gather()

    def _gather(self) -> None:
        self.W, self.b = (np.concatenate([getattr(part, name) for part in self.parts]) for name in "Wb")
        self.value = sum(part.value for part in self.parts)

    def solution(self) -> list[Solution]:
        """Return the solution of the subset, to come back to."""
        return [part.solution for part in self.parts]

    def restore(self, solution: list[Solution]) -> None:
        """Come back to an earlier solution, whose `quadratics` are known."""
        for part, its_solution in zip(self.parts, solution, strict=True):
            part.solution = its_solution
        self._gather()

    def subset_quadratics(self) -> list[Quadratic]:
        """F of each part as a function of the weights of the subset, for its active samples."""
        return in_parallel(Part.subset_quadratic, self.parts)

    def quadratics(self) -> list[Quadratic]:
        """F of each part as a function of the weights of all rows, for the active samples of the subset."""
        return in_parallel(Part.quadratic, self.parts)

    def extend(self) -> None:
        """Add the other rows; the solution does not change."""
        n_known, self._rows = self._rows.n_rows, self._every()
        for part in self.parts:
            part.extend(self._rows, n_known)
        self._gather()
        self.__dict__.pop("correlations", None)  # computed for fewer rows

    @cached_property
    def correlations(self) -> np.ndarray:
        """``|rho|`` of the rows, 0 on the diagonal, from the Gram matrix of normalised rows over all samples."""
        gram, _ = self._rows.normalised(self._rows.moments(np.ones(self._rows.n_samples, np.int8), self._weights))
        np.fill_diagonal(gram, 0.0)
        absolute: np.ndarray = np.abs(gram)
        return absolute


class Part:
    """The outputs of a `LocalMachine` that share a Hessian.

    Attributes
    ----------
    W, b : ndarray of shape (n_outputs, d) and (n_outputs,)
    value : float
        F of the subset.
    """

    def __init__(
        self, rows: Rows, targets: np.ndarray, C: float, weights: np.ndarray | None, loss: Loss
    ) -> None:  # fmt: skip
        self._rows, self._C = rows, C
        self._newton = Newton(rows, targets, weights, loss, intercept=True)
        self._gram, self._chosen = self._newton.grams[0], np.zeros(0, np.int64)
        self._newton.place_without_features(C)
        self.solution = self._newton.point.W, self._newton.point.b, self._newton.value, None

    @property
    def solution(self) -> Solution:
        """The solution of the subset."""
        return self.W, self.b, self.value, self._quadratic

    @solution.setter
    def solution(self, solution: Solution) -> None:
        self.W, self.b, self.value, self._quadratic = solution

    def start(self, W: np.ndarray, b: np.ndarray, gram: ActiveGram | None) -> None:
        """Start the next solution from these weights and intercepts."""
        self.W, self.b = W, b
        if gram is not None:
            self._gram = gram.subset(self._rows, np.arange(self._rows.n_rows))

    def solve(self, rows: Rows, chosen: np.ndarray, tol: float, start: np.ndarray) -> None:
        """Run Newton's method on the subset `chosen` with these rows, from these weights."""
        newton, gram, places = self._newton, self._gram, chosen
        if np.isin(chosen, self._chosen).all():  # fewer samples have changed since the last subset
            gram, places = newton.grams[0], np.searchsorted(self._chosen, chosen)
        newton.rows, newton.grams = rows, [gram.subset(rows, places)]
        newton.solve(np.ones((len(chosen), 1)), Point(start, self.b, np.ones(1)), self._C, tol)
        if len(chosen) == self._rows.n_rows:
            self._gram = newton.grams[0]
        W = np.zeros_like(self.W)
        W[:, chosen], b, _ = newton.point
        self._chosen = chosen
        self.solution = W, b, newton.value, None

    def subset_quadratic(self) -> Quadratic:
        """F as a function of the weights of the subset, for its active samples."""
        _, model, _ = self._newton.model()
        return _hessian(model.covariances[0], self._C), model.pull

    def quadratic(self) -> Quadratic:
        """F as a function of the weights of all rows, for the active samples of the subset."""
        if self._quadratic is None:
            ((covariance, _),) = self._newton.bring_up([self._gram])[1]
            c = self._rows.scores(self._newton.A)
            pull = pulls(c, [covariance] * len(c), self.W, self._C)
            self._quadratic = _hessian(covariance, self._C), pull
        return self._quadratic

    def extend(self, rows: Rows, n_known: int) -> None:
        """Add further rows to the first `n_known`; the solution does not change."""
        self._gram = self._gram.subset(rows, np.arange(n_known))
        self._rows = rows
        W = np.pad(self.W, ((0, 0), (0, rows.n_rows - n_known)))
        self.solution = W, self.b, self.value, None


def _extended(rows: Rows, others: Block | None) -> Rows:
    """Return the rows with others after them."""
    if others is None:
        return rows
    rows = rows.copy()
    rows.append(others.matrix(), others.means, others.norms)
    return rows


def _hessian(covariance: np.ndarray, C: float) -> np.ndarray:
    hessian = C * covariance
    hessian.flat[:: len(hessian) + 1] += 1.0
    return hessian


def inverse_of(hessian: np.ndarray) -> np.ndarray:
    """Invert a symmetric positive definite matrix."""
    factor, failed = dpotrf(hessian.T)
    inverse, _ = dpotri(factor)
    if failed:
        raise BadInput("a Hessian is singular to machine precision: pass a smaller `C`, or smaller sample weights")
    whole: np.ndarray = inverse.T  # in memory row by row; its lower triangle is filled
    _mirror(whole)
    return whole


class Exchange:
    """Exchanges of features for fixed active samples, for outputs that share a Hessian H.

    Parameters
    ----------
    hessian : ndarray of shape (d, d)
    gradients : ndarray of shape (K, d)
    chosen : ndarray of shape (k,)
        The features S.

    Attributes
    ----------
    weights : ndarray of shape (K, k)
        Weights that minimise F on S.
    """

    def __init__(self, hessian: np.ndarray, gradients: np.ndarray, chosen: np.ndarray) -> None:
        across = hessian[chosen]
        self._hessian, self._chosen = hessian, chosen.copy()
        self._inverse = inverse_of(across[:, chosen])  # of H_SS
        self._mixed = self._inverse @ across
        self._schur = np.diag(hessian) - np.einsum("ij,ij->j", across, self._mixed)
        self.weights = gradients[:, chosen] @ self._inverse
        self._residuals = gradients - self.weights @ across

    def add_gains(self, gain: np.ndarray) -> None:
        """Add the decrease of F when any feature replaces any chosen one, (k, d); undefined for chosen ones."""
        _add_gains(self._mixed, np.diag(self._inverse).copy(), self._schur, self.weights, self._residuals, gain)

    def swap(self, gone: int, comes: int) -> None:
        """Replace the chosen feature at a position: a step of rank one removes it, another one adds the new feature."""
        spread = self._inverse[gone, gone]
        self._update(self._inverse[gone].copy(), self._mixed[gone].copy(), self.weights[:, gone].copy(), -spread)
        column = self._mixed[:, comes].copy()
        column[gone] = 0.0
        row = self._hessian[comes] - column @ self._hessian[self._chosen]
        column[gone] = -1.0
        self._chosen[gone] = comes
        self._update(column, row, self._residuals[:, comes].copy(), self._schur[comes])

    def _update(self, column: np.ndarray, row: np.ndarray, pull: np.ndarray, pivot: float) -> None:
        """Remove a feature, with a negative pivot, or add one."""
        _subtract_outer(self._inverse, column / -pivot, column)
        self._schur -= row**2 / pivot
        _subtract_outer(self._residuals, pull / pivot, row)
        column /= abs(pivot)
        _subtract_outer(self._mixed, column, row)
        _subtract_outer(self.weights, pull, column)


@kernel
def _mirror(matrix):  # type: ignore[no-untyped-def]
    """Copy the lower triangle to the upper one."""
    for i in range(len(matrix)):
        for j in range(i):
            matrix[j, i] = matrix[i, j]


@kernel
def _subtract_outer(matrix, left, right):  # type: ignore[no-untyped-def]
    """Subtract the products of two vectors in place."""
    for i in range(len(left)):
        for j in range(len(right)):
            matrix[i, j] -= left[i] * right[j]


@kernel
def _add_gains(mixed, spread, schur, weights, residuals, gain):  # type: ignore[no-untyped-def]
    """Add the gain of F from adding feature j after removing the chosen i, minus the loss from removing it."""
    for k in range(len(weights)):
        for i in range(len(spread)):
            step, loss = weights[k, i] / spread[i], weights[k, i] ** 2 / spread[i]
            for j in range(len(schur)):
                slope = residuals[k, j] + mixed[i, j] * step
                gain[i, j] += 0.5 * (slope * slope / (schur[j] + mixed[i, j] * mixed[i, j] / spread[i]) - loss)


#: C of the refit, for columns of unit variance, as defined by scikit-learn's LinearSVC; and the alpha of Ridge.
REFIT_C, REFIT_RIDGE = 1.0, 1.0
INTERCEPT_SCALING = 100.0  # makes the penalty of the iterative solution's intercept negligible
#: Beyond this many features, the direct solution (cost cubic in their number) is slower than an iterative one.
MAX_DIRECT = 2500
#: Columns with a smaller share of nonzeros are scaled but not centred by the iterative solution, so that they stay
#: sparse.
SPARSE_DENSITY = 0.2


def refit(
    rows: Block,
    targets: np.ndarray,
    loss: Loss = SQUARED_HINGE,
    most_C: float = np.inf,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a linear machine on raw support rows, standardised: an SVM for each output, or ridge regression.

    Without a limit on C, this is scikit-learn's ``LinearSVC(dual=False)`` or ``Ridge(1.0)``, except that the intercept
    is not penalised and the minimum is exact: for few features that correlate, a direct solution is many times faster
    than an iterative one. Very many features are left to scikit-learn.

    Parameters
    ----------
    rows : Block
        Raw rows of the k supports, none constant, with the sample weights if there are any.
    targets : ndarray of shape (n_outputs, n_samples)
        -1 or +1 for the squared hinge loss.
    loss : Loss
        The squared hinge or the squared loss.
    most_C : float
        Upper limit of C, for features of unit norm; the paper judges selections without one.
    start : ndarray of shape (n_outputs, k), optional
        Weights of the normalised rows that a direct solution starts from.

    Returns
    -------
    coef : ndarray of shape (n_outputs, k)
        Coefficients in raw units.
    intercept : ndarray of shape (n_outputs,)
    """
    # A feature of unit norm is sqrt(n) times smaller than one of unit variance, and (3) halves the sum of the losses.
    C = min(most_C, rows.total_weight * (1.0 / REFIT_RIDGE if loss.one_gram else 2.0 * REFIT_C))
    with single_threaded_blas():
        if rows.n_rows > MAX_DIRECT:
            return _iterative(rows, targets, loss, C)
        normalised = Rows(rows.n_samples)
        normalised.append(rows.matrix(), rows.means, rows.norms)
        begin = None if start is None else Start(start, np.zeros(len(start)))
        machine = LocalMachine(normalised, targets, C, rows.weights, loss, begin)
        machine.solve(np.arange(rows.n_rows))
        coef = machine.W / rows.norms
        return coef, machine.b - coef @ rows.means


def _iterative(rows: Block, targets: np.ndarray, loss: Loss, C: float) -> tuple[np.ndarray, np.ndarray]:
    """Refit with scikit-learn; the intercept absorbs the means of columns that are not centred."""
    deviations = rows.norms / np.sqrt(rows.total_weight)
    matrix = rows.to_scipy()
    if rows.is_sparse and matrix.nnz < SPARSE_DENSITY * rows.n_rows * rows.n_samples:
        columns = sp.csr_array(matrix.T.astype(np.float64).multiply(1.0 / deviations))
        centres = np.zeros(rows.n_rows)
    else:
        columns = np.ascontiguousarray(((matrix.toarray() - rows.means[:, None]) / deviations[:, None]).T)
        centres = rows.means
    if loss.one_gram:
        solver = Ridge(rows.total_weight / C, solver="sparse_cg", tol=1e-8)
    else:
        C_of_columns = 0.5 * C / rows.total_weight
        solver = LinearSVC(C=C_of_columns, dual=False, intercept_scaling=INTERCEPT_SCALING, max_iter=10_000, tol=1e-6)
    machines = [clone(solver).fit(columns, y, rows.weights) for y in targets]
    coef = np.array([np.ravel(machine.coef_) for machine in machines]) / deviations
    intercepts = np.array([float(np.ravel(machine.intercept_)[0]) for machine in machines])
    return coef, intercepts - coef @ centres
