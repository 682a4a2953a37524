"""Tasks: the losses that search, choose, refit and judge, and the features that qualify."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.master.epsilon_insensitive import EpsilonInsensitive
from gdm_dask.master.losses import Loss, SquaredHinge
from gdm_dask.master.squared_loss import SquaredLoss

#: Regression favours features that live on one or two samples: they fit outliers and correlate with nothing. Features
#: need this many effective samples, or this share of all samples if there are few.
LEAST_EFFECTIVE, LEAST_SHARE = 20.0, 0.1
#: Most C of the refit per effective sample and support: a less shrunk model on few samples fits their noise.
REFIT_FACTORS = {"two classes": 3.0, "classes": 3.0, "numbers": 1.2}


@dataclass(frozen=True)
class Task:
    """How outputs are modelled."""

    name: str  # "two classes", "classes" or "numbers", the kind of the target
    search: Loss  # loss of the cutting plane, whose duals score the features
    choice: Loss  # loss for the choice of k among the supports that entered
    refit: Loss  # loss of the model on the supports; also judges it on other samples

    def least_effective(self, total_weight: float) -> float:
        """Effective samples that a feature needs if all samples have this total weight.

        >>> task_of("numbers").least_effective(100), task_of("classes").least_effective(100)
        (10.0, 0.0)
        """
        return min(LEAST_EFFECTIVE, LEAST_SHARE * total_weight) if self.name == "numbers" else 0.0

    def refit_limit(self, n_effective: float, n_supports: int) -> float:
        """Return the upper limit of C for the model on the supports.

        >>> task_of("numbers").refit_limit(100, 10)
        12.0
        """
        return REFIT_FACTORS[self.name] * n_effective / max(1, n_supports)

    def strata(self, targets: np.ndarray) -> np.ndarray:
        """Return the class of each sample, from targets of shape (n_outputs, n_samples); numbers form a single class.

        >>> task_of("classes").strata(np.array([[-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])).tolist()
        [2, 0]
        """
        if self.name == "numbers":
            return np.zeros(targets.shape[1], np.int64)
        codes: np.ndarray = np.argmax(targets, axis=0) if self.name == "classes" else (targets[0] > 0).astype(np.int64)
        return codes

    def class_weights(self, targets: np.ndarray, weights: np.ndarray | None) -> list[float]:
        """Return the total weight of the samples of each class.

        >>> task_of("two classes").class_weights(np.array([[-1.0, 1.0, 1.0]]), np.array([2.0, 0.5, 0.5]))
        [2.0, 1.0]
        """
        n_classes = {"two classes": 2, "classes": len(targets), "numbers": 1}[self.name]
        counts: list[float] = np.bincount(self.strata(targets), weights, n_classes).astype(np.float64).tolist()
        return counts


def task_of(name: str, epsilon: float = 0.0) -> Task:
    """Return the task "two classes", "classes" or "numbers"; errors of numbers up to `epsilon` cost nothing.

    Several classes are searched with the squared loss, which is cheaper than the squared hinge and finds equally good
    supports; the choice among them uses the squared hinge, with one Hessian per class.
    """
    if name == "two classes":
        return Task(name, SquaredHinge(), SquaredHinge(), SquaredHinge())
    if name == "classes":
        return Task(name, SquaredLoss(), SquaredHinge(), SquaredHinge())
    loss: Loss = EpsilonInsensitive(epsilon) if epsilon else SquaredLoss()
    return Task(name, loss, loss, SquaredLoss())
