"""Shared base of both estimators: parameters, fit, attributes, files and pages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from gdm_dask import model as model_files
from gdm_dask.analysis.metrics import Labelled
from gdm_dask.cutting_plane.checkpoint import Checkpoint
from gdm_dask.cutting_plane.fit import Fit, fit
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.cutting_plane.selection import strengths_of
from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import is_dask
from gdm_dask.inputs import (
    as_targets,
    check_training_data,
    checked_dask,
    checkpoint_job,
    find_names,
    in_memory,
    open_data,
    settings_of,
    support_columns,
    weights_of,
)
from gdm_dask.settings.settings import check_parameters
from gdm_dask.store import is_store
from gdm_dask.store.targets import Target
from gdm_dask.system.progress import compile_seconds


@dataclass(eq=False, repr=False)
class GroupDiscovery(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of `GroupDiscoveryMachine`, which documents it, and of `GroupDiscoveryRegressor`."""

    n_features_to_select: int | None = None
    tau: float = 0.25
    C: float | str = "auto"
    cut_size: int | str = "auto"
    max_cuts: int | None = None
    tol: float = 1e-3
    matching: str = "greedy"
    groups: bool = True
    scheduler: Any = None
    memory_limit: int | str | None = None
    verbose: int = 0
    n_workers: int | None = None
    fit_intercept: bool = True
    certify: bool = False
    master: str | None = None
    include: Any = None
    exclude: Any = None
    groups_of: Any = None
    measure: str = "pearson"
    linkage: str = "star"

    #: "classification" or "regression".
    _task: ClassVar[str]

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        callback: Callable[[Iteration], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Select supports and find their groups.

        Parameters
        ----------
        X : ndarray, sparse matrix, pandas, Polars, Arrow or Dask table, Dask array, store, or path or URL of one
            Matrices are samples x features.
        y : array of shape (n_samples,), or (n_samples, n_outputs) for numbers
            Labels or numbers. If given, they replace the targets of a store.
        sample_weight : array of shape (n_samples,), optional
            Nonnegative sample weights. A sample of weight 2 counts as two equal samples, a sample of weight 0 as none:
            in the loss, and in means, norms and correlations. Weights that are not counts should have mean 1. If not
            given, the weights of a store are used, if it has any.
        callback : callable, optional
            Called with an `Iteration` after each cut; while folds choose C, after each cut of the most shrunk
            candidate; of a winner solved after the folds, too.
        checkpoint : path, optional
            File that holds the state after each cut, or after each read while folds choose C. A fit of the same store
            with the same parameters continues from it and ends with the same machine, to the bit.

        Returns
        -------
        self
        """
        began, compiled = time.perf_counter(), compile_seconds()
        check_parameters(self.get_params(deep=False))
        X, target, Y = check_training_data(self, X, y, self._task)
        weights = weights_of(X, sample_weight, getattr(self, "class_weight", None), target, Y)
        if weights is not None:
            target, Y = target.weighed(Y, weights)
        settings = settings_of(self, X, target, Y, weights_of(X, sample_weight, None, target, Y))
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(Path(checkpoint), checkpoint_job(X, Y, settings, weights))
        with open_data(X, self.get_params(deep=False), settings) as data:
            found = fit(
                data, Y, settings, self.n_features_to_select, self.groups, saved, self._reporter(callback),
                self.certify, weights,
            )  # fmt: skip
        self._take(found, target, Y)
        constraints = settings.constraints
        self.included_ = np.zeros(0, np.int64) if constraints is None else np.sort(constraints.include)
        self.variables_ = {} if constraints is None else constraints.selected(self.support_features_)
        self.names_ = find_names(self, X)
        self.timings_["compiling"] = compile_seconds() - compiled
        self.timings_["total"] = time.perf_counter() - began
        if self.verbose:
            found_of = f"supports: {len(self.support_features_):,} of {self.n_features_in_:,} features"
            done = f"{found_of}, reads: {self.counts_['passes']}, {self.timings_['total']:.2f} s in total"
            print(done, file=sys.stderr, flush=True)
        return self

    def _reporter(self, callback: Callable[[Iteration], None] | None) -> Callable[[Iteration], None] | None:
        """Return the callback; with `verbose`, it first prints a line for each cut."""
        if not self.verbose:
            return callback

        def report(iteration: Iteration) -> None:
            print(iteration, file=sys.stderr, flush=True)
            if callback is not None:
                callback(iteration)

        return report

    def _take(self, found: Fit, target: Target, Y: np.ndarray) -> None:
        """Set the fitted attributes."""
        for name in (
            "support_features", "groups", "affiliations", "redundancy_rate", "lower_bounds", "upper_bounds",
            "gap", "certified_share", "stopped", "n_cuts", "history", "timings", "counts",
        ):  # fmt: skip
            setattr(self, f"{name}_", getattr(found, name))
        self.C_, self.C_path_ = found.trade_off.C, found.trade_off.to_dict()
        self.output_weights_ = found.weights
        self.weights_ = found.weights[0] if len(found.weights) == 1 else strengths_of(found.weights)
        self.converged_ = bool(found.gap <= self.tol)
        self.profile_ = model_files.profile_of(found.rows, target.members(Y), found.rho)
        target, self.coef_, self.intercept_ = target.in_units(found.coef, found.intercept)
        model_files.set_target(self, target)

    def name_of(self, feature: int) -> str:
        """Return the name of a support or affiliated feature, or its number if there are no names."""
        check_is_fitted(self)
        return self.names_.get(int(feature), str(int(feature)))

    @property
    def support_(self) -> np.ndarray:
        """Mask of the supports among all features."""
        mask: np.ndarray = self.get_support()
        return mask

    @property
    def supports_(self) -> pd.DataFrame:
        """Table of the supports, strongest first."""
        check_is_fitted(self)
        features, target = self.support_features_.tolist(), self.target_
        sides, places = target.sides(self.output_weights_)
        sides = self.classes_.tolist() if hasattr(self, "classes_") else sides  # not their names
        words = [self.name_of(feature) for feature in features], [sides[place] for place in places]
        names, spoken_for = (pd.Series(some, dtype=object) for some in words)  # Arrow's text has no surrogates
        table = {"feature": features, "name": names, "weight": self.weights_, "speaks_for": spoken_for}
        if self.groups_ is not None:
            table["members"] = [len(self.groups_[feature]) for feature in features]
        return pd.DataFrame(table)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, bool)
        mask[self.support_features_] = True
        return mask

    def transform(self, X: Any) -> Any:
        """Keep the support features, in column order.

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
        return super().transform(in_memory(X))

    def decision_values(self, X: Any) -> np.ndarray:
        """Return the values of the model refitted on the supports, (n_outputs, n_samples)."""
        check_is_fitted(self)
        return model_files.decision(support_columns(self, X), self.coef_, self.intercept_)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label or numbers of each sample with the model refitted on the supports."""
        values = self.decision_values(X)
        target: Target = self.target_
        return target.decode(values)

    def _own_targets(self, X: Any, y: Any) -> Any:
        """Return the given targets, or the targets of a store."""
        check_is_fitted(self)
        if y is None and not is_store(X):
            raise BadInput("y must be passed: a matrix has no labels")
        return Labelled(X, self).y if y is None else as_targets(y)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted machine to a folder: ``model.json`` and ``model.npz``, without pickled objects."""
        check_is_fitted(self)
        model_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a machine written by `save`; `gdm_dask.load_model` reads both classes."""
        model: Self = model_files.load(partial(cls._for, path), path)
        return model

    @classmethod
    def _for(cls, path: str | os.PathLike[str], target: Target) -> type[Self]:
        """Return the class itself if it supports the target of the model."""
        if (target.kind == "numbers") != (cls._task == "regression"):
            raise BadInput(f"{path}: not a model of {cls.__name__}. Read it with gdm_dask.load_model.")
        return cls

    def report(self, path: str | os.PathLike[str] | None = None, **options: Any) -> str:
        """Write a report on the fitted machine: supports, groups, map, bounds, cost; one self-contained file.

        Parameters
        ----------
        path : path, optional
            File to write: ``.html``, ``.md`` or ``.json``.
        **options
            `store`, `test`, `image_shape`, `compare`, `stability`, `title`: see `gdm_dask.report.gather`.

        Returns
        -------
        str
            The text of the report; HTML if there is no path.
        """
        from gdm_dask.report import make_report

        return make_report(self, path, **options)

    def _repr_html_inner(self) -> str:
        """HTML view in a notebook: a card for a fitted machine, scikit-learn's diagram before."""
        from gdm_dask.notebook import card

        return card(self) if hasattr(self, "support_features_") else super()._repr_html_inner()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __getstate__(self) -> dict[str, Any]:
        """Pickle a Client as the address of its scheduler."""
        state = dict(super().__getstate__())
        return {**state, "scheduler": _without_connection(state.get("scheduler"))}

    def __sklearn_clone__(self) -> Self:
        """Share the Client with the clone: a connection cannot be copied."""
        cloned: Self = super(GroupDiscovery, copy(self)).__sklearn_clone__()
        cloned.set_params(scheduler=self.scheduler)
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


def _without_connection(scheduler: Any) -> Any:
    """Return the address of a Client, which can be pickled; return any other scheduler unchanged."""
    if scheduler is None or isinstance(scheduler, str):
        return scheduler
    return getattr(getattr(scheduler, "scheduler", None), "address", None)
