"""Two comparisons: the paper's suite, and the wide suite on data that the paper did not use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import registry
from .criteria import SIZES, judge, judge_tuned
from .problem import Problem
from .wide.sets import PARTS

#: A data set, and the number of training samples (None: all).
Part = tuple[str, int | None]


@dataclass(frozen=True)
class Suite:
    """A comparison.

    Attributes
    ----------
    parts : tuple of Part
    methods : tuple of str
        Methods that are compared and ranked.
    ablations : tuple of str
        Variants of GDM that are compared, but not ranked.
    sizes : tuple of int
        Numbers of features.
    seeds : int
        Number of sets or splits if the data is random.
    judge : callable
        Returns the criteria of a selection.
    """

    parts: tuple[Part, ...]
    methods: tuple[str, ...]
    ablations: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: int
    judge: Callable[[Problem, np.ndarray], dict[str, Any]]


#: The small set of `quick`.
QUICK = "quick"
PAPER, WIDE = "paper", "wide"
SUITES = {
    PAPER: Suite(
        parts=tuple((name, None) for name in registry.dataset_names() if name != QUICK),
        methods=(
            "fcbf", "fgm", "gdm", "gdm_affiliated", "l1_svm", "method_a", "mrmr", "rcfs", "relieff", "svm_rfe",
        ),
        ablations=("gdm_default",),
        sizes=SIZES,
        seeds=5,
        judge=judge,
    ),
    WIDE: Suite(
        parts=PARTS,
        methods=(
            "gdm_default", "gdm_before", "l1_svm", "l1_logistic", "skglm_mcp", "svm_rfe", "mrmr", "f_classif", "fgm",
        ),
        ablations=("gdm_merged", "gdm_rule", "gdm_one_cut", "gdm_tau_0"),
        sizes=(10, 20, 50, 100),
        seeds=5,
        judge=judge_tuned,
    ),
}  # fmt: skip


def part_name(dataset: str, samples: int | None) -> str:
    """Name a data set in one of its sizes.

    >>> part_name("mnist", None), part_name("mnist", 500)
    ('mnist', 'mnist-n500')
    """
    return dataset if samples is None else f"{dataset}-n{samples}"
