"""Choose the best k of many supports: the paper's problem (3), solved locally on the supports that entered.

The cutting plane adds features greedily and never removes one. So it runs until more supports than wanted have entered,
and the best are chosen here, on the driver, without reading the data again. With

    F(S) = min over W, b of  1/2 ||W||^2 + C sum_i sum_k l(y_ik, W_k . z_i + b_k)     on the features S,

which is (3) with an intercept, summed over the outputs k, with the squared hinge loss for classes,

1. *backward*: remove the supports whose removal raises F least, a few at a time, until k are left;
2. *swaps*: exchange a chosen support for another one as long as this lowers F;
3. *less redundancy*: continue with swaps as long as they lower

       REDUNDANCY_PRICE * log RED(S) - log G(S),     G(S) = F(no features) - F(S),

   and give up at most a budget of G in all (`redundancy_budget`). RED(S) is the mean of |rho| over the pairs of S, plus
   its expectation for independent features, so that nothing is gained below that.

Swaps may also bring in a feature that was passed over because it correlates with a support, in place of that support;
the chosen features are always pairwise uncorrelated. Included features are neither removed nor exchanged, and may
correlate with each other. While the active samples stay the same, the cost of a removal or a swap has a closed form
(see `svm`); the active samples are updated after each round.
"""

from __future__ import annotations

import warnings

import numpy as np

from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.svm import Exchange, LocalMachine, Start, inverse_of
from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block, stack
from gdm_dask.features.correlation import chance_correlation
from gdm_dask.features.measures import PEARSON
from gdm_dask.master.losses import Loss
from gdm_dask.master.problem import SQUARED_HINGE
from gdm_dask.master.rows import Rows, in_parallel
from gdm_dask.system.blas import single_threaded_blas

#: Relative gap to which F is known during the choice; the machine on the chosen features is exact.
CHOICE_TOL = 1e-9
#: Relative gap between backward rounds: removals start from the weights after one more Newton step.
BACKWARD_TOL = 1e-6
#: Part of the supports that may be removed in one backward round.
BACKWARD_PART = 0.1
MAX_SWAP_ROUNDS = 10
#: Minimum decrease of the cost that a swap must promise (SWAP_GAIN) and a round of swaps must bring (ROUND_GAIN).
SWAP_GAIN = 1e-4
ROUND_GAIN = 1e-5
#: A relative decrease x of the redundancy rate is worth a relative decrease of G by this number times x.
REDUNDANCY_PRICE = 0.06
#: Part of G that may be given up for less redundancy, for up to 50 features. For more features it shrinks with their
#: number, as the contribution of each feature does. Measured on training parts of mails and digits: about a fifth of
#: the redundancy of 50 or 100 features is removed for 0.05 to 0.2 % of accuracy.
REDUNDANCY_BUDGET = 0.006
BUDGET_FEATURES = 50
#: Maximum number of pool features that may replace supports, over all outputs with their own Hessian.
MAX_OTHERS = 6000
#: Replaces a G of 0, the gain of worthless features.
TINY = 1e-300


#: A weight below this part of the largest weight counts as zero.
NO_WEIGHT = 1e-8


def select(problem: Problem, k: int | None) -> tuple[np.ndarray, Block, np.ndarray]:
    """Return the supports to keep, strongest first, their raw rows, and their weights (n_outputs, k)."""
    solution, rows = problem.solution, problem.supports.rows
    if solution is None or rows is None:
        few = ", live on too few samples for a regression" if problem.task.name == "numbers" else ""
        raise BadInput(f"no feature is informative about y: all features are constant{few}, or their scores are 0")
    features = list(problem.supports.features)
    weights = solution.weights / np.abs(solution.duals).sum()  # the weights that belong to alpha
    if k is None:
        strengths = strengths_of(weights)
        has_weight = np.logical_or.reduceat(strengths > NO_WEIGHT * strengths.max(), problem.supports.starts)
        has_weight |= problem.supports.starts < problem.n_included
        chosen = problem.supports.expand(np.flatnonzero(has_weight))
        weights = weights[:, chosen]
    elif problem.supports.n_entered <= k:
        chosen = np.arange(len(features))
    else:
        master, limit, loss = problem.master, problem.supports.limit, problem.task.choice
        n_hessians = 1 if loss.one_gram else len(master.targets)
        others, other_rows = problem.pool.without(features, MAX_OTHERS // n_hessians)
        C = problem.settings.C_choice or problem.settings.C
        if other_rows is not None:
            features, rows = features + others, stack([rows, other_rows])
        measure = problem.supports.measure
        conflicts = None if measure is PEARSON else np.abs(measure.compare(rows, rows)) >= limit
        chosen, weights = choose(
            master.rows, master.targets, C, k, other_rows, limit, master.weights, loss, problem.n_included, conflicts,
            Start(solution.weights, solution.intercept, master.grams),
        )  # fmt: skip
    order = np.argsort(-strengths_of(weights), kind="stable")
    return np.array(features, np.int64)[chosen[order]], rows.rows(chosen[order]), weights[:, order]


def strengths_of(weights: np.ndarray) -> np.ndarray:
    """Norm over the outputs of weights of shape (n_outputs, k)."""
    strengths: np.ndarray = np.abs(weights[0]) if len(weights) == 1 else np.sqrt(np.add.reduce(weights * weights))
    return strengths


def warn_of_fewer(problem: Problem, k: int) -> None:
    """Warn if fewer supports were found than wanted."""
    n_found = problem.supports.n_entered
    if n_found < k:
        found = "1 support feature was" if n_found == 1 else f"{n_found} support features were"
        warnings.warn(
            f"{found} found, fewer than n_features_to_select={k}: {_why_fewer(problem)}",
            UserWarning,
            stacklevel=4,
        )


def _why_fewer(problem: Problem) -> str:
    settings = problem.settings
    if problem.stopped == "max_cuts":
        return f"the search ended after max_cuts={settings.max_cuts} cuts of up to {settings.cut_size}"
    others = "all others that may enter" if len(problem.supports.excluded) else "all others"
    if settings.tau == 0:
        return f"{others} are constant, or their scores are 0"
    return f"{others} are constant or correlate with one of them (|rho| >= {1 - settings.tau:g})"


def choose(
    supports: Rows,
    targets: np.ndarray,
    C: float,
    k: int,
    others: Block | None,
    limit: float,
    sample_weights: np.ndarray | None = None,
    loss: Loss = SQUARED_HINGE,
    n_included: int = 0,
    conflicts: np.ndarray | None = None,
    start: Start | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the best `k` of the given uncorrelated features, or features that replace them.

    Parameters
    ----------
    supports : Rows
        Uncorrelated features, implicitly normalised.
    targets : ndarray of shape (n_outputs, n_samples) or (n_samples,)
    C : float
        Trade-off, for features of unit norm.
    k : int
    others : Block or None
        Raw rows of further features, which may correlate with supports and with each other.
    limit : float
        ``|rho|`` from which two features correlate.
    sample_weights : ndarray of shape (n_samples,), optional
    loss : Loss
    n_included : int
        The first so many supports are always chosen; they may correlate with each other.
    conflicts : ndarray of bool, optional
        Which of the supports and, after them, the others correlate, by another measure than Pearson's.
    start : Start, optional
        Solution of a problem on all supports, to start from.

    Returns
    -------
    chosen : ndarray of shape (k,)
        Positions among the supports and, after them, the others; pairwise uncorrelated but for included ones.
    weights : ndarray of shape (n_outputs, k)
        Weights of the chosen features in the machine on them alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1.0, 1.0], 50)
    >>> X = rng.normal(size=(6, 100)); X[2] += y; X[4] -= y
    >>> rows = Rows(100)
    >>> rows.append(X, X.mean(axis=1), np.linalg.norm(X - X.mean(axis=1, keepdims=True), axis=1))
    >>> choose(rows, y, 30.0, 2, None, 0.75)[0].tolist()
    [2, 4]
    """
    with single_threaded_blas():
        machine = LocalMachine(supports, targets, C, sample_weights, loss, start, others)
        chosen = _backward(machine, np.arange(supports.n_rows), k, n_included)
        machine.extend()
        if conflicts is None:
            conflicts = machine.correlations >= limit
        chosen = _swap(machine, chosen, conflicts, 0.0, np.inf, n_included)
        most = machine.value + redundancy_budget(k) * machine.explained
        chosen = _swap(machine, chosen, conflicts, REDUNDANCY_PRICE, most, n_included)
        machine.solve(chosen)
        return chosen, machine.W[:, chosen]


def redundancy_budget(k: int) -> float:
    """Part of G that the choice of `k` features may give up for less redundancy."""
    return REDUNDANCY_BUDGET * min(1.0, BUDGET_FEATURES / k)


def _redundancy(machine: LocalMachine, chosen: np.ndarray) -> float:
    """Sum |rho| plus its expectation for independent features over the pairs of a subset (at least one pair)."""
    n_pairs = max(1, len(chosen) * (len(chosen) - 1) // 2)
    chance = chance_correlation(machine.total_weight)
    return n_pairs * chance + 0.5 * float(machine.correlations[np.ix_(chosen, chosen)].sum())


def _cost(machine: LocalMachine, chosen: np.ndarray, price: float) -> float:
    """Cost that swaps lower, up to a constant for subsets of equal size; for the subset solved last."""
    return float(price * np.log(_redundancy(machine, chosen)) - np.log(max(machine.explained, TINY)))


class Removal:
    """Removals of features for fixed active samples, for outputs that share a Hessian.

    Only those columns of the inverse Hessian are brought up to date that belong to removed features.

    Parameters
    ----------
    hessian : ndarray of shape (d, d)
    gradients : ndarray of shape (K, d)

    Attributes
    ----------
    left : ndarray of shape (d,), bool
        Features that are left.
    """

    def __init__(self, hessian: np.ndarray, gradients: np.ndarray) -> None:
        self._inverse = inverse_of(hessian)
        self._weights = gradients @ self._inverse
        self._diagonal = np.diag(self._inverse).copy()
        self._columns, self._n_removed = np.empty_like(hessian), 0
        self.left = np.ones(len(hessian), bool)

    def losses(self) -> np.ndarray:
        """Twice the rise of F if a feature goes."""
        losses: np.ndarray = (self._weights**2 / self._diagonal).sum(axis=0)
        return losses

    def remove(self, gone: int) -> None:
        """Remove a feature."""
        past = self._columns[: self._n_removed]
        column = self._inverse[gone] - past[:, gone] @ past
        self._weights -= self._weights[:, [gone]] * (column / column[gone])
        column /= np.sqrt(column[gone])
        self._diagonal -= column**2
        self._columns[self._n_removed] = column
        self._n_removed += 1
        self.left[gone] = False
        self._weights[:, ~self.left], self._diagonal[~self.left] = 0.0, 1.0

    @property
    def weights(self) -> np.ndarray:
        """Weights (K, d left) that minimise F on the features that are left."""
        weights: np.ndarray = self._weights[:, self.left]
        return weights


def _backward(machine: LocalMachine, chosen: np.ndarray, k: int, n_included: int) -> np.ndarray:
    """Remove the features whose removal raises F least until `k` are left; included ones stay."""
    machine.solve(chosen, BACKWARD_TOL)
    while len(chosen) > k:
        n_most = min(max(1, int(BACKWARD_PART * len(chosen))), len(chosen) - k)
        removals = in_parallel(Removal, *zip(*machine.subset_quadratics(), strict=True))
        can_go = chosen >= n_included
        for _ in range(n_most):
            gone = int(np.argmin(np.where(can_go, sum(removal.losses() for removal in removals), np.inf)))
            can_go[gone] = False
            for removal in removals:
                removal.remove(gone)
        chosen = chosen[removals[0].left]
        tol = BACKWARD_TOL if len(chosen) > k else CHOICE_TOL
        machine.solve(chosen, tol, [removal.weights for removal in removals])
    return chosen


def _swap(
    machine: LocalMachine, chosen: np.ndarray, conflicts: np.ndarray, price: float, most: float, n_included: int
) -> np.ndarray:  # fmt: skip
    """Exchange chosen features for others while the cost falls and F stays at or below `most`."""
    step = max(1, len(chosen) // 10)
    for _ in range(MAX_SWAP_ROUNDS):
        before = _cost(machine, chosen, price)
        trial, weights = _swapped(machine, chosen, step, conflicts, price, n_included)
        solution = machine.solution()
        if np.array_equal(trial, chosen):
            return chosen
        machine.solve(trial, CHOICE_TOL, weights)
        if _cost(machine, trial, price) < before - ROUND_GAIN and machine.value <= most:
            chosen = trial
            continue
        machine.restore(solution)
        if step == 1:
            return chosen
        step = max(1, step // 4)
    return chosen


def _swapped(
    machine: LocalMachine, chosen: np.ndarray, n_swaps: int, conflicts: np.ndarray, price: float, n_included: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Make the best exchanges, up to `n_swaps`, for fixed active samples; return the weights of each part, too.

    A new feature may conflict only with the feature it replaces, and replaces no included one.
    """
    hessians, gradients = zip(*machine.quadratics(), strict=True)
    exchanges = in_parallel(Exchange, hessians, gradients, [chosen] * len(hessians))
    worth = price * machine.explained / _redundancy(machine, chosen)
    chosen = chosen.copy()
    for _ in range(n_swaps):
        gain = np.zeros((len(chosen), machine.W.shape[1]))
        for exchange in exchanges:
            exchange.add_gains(gain)
        if worth:
            pairs = machine.correlations[chosen]
            gain += worth * (pairs[:, chosen].sum(axis=1)[:, None] - (pairs.sum(axis=0) - pairs))
        close = conflicts[chosen]
        gain[close.sum(axis=0) - close > 0] = -np.inf
        gain[chosen < n_included] = -np.inf
        gain[:, chosen] = -np.inf
        gone, comes = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[gone, comes] < SWAP_GAIN * machine.value:
            break
        for exchange in exchanges:
            exchange.swap(int(gone), int(comes))
        chosen[gone] = comes
    order = np.argsort(chosen)
    return chosen[order], [exchange.weights[:, order] for exchange in exchanges]
