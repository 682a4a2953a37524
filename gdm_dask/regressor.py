"""`GroupDiscoveryRegressor`: the scikit-learn estimator for numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import MultiOutputMixin, RegressorMixin

from gdm_dask.base import GroupDiscovery


@dataclass(eq=False, repr=False)
class GroupDiscoveryRegressor(MultiOutputMixin, RegressorMixin, GroupDiscovery):  # type: ignore[misc]
    """Select support features that predict one or several numbers, and discover their groups of affiliated features.

    Support features are pairwise uncorrelated, and all outputs share them. The search uses the squared loss, and the
    model on the supports is a ridge regression. A support needs about 20 effective samples, ``1 / sum_i z_i^4`` of its
    normalised values: features that live on one or two samples would fit outliers.

    Parameters
    ----------
    n_features_to_select, tau, C, cut_size, max_cuts, tol, matching, groups, fit_intercept, certify, master
        As in `GroupDiscoveryMachine`; `C` is for targets of unit variance.
    measure, linkage
        As in `GroupDiscoveryMachine`.
    include, exclude, groups_of
        As in `GroupDiscoveryMachine`. Included features need no number of effective samples.
    scheduler, n_workers, memory_limit, verbose
        As in `GroupDiscoveryMachine`.
    epsilon : float
        Errors up to this many standard deviations of an output cost nothing in the search.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Weights of the supports, for normalised features and targets of unit variance, strongest first. With several
        outputs, the norm over the outputs.
    output_weights_ : ndarray of shape (n_outputs, k)
        Weights of the supports for each output.
    coef_, intercept_ : ndarray of shape (n_outputs, k) and (n_outputs,)
        The ridge regression on the supports, in raw units, in the order of `support_features_`.

    All other attributes are as in `GroupDiscoveryMachine`; there is no `classes_`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 6))
    >>> X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=200)
    >>> y = 3 * X[:, 0] + rng.normal(size=200)
    >>> gdr = GroupDiscoveryRegressor(n_features_to_select=1).fit(X, y)
    >>> gdr.support_features_.tolist(), gdr.groups_[0].tolist(), gdr.score(X, y) > 0.8
    ([0], [0, 1], True)
    """

    epsilon: float = 0.0
    _task = "regression"

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2; if `y` is None, on a store's own numbers."""
        return float(super().score(X, self._own_targets(X, y), sample_weight))
