"""`GroupDiscoveryMachine`: the scikit-learn estimator."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from gdm_dask import model_files
from gdm_dask.checkpoint import Checkpoint
from gdm_dask.checks import check_parameters
from gdm_dask.correlation import correlations, mean_redundancy
from gdm_dask.cutting_plane import new_machine, run_cutting_plane
from gdm_dask.data import Data, as_store, default_scheduler, is_dask, is_store, open_data
from gdm_dask.engine import Engine, without_connection
from gdm_dask.errors import BadInput
from gdm_dask.inputs import check_training_data, checked_dask, find_names, support_columns
from gdm_dask.labelled import Labelled
from gdm_dask.machine_state import Iteration, Machine, Settings
from gdm_dask.passes import Passes
from gdm_dask.profile import profile_of
from gdm_dask.refit import refit
from gdm_dask.selection import MAX_CUTS, find_groups, select, settings_for
from gdm_dask.store import FeatureStore


class GroupDiscoveryMachine(SelectorMixin, ClassifierMixin, BaseEstimator):
    """Select support features and discover their groups of affiliated features.

    Support features are informative for two classes and pairwise uncorrelated (``|rho| < 1 - tau``); the affiliated
    features of a support are all features that correlate with it. This is the Group Discovery Machine of Zhai, Tan,
    Tsang and Ong, *Discovering Support and Affiliated Features from Very High Dimensions* (ICML 2012).

    Parameters
    ----------
    n_features_to_select : int, optional
        How many supports to select. Three times as many enter by the cutting plane, and the best of them are chosen by
        backward steps and swaps that weigh fit against redundancy (`gdm_dask.polish`); with fewer than 20 samples for
        each support, or with tau = 0, the first to enter are taken. Without a number, the cutting plane runs to `tol`
        or `max_cuts`, and every support with a nonzero weight is kept.
    tau : float
        Features correlate from ``|rho| >= 1 - tau`` on; in [0, 1). 0 switches the constraint off, which is the Feature
        Generating Machine (FGM).
    C : float
        Trade-off between margin and errors, for features of unit norm: 1/C is a ridge relative to a feature's variance,
        so its meaning does not depend on the number of samples. The default was chosen by cross-validation on the
        training parts of generated, image and text data; between 30 and 100 little changes.
    cut_size : int or "auto"
        B, the most features of a cut. "auto" is a twentieth of the supports that are to enter, or 10.
    max_cuts : int, optional
        T, the most cuts; 100 by default, and no limit where `n_features_to_select` is given.
    tol : float
        Relative gap between the bounds at which the cutting plane stops.
    matching : {"greedy", "exact"}
        How the most violated cut is found. Greedy matching need not be optimal; its bound is valid all the same.
    groups : bool
        Whether to find the groups, one more pass over the data.
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
    n_features_in_ : int
    feature_names_in_ : ndarray
        Where the input has names, up to a million of them.
    names_ : dict
        Names of the supports and their affiliated features, where the input has names.
    lower_bounds_, upper_bounds_ : ndarray of shape (n_cuts_,)
        Valid bounds on the optimum of problem (4) over the features that no support speaks for, after each cut.
    gap_ : float
        ``(upper - lower) / upper`` of the last bounds.
    converged_ : bool
        Whether the gap reached `tol`.
    stopped_ : str
        Why the cutting plane stopped.
    n_cuts_ : int
    redundancy_rate_ : float
        Of the supports, see `gdm_dask.redundancy_rate`.
    timings_ : dict
        Seconds for each part.
    counts_ : dict
        Passes, blocks and bytes read, rows scanned and skipped.
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
        C: float = 50.0,
        cut_size: int | str = "auto",
        max_cuts: int | None = None,
        tol: float = 1e-3,
        matching: str = "greedy",
        groups: bool = True,
        scheduler: Any = None,
        memory_limit: int | str | None = None,
        verbose: int = 0,
        n_workers: int | None = None,
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        callback: Callable[[Iteration], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> GroupDiscoveryMachine:
        """Select supports and find their groups.

        Parameters
        ----------
        X : store, path or URL of one, ndarray, sparse matrix, Dask array or DataFrame
            Matrices are samples x features.
        y : array of shape (n_samples,)
            Two classes. A store brings its own labels; given ones take their place.
        callback : callable, optional
            Gets an `Iteration` after each cut.
        checkpoint : path, optional
            A file that holds the state after each cut. A fit of the same store with the same parameters goes on from
            it and ends with the same machine, to the bit.

        Returns
        -------
        self
        """
        began = time.perf_counter()
        check_parameters(self)
        X, labels = check_training_data(self, X, y)
        settings = settings_for(self, self.n_features_in_, len(labels))
        saved = None if checkpoint is None else Checkpoint(Path(checkpoint), self._job(X, labels, settings))
        expected = settings.n_supports or settings.cut_size * min(settings.max_cuts, MAX_CUTS)
        with (
            Engine(self.scheduler or default_scheduler(), self.n_workers) as engine,
            open_data(X, engine, self.memory_limit, expected, -(-expected // settings.cut_size) + 1) as data,
        ):
            machine = self._start(saved, labels, settings, data.passes)
            run_cutting_plane(machine, data.passes, settings, self._reporter(callback, saved))
            self._take(machine, settings, data, labels)
        self.names_ = find_names(self, X)
        self.timings_["total"] = time.perf_counter() - began
        return self

    def _job(self, X: Any, labels: np.ndarray, settings: Settings) -> dict[str, Any]:
        """What a checkpoint is of: it can go on only with the same."""
        if not isinstance(X, FeatureStore):
            raise BadInput("a checkpoint needs a store: ingest the data first")
        return {"store": X.fingerprint, "labels": crc32c(labels.tobytes()), **asdict(settings)}

    def _start(self, checkpoint: Checkpoint | None, labels: np.ndarray, settings: Settings, passes: Passes) -> Machine:
        if checkpoint is not None and checkpoint.exists():
            return checkpoint.load(labels, settings, passes)
        return new_machine(labels, settings)

    def _reporter(
        self, callback: Callable[[Iteration], None] | None, checkpoint: Checkpoint | None
    ) -> Callable[[Machine], None]:
        def report(machine: Machine) -> None:
            iteration = machine.iterations[-1]
            if checkpoint is not None:
                checkpoint.save(machine)
            if self.verbose:
                print(iteration, file=sys.stderr, flush=True)
            if callback is not None:
                callback(iteration)

        return report

    def _take(self, machine: Machine, settings: Settings, data: Data, labels: np.ndarray) -> None:
        """Set the fitted attributes from a finished cutting plane."""
        clock = time.perf_counter()
        self.support_features_, rows, self.weights_ = select(machine, settings, self.n_features_to_select)
        seconds = {
            part: sum(it.seconds[part] for it in machine.iterations) for part in ("scores", "matching", "master")
        }
        seconds["polish"] = time.perf_counter() - clock
        self.lower_bounds_ = np.array(machine.lower_bounds)
        self.upper_bounds_ = np.array(machine.upper_bounds)
        self.gap_ = machine.gap
        self.converged_ = bool(machine.gap <= self.tol)
        self.stopped_ = machine.stopped
        self.n_cuts_ = len(machine.cuts)
        self.history_ = machine.iterations
        rho = correlations(rows, rows)
        self.redundancy_rate_ = mean_redundancy(rho)
        self.profile_ = profile_of(rows, labels, rho)
        clock = time.perf_counter()
        self.groups_ = self.affiliations_ = None
        if self.groups:
            self.groups_, self.affiliations_ = find_groups(data.passes, self.support_features_, rows, self.tau)
        seconds["groups"] = time.perf_counter() - clock
        clock = time.perf_counter()
        coef, intercept = refit(rows, labels)
        seconds["refit"] = time.perf_counter() - clock
        self.coef_, self.intercept_ = coef[None], np.array([intercept])
        counts = data.passes.counts
        self.counts_ = {
            name: getattr(counts, name)
            for name in ("passes", "tasks", "blocks_used", "blocks_read", "bytes_read", "rows_scanned", "rows_skipped")
        }
        self.timings_ = seconds

    def name_of(self, feature: int) -> str:
        """Name of a support or affiliated feature; its number where there are no names."""
        check_is_fitted(self)
        return self.names_.get(int(feature), str(int(feature)))

    @property
    def support_(self) -> np.ndarray:
        """Mask of the supports among all features."""
        return self.get_support()

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
        return np.asarray(support_columns(self, X) @ self.coef_[0]).ravel() + self.intercept_[0]

    def predict(self, X: Any) -> np.ndarray:
        """Class of each sample, by the refitted SVM."""
        check_is_fitted(self)
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; a store's own labels are used where `y` is None."""
        check_is_fitted(self)
        if y is None and is_store(X):
            X = as_store(X)
            y = self.classes_[(Labelled(X, self).labels > 0).astype(int)]
        return super().score(X, y, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted machine into a folder: ``model.json`` and ``model.npz``, without pickled objects."""
        check_is_fitted(self)
        model_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GroupDiscoveryMachine:
        """Read a machine that `save` wrote."""
        return model_files.load(cls, path)

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
        return cloned.set_params(scheduler=self.scheduler)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.required = True
        return tags
