"""Settings of the cutting plane, derived from the parameters of an estimator and the size of the data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.measures import MEASURES
from gdm_dask.features.ranking import WORKING_FEATURES
from gdm_dask.settings.tasks import task_of
from gdm_dask.settings.weights import is_class_weight, sample_weights

if TYPE_CHECKING:
    from gdm_dask.settings.constraints import Constraints, Names

#: Number of cuts for a wanted number of supports: each cut holds a twentieth of them.
CUTS_PER_SELECTION = 20
#: Cuts taken from the working set of one read: with ten, 20 cuts select as well as with one read per cut.
CUTS_PER_READ = 10
#: Multiple of the wanted supports that enter, before the best are chosen. With fewer than SAMPLES_PER_SUPPORT samples
#: per support, the choice would fit noise (measured with a fixed C: it helps at 20 and harms at 10); beyond MAX_CHOSEN
#: supports it is no longer a small problem.
OVERSHOOT = 3
POOL_PER_CUT = 4  # times the size of a cut
SAMPLES_PER_SUPPORT = 20
MAX_CHOSEN = 500
#: Supports from which features that correlate less with the others are preferred: with fewer, it costs accuracy.
LEAST_DIVERSE = 20
#: Size of a cut if no number of supports is given.
FREE_CUT_SIZE = 10
MAX_CUTS = 100

#: C of a machine whose duals come from the master problem over all cuts.
CUTS_C = 50.0
#: C beyond this, or its inverse, has squares that leave float64.
MOST_GIVEN = 1e100
#: C of the merged machine per effective sample and support, most shrunk first, and its range.
C_FACTORS = (0.06, 0.3, 1.2)
LEAST_C, MOST_C = 0.01, 30.0
#: Effective samples per support from which the choice among supports does not fit noise; with fewer samples, folds of
#: the data decide. Two classes need fewer, because their choice is shrunk.
MANY_SAMPLES = {"two classes": 25, "classes": 100, "numbers": 100}
#: C of search and choice for two classes, per effective sample and support.
SHRUNK_FACTOR = 0.1
#: C of any other choice, and the factor of C with which the supports enter if folds decide.
CHOICE_C = 50.0
CHOICE_FACTOR = 0.3
N_FOLDS = 4
#: Samples of each of two classes that a fold needs to judge by. Folds with fewer, where they did not choose the most
#: shrunk candidate, chose worse ones.
LEAST_JUDGED = 10
#: The search gives two classes the same weight if samples are few, or if one class has a smaller share than this.
RARE_SHARE = 0.1

MASTERS = ("merged", "cuts")
METHODS = ("greedy", "exact")
LINKAGES = ("star", "clique", "component")
#: Parameters about features that must or must not be supports, or enter together.
CONSTRAINTS = ("include", "exclude", "groups_of")


@dataclass(frozen=True)
class Settings:
    """Settings of the cutting plane."""

    C: float  # as in the paper
    tau: float  # as in the paper; 0 switches the correlation constraint off (FGM)
    cut_size: int  # B, the most features of a cut
    max_cuts: int  # T
    tol: float  # relative gap at which to stop
    matching: str = "greedy"  # "greedy" or "exact"
    measure: str = "pearson"  # of correlation, for the constraint and the groups
    linkage: str = "star"  # of the groups: "star", "clique" or "component"
    #: Stop when this many supports have entered. Cuts then hold new features only: the most violated cut would often
    #: hold the same supports again, and the search would stall before there are enough.
    n_supports: int | None = None
    pool_per_cut: int = 0  # features that each cut adds to the pool
    intercept: bool = True  # the paper's machine has none
    n_working: int = WORKING_FEATURES  # features of a working set
    cuts_per_read: int = 10  # taken from a working set before the data is read again
    merged: bool = False  # the duals come from problem (3) on all supports so far, instead of (5) over the cuts
    is_diverse: bool = False  # features that correlate less with the supports are preferred when they enter
    C_choice: float | None = None  # of the choice among the supports that entered; `C` by default
    rivals: tuple[Settings, ...] = ()  # less shrunk; folds of the data decide between them and these settings
    n_folds: int = 0
    n_effective: float = 0.0  # see `effective_samples`; class weights do not change them
    is_balanced: bool = False  # the search gives two classes the same weight
    C_by: str = "given"  # "given", "fixed" for all data, "rule" or "folds"
    task: str = "two classes"  # "two classes", "classes" or "numbers"
    n_outputs: int = 1  # of the targets
    epsilon: float = 0.0  # errors of numbers, in standard deviations, that cost nothing
    #: If features enter together, all numbers of features and supports count variables.
    constraints: Constraints | None = None

    @property
    def candidates(self) -> tuple[Settings, ...]:
        """These settings and their rivals, most shrunk first, each without rivals."""
        return replace(self, rivals=(), n_folds=0), *self.rivals

    def search_weights(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
        """Return the sample weights of the search: the given ones, or the same total weight for both classes."""
        if not self.is_balanced:
            return weights
        return sample_weights(weights, "balanced", np.array([-1, 1]), task_of(self.task).strata(np.atleast_2d(targets)))


def effective_samples(counts: Sequence[float]) -> float:
    """Number of samples in two classes of equal size that are as informative as `counts` samples per class.

    With more than two classes, or with numbers, all samples count.

    >>> effective_samples([50, 50]), round(effective_samples([10, 990]), 2), effective_samples([10, 30, 60])
    (100.0, 39.6, 100.0)
    """
    return 4.0 * counts[0] * counts[1] / sum(counts) if len(counts) == 2 else float(sum(counts))


def choose_settings(
    n_features: int,
    n_samples: int,
    *,
    counts: Sequence[float] | None = None,
    fewest: int | None = None,
    k: int | None = None,
    tau: float = 0.25,
    C: float | str = CUTS_C,
    cut_size: int | str = "auto",
    max_cuts: int | None = None,
    tol: float = 1e-3,
    matching: str = "greedy",
    measure: str = "pearson",
    linkage: str = "star",
    intercept: bool = True,
    master: str | None = None,
    class_weight: Mapping[Any, float] | str | None = None,
    task: str = "two classes",
    n_outputs: int = 1,
    epsilon: float = 0.0,
    constraints: Constraints | None = None,
) -> Settings:
    """Choose the settings of the cutting plane for data of this size.

    See `GroupDiscoveryMachine` for the other parameters.

    Parameters
    ----------
    counts : sequence of float, optional
        Weight of the samples of each class, without class weights, a single weight for numbers; half of all samples
        each by default.
    fewest : int, optional
        Number of samples in the smallest class; its weight by default.
    task, n_outputs, constraints
        As in `Settings`.

    Examples
    --------
    >>> choose_settings(1000, 10_000, k=100).n_supports, choose_settings(1000, 500, k=100).n_supports
    (300, 100)
    >>> [rival.C for rival in choose_settings(1000, 500, k=100, C="auto").rivals]
    [1.5, 6.0]
    """
    is_merged = master == "merged" or (master is None and k is not None and tau > 0)
    counts = (n_samples // 2, n_samples - n_samples // 2) if counts is None else counts
    n_effective = effective_samples(counts)
    is_many = k is not None and n_effective >= MANY_SAMPLES[task] * k
    differ = task == "two classes" and min(counts) < (RARE_SHARE if is_many else 0.5) * sum(counts)
    same = Settings(
        C=CUTS_C if C == "auto" else float(C),
        tau=float(tau),
        cut_size=FREE_CUT_SIZE,
        max_cuts=int(max_cuts) if max_cuts is not None else MAX_CUTS if k is None else sys.maxsize,
        tol=float(tol),
        matching=matching,
        measure=measure,
        linkage=linkage,
        intercept=intercept,
        cuts_per_read=CUTS_PER_READ,
        merged=is_merged,
        n_effective=n_effective,
        is_balanced=differ and is_merged and is_auto(C) and class_weight is None,
        C_by="fixed" if C == "auto" else "given",
        task=task,
        n_outputs=n_outputs,
        epsilon=epsilon,
        constraints=constraints,
    )

    def entering(n_wanted: int | None, **options: Any) -> Settings:
        """The same settings for `n_wanted` supports that enter."""
        if n_wanted is not None:
            n_wanted = min(n_wanted, max(n_features, k or 0))
        size = cut_size
        if size == "auto":
            size = min(FREE_CUT_SIZE, n_features) if n_wanted is None else -(-n_wanted // CUTS_PER_SELECTION)
        pool = POOL_PER_CUT * int(size) if n_wanted != k else 0
        # a choice among the supports that entered has its own price for redundancy
        is_diverse = is_merged and tau > 0 and n_wanted == k and k is not None and k >= LEAST_DIVERSE
        is_diverse = is_diverse and task == "two classes" and measure == "pearson"  # others are not measured
        return replace(
            same, n_supports=n_wanted, cut_size=int(size), pool_per_cut=pool, is_diverse=is_diverse, **options
        )

    if k is None:
        return entering(None)
    is_together = constraints is not None and constraints.variables is not None
    can_choose = tau > 0 and k <= MAX_CHOSEN and not is_together  # FGM as published does not choose
    if not is_merged:
        return entering(OVERSHOOT * k if can_choose and n_samples >= SAMPLES_PER_SUPPORT * k else k)
    if C != "auto":
        return entering(OVERSHOOT * k if can_choose and is_many else k)
    return _by_data(entering, k, same.n_effective / k, int(min(counts)) if fewest is None else fewest, can_choose, task)


def _by_data(
    entering: Callable[..., Settings], k: int, per_support: float, fewest: int, can_choose: bool, task: str
) -> Settings:
    """Settings of the merged machine, with C depending on the effective samples per support."""
    first, *others, shrunk, between = (
        float(np.clip(factor * per_support, LEAST_C, MOST_C)) for factor in (*C_FACTORS, SHRUNK_FACTOR, CHOICE_FACTOR)
    )
    is_many, n_folds = per_support >= MANY_SAMPLES[task], min(N_FOLDS, fewest)
    if task == "two classes" and fewest < LEAST_JUDGED * N_FOLDS:
        n_folds = 0
    if is_many and can_choose and task == "two classes":
        return entering(OVERSHOOT * k, C=shrunk, C_by="rule")
    if is_many and can_choose:
        return entering(OVERSHOOT * k, C=first, C_choice=CHOICE_C, C_by="rule")
    if is_many or k > MAX_CHOSEN or n_folds < 2:
        return entering(k, C=first, C_by="rule")
    rivals = [entering(k, C=other, C_by="folds") for other in dict.fromkeys(others) if other > first]
    if per_support >= SAMPLES_PER_SUPPORT and can_choose:
        rivals.append(entering(OVERSHOOT * k, C=between, C_choice=CHOICE_C, C_by="folds"))
    if not rivals:
        return entering(k, C=first, C_by="rule")
    return entering(k, C=first, C_by="folds", rivals=tuple(rivals), n_folds=n_folds)


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse invalid parameters of an estimator, by name."""
    real = (int, float, np.integer, np.floating)
    rules: list[tuple[str, Callable[[Any], bool], str]] = [
        ("n_features_to_select", lambda k: k is None or (_is(k) and k >= 1), "None or an integer >= 1"),
        ("tau", lambda tau: _is(tau, real) and 0 <= tau < 1, "in [0, 1)"),
        ("C", lambda C: is_auto(C) or (_is(C, real) and 0 < C < np.inf), "'auto' or a positive number"),
        (
            "C",
            lambda C: is_auto(C) or 1 / MOST_GIVEN <= _plain(C) <= MOST_GIVEN,
            f"from {1 / MOST_GIVEN:g} to {MOST_GIVEN:g}",
        ),
        ("master", lambda master: master is None or _is_one(master, MASTERS), f"None or one of {', '.join(MASTERS)}"),
        ("cut_size", lambda size: is_auto(size) or (_is(size) and size >= 1), "'auto' or an integer >= 1"),
        ("max_cuts", lambda most: most is None or (_is(most) and most >= 1), "None or an integer >= 1"),
        ("tol", lambda tol: _is(tol, real) and tol >= 0, "a number >= 0"),
        ("n_workers", lambda n: n is None or (_is(n) and n >= 1), "None or an integer >= 1"),
        ("verbose", lambda verbose: isinstance(verbose, int | np.integer) and int(verbose) >= 0, "an integer >= 0"),
        ("groups", lambda has: isinstance(has, bool | np.bool_), "True or False"),
        ("fit_intercept", lambda has: isinstance(has, bool | np.bool_), "True or False"),
        ("certify", lambda has: isinstance(has, bool | np.bool_), "True or False"),
        ("class_weight", is_class_weight, "None, 'balanced' or a dict of weights >= 0"),
        ("matching", lambda matching: _is_one(matching, METHODS), f"one of {', '.join(METHODS)}"),
        ("measure", lambda measure: _is_one(measure, MEASURES), f"one of {', '.join(MEASURES)}"),
        ("linkage", lambda linkage: _is_one(linkage, LINKAGES), f"one of {', '.join(LINKAGES)}"),
        ("epsilon", lambda epsilon: _is(epsilon, real) and 0 <= epsilon < np.inf, "a number >= 0"),
    ]
    for name, is_valid, expected in rules:
        if name in parameters and not is_valid(parameters[name]):
            raise BadInput(f"`{name}` must be {expected}, got {parameters[name]!r}")
    if parameters["n_features_to_select"] is None:
        if parameters["certify"]:
            raise BadInput("`certify` needs a number of features: set `n_features_to_select`")
        if parameters["master"] == "merged":
            raise BadInput(
                "`master` must be None or 'cuts' without a number of features, got 'merged': set `n_features_to_select`"
            )


def is_auto(value: Any) -> bool:
    """Return whether a parameter is to be chosen automatically."""
    return isinstance(value, str) and value == "auto"


def _plain(number: Any) -> Any:
    """Return a number of NumPy as one of Python: its own type may be too narrow for the limits."""
    return number.item() if isinstance(number, np.generic) else number


def _is_one(value: Any, names: Container[str]) -> bool:
    return isinstance(value, str) and value in names


def _is(value: Any, kinds: tuple[type, ...] = (int, np.integer)) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def constraints_from(
    parameters: Mapping[str, Any], n_features: int, names: Names, covariates: Mapping[str, list[int]] | None = None
) -> Constraints | None:
    """Constraints for the parameters of an estimator, see `resolve`; None if there are none."""
    if not covariates and all(parameters.get(name) is None for name in CONSTRAINTS):
        return None
    from gdm_dask.settings.constraints import resolve

    return resolve(parameters, n_features, names, covariates)


def settings_from(
    parameters: Mapping[str, Any],
    n_features: int,
    task: str,
    targets: np.ndarray,
    weights: np.ndarray | None = None,
    constraints: Constraints | None = None,
) -> Settings:
    """Return the settings for the parameters of an estimator, and outputs (K, n) of a target of the kind `task`.

    `weights` are the sample weights without class weights: these say what errors cost, but add no information.
    """
    check_parameters(parameters)
    k = parameters["n_features_to_select"]
    kept = ("tau", "C", "cut_size", "max_cuts", "tol", "matching", "measure", "linkage", "master")
    same = {name: parameters[name] for name in kept}
    kind = task_of(task)
    counts = kind.class_weights(targets, weights)
    there = counts if weights is None else kind.class_weights(targets, (weights > 0).astype(np.float64))
    return choose_settings(
        n_features, round(sum(counts)), counts=counts, fewest=int(min(there)), task=task,
        n_outputs=len(targets), epsilon=float(parameters.get("epsilon", 0.0)), k=None if k is None else int(k),
        intercept=bool(parameters["fit_intercept"]), class_weight=parameters.get("class_weight"),
        constraints=constraints, **same,
    )  # fmt: skip


def expected_supports(settings: Settings) -> int:
    """Number of supports that may enter, for the memory plan."""
    constraints = settings.constraints
    n_included = 0 if constraints is None else constraints.n_included
    most = max(one.n_supports or n_included + one.cut_size * min(one.max_cuts, MAX_CUTS) for one in settings.candidates)
    return most if constraints is None else constraints.most_features(most)
