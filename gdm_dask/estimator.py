"""`GroupDiscoveryMachine`: the scikit-learn estimator."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from gdm_dask import model as model_files
from gdm_dask.analysis.metrics import Labelled
from gdm_dask.cutting_plane.checkpoint import Checkpoint
from gdm_dask.cutting_plane.fit import Fit, fit
from gdm_dask.cutting_plane.problem import Iteration
from gdm_dask.cutting_plane.settings import check_parameters
from gdm_dask.engine import open_engine, without_connection
from gdm_dask.ingestion.collections import is_dask
from gdm_dask.inputs import (
    check_training_data,
    checked_dask,
    checkpoint_job,
    default_scheduler,
    find_names,
    open_data,
    settings_of,
    support_columns,
    weights_of,
)
from gdm_dask.store import as_store, is_store
from gdm_dask.store.targets import Target
from gdm_dask.system.progress import compile_seconds


class GroupDiscoveryMachine(SelectorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Select support features and discover their groups of affiliated features.

    Support features are informative for two classes and pairwise uncorrelated (``|rho| < 1 - tau``); the affiliated
    features of a support are all features that correlate with it. This is the Group Discovery Machine of Zhai, Tan,
    Tsang and Ong, *Discovering Support and Affiliated Features from Very High Dimensions* (ICML 2012).

    Parameters
    ----------
    n_features_to_select : int, optional
        How many supports to select. Where samples are many, three times as many enter by the cutting plane, and the
        best of them are chosen by backward steps and swaps that weigh fit against redundancy; where they are few, or
        with tau = 0, the first to enter are taken. Few are fewer than 100 effective samples for each support, or fewer
        than 20 samples with ``master="cuts"``. Without a number of supports, the cutting plane runs to `tol` or
        `max_cuts`, and every support with a nonzero weight is kept.
    tau : float
        Features correlate from ``|rho| >= 1 - tau`` on; in [0, 1). 0 switches the constraint off, which is the Feature
        Generating Machine (FGM).
    C : float or "auto"
        Trade-off between margin and errors, for features of unit norm: 1/C is a ridge relative to a feature's variance.
        "auto" lets the training data choose. With ``n_eff = 4 n+ n- / n`` effective samples, and at least 100 of them
        for each support, C is ``0.06 n_eff / k``, within [0.01, 30]. With fewer, four folds decide between 0.06, 0.3
        and 1.2 times ``n_eff / k``, and the choice of k out of 3k: the most shrunk within one standard error of the
        best is taken. All folds share the reads of one fit. With ``master="cuts"`` it is 50.
    cut_size : int or "auto"
        B, the most features of a cut. "auto" is a twentieth of the supports that are to enter, or 10.
    max_cuts : int, optional
        T, the most cuts; 100 by default, and no limit where `n_features_to_select` is given.
    tol : float
        Relative gap between the bounds at which the cutting plane stops.
    matching : {"greedy", "exact"}
        How the most violated cut is found. Greedy matching need not be optimal; its bound is valid all the same.
    fit_intercept : bool
        Whether the machine has an intercept. False is the paper's problem (3), which explains little where one class is
        rare.
    groups : bool
        Whether to find the groups, one more read of the data, which also verifies the bounds.
    class_weight : dict, "balanced" or None
        Weights of classes, which multiply the weights of their samples. "balanced" gives both classes the same weight
        in all, which helps where one is rare.
    certify : bool
        Whether to prove how good the choice of `n_features_to_select` supports is, see `certified_share_`: up to ten
        more reads of the data.
    master : {"merged", "cuts"}, optional
        The machine whose residuals score the features: one on all supports so far, which is problem (3), or the master
        problem over all cuts (5). By default the former where `n_features_to_select` is given and tau > 0.
    scheduler : str or Client, optional
        ``"synchronous"``, ``"threads"``, ``"processes"``, ``"local"`` (a cluster on this machine), the address of a
        Dask scheduler or its scheduler file, or a Client. By default the open Client, or threads.
    memory_limit : int or str, optional
        Memory of all processes together, such as ``"2GB"``. By default what a cluster's workers were given, or a
        quarter of this machine's.
    verbose : int
        1 prints a line for each cut.
    n_workers : int, optional
        Workers of a scheduler on this machine; one per core by default.

    Attributes
    ----------
    support_features_ : ndarray of shape (k,)
        Numbers of the supports, strongest first.
    weights_ : ndarray of shape (k,)
        Their weights, for normalised features, in the same order; a positive one speaks for ``classes_[1]``.
    groups_ : dict
        Support -> sorted array of the features that correlate with it, itself included. None with ``groups=False``.
    affiliations_ : DataFrame
        The pairs behind `groups_`: support, feature, correlation, and whether this support is the feature's owner,
        that is, the one it correlates with most. None with ``groups=False``.
    coef_, intercept_ : ndarray of shape (1, k) and (1,)
        A linear SVM refitted on the supports, in raw units, in the order of `support_features_`.
    classes_ : ndarray of shape (2,)
    target_ : Target
        How labels become outputs, and decision values predictions.
    n_features_in_ : int
    feature_names_in_ : ndarray
        Where the input has names, up to a million of them.
    names_ : dict
        Names of the supports and their affiliated features, where the input has names.
    lower_bounds_, upper_bounds_ : ndarray of shape (n_cuts_,)
        Valid bounds on the optimum of problem (4), with C_ and cuts of this size, over the features that no support
        covers, after each cut. A search for k supports does not aim at them. They say nothing about the best k
        features, which is what `certify` is for.
    gap_ : float
        ``(upper - lower) / upper`` of the last bounds.
    C_ : float
        The C of the search.
    C_path_ : dict
        How it was chosen: ``how`` ("given", "fixed" for all data, "rule" or "folds"), ``C_choice`` of the choice among
        supports that entered where it is another one, ``n_folds``, and for each of the ``candidates``, from the most
        shrunk on, its C, the number of supports that enter, and mean and standard error of the held-out loss;
        ``chosen`` is the position of the one that was taken.
    converged_ : bool
        Whether the gap reached `tol`.
    certified_share_ : float or None
        With ``certify=True``, in [0, 1]: the supports reach at least this part of the gain that any
        `n_features_to_select` uncorrelated features can reach. The gain of features is how far they lower the objective
        of the machine with C_ on the training data. 0 where nothing could be proved.
    stopped_ : str
        Why the cutting plane stopped.
    n_cuts_ : int
    redundancy_rate_ : float
        Of the supports, see `gdm_dask.redundancy_rate`.
    timings_ : dict
        Seconds for each part; ``compiling`` is what the kernels took of a first fit, which no other part includes.
    counts_ : dict
        Passes, blocks and bytes read, rows scanned and skipped; with ``certify=True`` also ``certify_passes``, those of
        the passes that the certificate took.
    history_ : list of Iteration
    profile_ : Profile
        Samples of each class, and how often and how strongly each support occurs in them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([-1, 1], 50)
    >>> signal = y + rng.normal(size=100)
    >>> X = np.column_stack([signal, -3 * signal, rng.normal(size=(100, 8))])
    >>> gdm = GroupDiscoveryMachine(n_features_to_select=1).fit(X, y)
    >>> gdm.support_features_.tolist(), gdm.groups_[0].tolist()
    ([0], [0, 1])
    """

    def __init__(
        self,
        n_features_to_select: int | None = None,
        tau: float = 0.25,
        C: float | str = "auto",
        cut_size: int | str = "auto",
        max_cuts: int | None = None,
        tol: float = 1e-3,
        matching: str = "greedy",
        groups: bool = True,
        scheduler: Any = None,
        memory_limit: int | str | None = None,
        verbose: int = 0,
        n_workers: int | None = None,
        fit_intercept: bool = True,
        certify: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        master: str | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.tau = tau
        self.C = C
        self.cut_size = cut_size
        self.max_cuts = max_cuts
        self.tol = tol
        self.matching = matching
        self.groups = groups
        self.scheduler = scheduler
        self.n_workers = n_workers
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.fit_intercept = fit_intercept
        self.certify = certify
        self.class_weight = class_weight
        self.master = master

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        callback: Callable[[Iteration], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> GroupDiscoveryMachine:
        """Select supports and find their groups.

        Parameters
        ----------
        X : store, path or URL of one, ndarray, sparse matrix, Dask array or DataFrame
            Matrices are samples x features.
        y : array of shape (n_samples,)
            Two classes. A store may have its own labels; given ones take their place.
        sample_weight : array of shape (n_samples,), optional
            Weights of the samples, not negative. A sample of weight 2 counts as two equal ones, and one of weight 0 as
            none: in the loss, and in means, norms and correlations. Weights that are no counts should have mean 1.
        callback : callable, optional
            Gets an `Iteration` after each cut; while folds decide about C, after each cut of the most shrunk candidate.
        checkpoint : path, optional
            A file that holds the state after each cut, or after each read while folds decide about C. A fit of the same
            store with the same parameters goes on from it and ends with the same machine, to the bit.

        Returns
        -------
        self
        """
        began, compiled = time.perf_counter(), compile_seconds()
        check_parameters(self.get_params(deep=False))
        X, target, Y = check_training_data(self, X, y)
        weights = weights_of(self, sample_weight, target, Y)
        settings = settings_of(self, self.n_features_in_, Y.shape[1], Y[0], weights)
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(Path(checkpoint), checkpoint_job(X, Y, settings, weights))
        with (
            open_engine(self.scheduler or default_scheduler(), self.n_workers) as engine,
            open_data(X, engine, self.memory_limit, settings) as data,
        ):
            found = fit(
                data, Y[0], settings, self.n_features_to_select, self.groups, saved, self._reporter(callback),
                self.certify, weights,
            )  # fmt: skip
        self._take(found, target, Y)
        self.names_ = find_names(self, X)
        self.timings_["compiling"] = compile_seconds() - compiled
        self.timings_["total"] = time.perf_counter() - began
        return self

    def _reporter(self, callback: Callable[[Iteration], None] | None) -> Callable[[Iteration], None] | None:
        """The callback; with `verbose`, after a line for each cut."""
        if not self.verbose:
            return callback

        def report(iteration: Iteration) -> None:
            print(iteration, file=sys.stderr, flush=True)
            if callback is not None:
                callback(iteration)

        return report

    def _take(self, found: Fit, target: Target, Y: np.ndarray) -> None:
        """Set the fitted attributes."""
        model_files.set_target(self, target)
        for name in (
            "support_features", "weights", "groups", "affiliations", "redundancy_rate", "lower_bounds", "upper_bounds",
            "gap", "certified_share", "stopped", "n_cuts", "history", "timings", "counts",
        ):  # fmt: skip
            setattr(self, f"{name}_", getattr(found, name))
        self.C_, self.C_path_ = found.trade_off.C, found.trade_off.to_dict()
        self.converged_ = bool(found.gap <= self.tol)
        self.profile_ = model_files.profile_of(found.rows, target.members(Y), found.rho)
        self.coef_, self.intercept_ = found.coef[None], np.array([found.intercept])

    def name_of(self, feature: int) -> str:
        """Name of a support or affiliated feature; its number where there are no names."""
        check_is_fitted(self)
        return self.names_.get(int(feature), str(int(feature)))

    @property
    def support_(self) -> np.ndarray:
        """Mask of the supports among all features."""
        mask: np.ndarray = self.get_support()
        return mask

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, bool)
        mask[self.support_features_] = True
        return mask

    def transform(self, X: Any) -> Any:
        """Keep the support features, in the order of the columns.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        array or sparse matrix of shape (n_samples, k)
        """
        check_is_fitted(self)
        if is_store(X):
            return support_columns(self, X)[:, np.argsort(self.support_features_)]
        if is_dask(X):
            return checked_dask(self, X)[:, np.sort(self.support_features_)]
        return super().transform(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """Signed distance of samples to the refitted SVM's hyperplane; positive for ``classes_[1]``."""
        check_is_fitted(self)
        return model_files.decision(support_columns(self, X), self.coef_[0], self.intercept_[0])

    def predict(self, X: Any) -> np.ndarray:
        """Class of each sample, by the refitted SVM."""
        check_is_fitted(self)
        target: Target = self.target_
        return target.decode(self.decision_function(X)[None])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; a store's own labels are used where `y` is None."""
        check_is_fitted(self)
        if y is None and is_store(X):
            X = as_store(X)
            y = self.target_.decode(Labelled(X, self).labels[None])
        return float(super().score(X, y, sample_weight))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted machine into a folder: ``model.json`` and ``model.npz``, without pickled objects."""
        check_is_fitted(self)
        model_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GroupDiscoveryMachine:
        """Read a machine that `save` wrote."""
        model: GroupDiscoveryMachine = model_files.load(cls, path)
        return model

    def report(self, path: str | os.PathLike[str] | None = None, **options: Any) -> str:
        """A page about the fitted machine: supports, groups, map, bounds, cost; one file that opens anywhere.

        Parameters
        ----------
        path : path, optional
            Where to write it, as ``.html``, ``.md`` or ``.json``.
        **options
            `store`, `test`, `image_shape`, `compare`, `stability`, `title`: see `gdm_dask.report.gather`.

        Returns
        -------
        str
            The text; HTML where there is no path.
        """
        from gdm_dask.report import make_report

        return make_report(self, path, **options)

    def _repr_html_inner(self) -> str:
        """What a notebook shows: a card for a fitted machine, scikit-learn's diagram before."""
        from gdm_dask.notebook import card

        return card(self) if hasattr(self, "support_features_") else super()._repr_html_inner()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __getstate__(self) -> dict[str, Any]:
        """A Client is pickled as the address of its scheduler."""
        state = dict(super().__getstate__())
        return {**state, "scheduler": without_connection(state.get("scheduler"))}

    def __sklearn_clone__(self) -> GroupDiscoveryMachine:
        """Clones share a Client: a connection cannot be copied."""
        cloned: GroupDiscoveryMachine = super(GroupDiscoveryMachine, copy(self)).__sklearn_clone__()
        cloned.set_params(scheduler=self.scheduler)
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.required = True
        return tags
