"""`GroupDiscoveryMachine`, the scikit-learn estimator for classes, and the choice of the estimator for a target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from gdm_dask import model as model_files
from gdm_dask.base import GroupDiscovery
from gdm_dask.errors import BadInput
from gdm_dask.store.targets import Target


@dataclass(eq=False, repr=False)
class GroupDiscoveryMachine(ClassifierMixin, GroupDiscovery):  # type: ignore[misc]
    """Select support features and discover their groups of affiliated features.

    Support features are informative for two or more classes and pairwise uncorrelated (``|rho| < 1 - tau``); the
    affiliated features of a support are all features that correlate with it. This is the Group Discovery Machine of
    Zhai, Tan, Tsang and Ong, *Discovering Support and Affiliated Features from Very High Dimensions* (ICML 2012). With
    more than two classes, each class against the rest is an output of the machine, and all outputs share the supports.

    Parameters
    ----------
    n_features_to_select : int, optional
        Number of supports to select. With many samples, the cutting plane adds three times as many, and backward steps
        and swaps that weigh fit against redundancy choose the best of them. With few samples, or with tau = 0, the
        first to enter are taken. Few means fewer than 25 effective samples per support (100 for more than two classes),
        or fewer than 20 samples per support with ``master="cuts"``. If None, the cutting plane runs to `tol` or
        `max_cuts`, and every support with a nonzero weight is kept.
    tau : float
        Two features correlate if ``|rho| >= 1 - tau``; in [0, 1). 0 switches the constraint off, which gives the
        Feature Generating Machine (FGM).
    C : float or "auto"
        Trade-off between margin and errors, for features of unit norm: 1/C is a ridge relative to a feature's variance.
        "auto" lets the training data choose. With ``n_eff = 4 n+ n- / n`` effective samples, and at least 25 of them
        per support, C is ``0.1 n_eff / k``, within [0.01, 30] (more than two classes: 100 samples, 0.06, and 50
        for the choice among the supports). With fewer, four folds decide between 0.06, 0.3 and 1.2 times ``n_eff / k``,
        and the choice of k out of 3k: the most shrunk candidate within one standard error of the best is taken. All
        folds share the reads of one fit. With ``master="cuts"``, C is 50.
    cut_size : int or "auto"
        B, the maximum number of features in a cut. "auto" is a twentieth of the supports that are to enter, or 10.
    max_cuts : int, optional
        T, the maximum number of cuts; 100 by default, unlimited if `n_features_to_select` is given.
    tol : float
        Relative gap between the bounds at which the cutting plane stops.
    matching : {"greedy", "exact"}
        Method to find the most violated cut. Greedy matching may not be optimal, but its bound is always valid.
    fit_intercept : bool
        Whether the machine has an intercept. False gives the paper's problem (3), which explains little if one class is
        rare.
    groups : bool
        Whether to find the groups. This takes one more read of the data, which also verifies the bounds.
    class_weight : dict, "balanced" or None
        Class weights, which multiply the sample weights. "balanced" gives all classes the same total weight. With
        None and ``C="auto"``, the search for `n_features_to_select` supports gives two classes the same weight if
        samples are few (fewer than 25 effective samples per support), or if one class has less than a tenth of them;
        the model and the correlations are not weighted. Pass ``{}`` for a search without weights.
    certify : bool
        Whether to prove how good the `n_features_to_select` supports are, see `certified_share_`; takes up to ten more
        reads of the data.
    master : {"merged", "cuts"}, optional
        The machine whose residuals score the features: "merged" is one machine on all supports so far, problem (3);
        "cuts" is the master problem over all cuts (5). The default is "merged" if `n_features_to_select` is given and
        tau > 0, else "cuts".
    include : list of str or int, optional
        Names or numbers of features that are always supports, such as covariates. They count towards
        `n_features_to_select`, and cover the features that correlate with them. They may correlate with each other.
    exclude : list of str or int, optional
        Names or numbers of features that are never supports. They may be affiliated with one.
    groups_of : dict or list, optional
        Features that enter together, such as the one-hot columns of a variable: maps the name of each variable to a
        list of names or numbers of features; or a list of such lists; or the variable of each feature, in order, None
        for a feature on its own. A variable counts as one of `n_features_to_select`, and its score is the
        norm of the scores of its features. No two variables have features that correlate; within a variable they may.
        Features that cannot be supports, such as constant or excluded ones, do not enter with the others. The first k
        variables to enter are taken.
    measure : {"pearson", "spearman", "cosine", "su", "ig"}
        Correlation measure of the constraint and of the groups: two features correlate if its absolute value is at
        least ``1 - tau``. "pearson" is linear correlation; "spearman" is Pearson's coefficient of the ranks, for
        monotone relations; "cosine" does not centre. "su" and "ig" are for discrete features, with at most 256 distinct
        values: symmetrical uncertainty, and information gain over the larger of both entropies.
    linkage : {"star", "clique", "component"}
        Which features belong to the group of a support: "star", all that correlate with it; "clique", those of them,
        nearest first, that also correlate with each other; "component", all that a chain of correlated features links
        with it, which takes one more read of the data for each link.
    scheduler : str or Client, optional
        ``"synchronous"``, ``"threads"``, ``"processes"``, ``"local"`` (a cluster on this machine), the address of a
        Dask scheduler or its scheduler file, or a Client. By default the open Client, or threads.
    memory_limit : int or str, optional
        Memory of all processes together, such as ``"2GB"``. By default the memory of the cluster's workers, or a
        quarter of this machine's.
    verbose : int
        1 prints a line for each cut and one at the end, to the standard error.
    n_workers : int, optional
        Number of workers of a scheduler on this machine; one per core by default.

    Attributes
    ----------
    support_features_ : ndarray of shape (k,)
        Indices of the supports, strongest first.
    weights_ : ndarray of shape (k,)
        Weights of the supports, for normalised features, in the same order; a positive weight favours ``classes_[1]``.
        With more than two classes, the norm over the classes.
    output_weights_ : ndarray of shape (n_outputs, k)
        Weights of the supports for each output: one output for two classes, else one per class.
    included_ : ndarray of int64
        Indices of the features of `include`, and of those that enter together with them, increasing.
    variables_ : dict
        Maps the name of each variable of `groups_of` that was selected to its supports.
    groups_ : dict
        Maps each support to the sorted array of features of its group, itself included: with ``linkage="star"``, the
        features that correlate with it. None with ``groups=False``.
    affiliations_ : DataFrame
        The pairs behind `groups_`: support, feature, correlation, and whether this support owns the feature, that is,
        correlates with it most. None with ``groups=False``.
    supports_ : DataFrame
        Table of the supports, strongest first: feature, name, weight, the class that it speaks for, and the number of
        members of its group.
    coef_, intercept_ : ndarray of shape (n_outputs, k) and (n_outputs,)
        A linear SVM per output, refitted on the supports, in raw units and in the order of `support_features_`.
    classes_ : ndarray of shape (n_classes,)
    target_ : Target
        Maps labels to outputs, and decision values to predictions.
    n_features_in_ : int
    feature_names_in_ : ndarray
        If the input has names, up to a million of them.
    names_ : dict
        Names of the supports and their affiliated features, if the input has names.
    lower_bounds_, upper_bounds_ : ndarray of shape (n_cuts_,)
        Valid bounds, after each cut, on the optimum of problem (4) with C_ and cuts of this size, over the features
        that no support covers; with `include` and `exclude`, see `gdm_dask.settings.constraints`. A search for k
        supports does not aim at closing them. They do not bound the best k features; use `certify` for that.
    gap_ : float
        ``(upper - lower) / upper`` of the last bounds.
    C_ : float
        C of the search.
    C_path_ : dict
        How C was chosen: ``how`` ("given", "fixed" for all data, "rule" or "folds"); ``C_choice``, the C of the choice
        among supports that entered, if different; ``n_folds``; the ``candidates``, most shrunk first, each with its C,
        the number of supports that enter, and mean and standard error of the held-out loss; ``chosen``, the position of
        the candidate taken; and ``is_balanced``, whether the search gave two classes the same weight, see
        `class_weight`.
    converged_ : bool
        Whether the gap reached `tol`.
    certified_share_ : float or None
        With ``certify=True``, in [0, 1]: the supports reach at least this share of the gain that any
        `n_features_to_select` uncorrelated features can reach. The gain of features is the amount by which they lower
        the objective of the machine with C_ on the training data. With `include`, only features that include these are
        compared, by their gain beyond them. 0 if nothing could be proved.
    stopped_ : str
        Why the cutting plane stopped.
    n_cuts_ : int
    redundancy_rate_ : float
        Redundancy rate of the supports, see `gdm_dask.redundancy_rate`.
    timings_ : dict
        Seconds of each part; ``compiling`` is the time to compile kernels in a first fit, which no other part includes.
    counts_ : dict
        Passes, blocks and bytes read, rows scanned and skipped; with ``certify=True`` also ``certify_passes``, the
        counts of the certificate's passes.
    history_ : list of Iteration
    profile_ : Profile
        Samples of each class, and frequency and strength of each support in each class.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1, 1], 50)
    >>> signal = y + rng.normal(size=100)
    >>> X = np.column_stack([signal, -2 * signal, rng.normal(size=(100, 8))])
    >>> gdm = GroupDiscoveryMachine(n_features_to_select=1).fit(X, y)
    >>> gdm.support_features_.tolist(), gdm.groups_[0].tolist()
    ([0], [0, 1])
    """

    class_weight: dict[Any, float] | str | None = None
    _task = "classification"

    def decision_function(self, X: Any) -> np.ndarray:
        """Signed distance of samples to the hyperplanes of the refitted SVM.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_classes)
            Positive for ``classes_[1]``; with more than two classes, largest for the predicted class.
        """
        values = self.decision_values(X)
        return values[0] if len(values) == 1 else values.T

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy; if `y` is None, on a store's own labels."""
        return float(super().score(X, self._own_targets(X, y), sample_weight))


def load_model(path: str | os.PathLike[str]) -> GroupDiscovery:
    """Read a model of either class, written by `save`."""
    model: GroupDiscovery = model_files.load(_class_of, path)
    return model


def _class_of(target: Target) -> type[GroupDiscovery]:
    from gdm_dask.regressor import GroupDiscoveryRegressor

    return GroupDiscoveryRegressor if target.kind == "numbers" else GroupDiscoveryMachine


def estimator_for(target: Target, parameters: Mapping[str, Any]) -> GroupDiscovery:
    """Return the estimator for a target; parameters of the other class must be None or missing.

    Examples
    --------
    >>> from gdm_dask.store.numbers import Numbers
    >>> estimator_for(Numbers((0.0,), (1.0,)), {"tau": 0.5, "epsilon": 0.1, "class_weight": None})
    GroupDiscoveryRegressor(epsilon=0.1, tau=0.5)
    """
    kind = _class_of(target)
    own, strange = ("epsilon", "class_weight") if target.kind == "numbers" else ("class_weight", "epsilon")
    if parameters.get(strange) is not None:
        task = "classification" if strange == "class_weight" else "regression"
        raise BadInput(f"`{strange}` is for {task}: leave it out, or choose the task {task}")
    given = {name: value for name, value in parameters.items() if name not in (own, strange) or value is not None}
    return kind(**given)
