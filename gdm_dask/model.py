"""A fitted model: attributes, decision values and files.

On disk it consists of ``model.json``, which is readable, and ``model.npz``, which holds the arrays. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import scipy.sparse as sp

from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.settings.constraints import as_list, named_variables
from gdm_dask.store import FeatureStore
from gdm_dask.store.folder import local_folder, write_whole
from gdm_dask.store.targets import Target, target_from_json
from gdm_dask.store.texts import pack_text, unpack_text
from gdm_dask.system.blas import single_threaded_blas
from gdm_dask.system.resources import check_archive

FORMAT = "gdm_dask model"
FORMAT_VERSION = 2
#: Correlations are kept among this many of the strongest supports: a larger map is not readable.
MAX_MAPPED = 500
#: Maximum bytes of a model's arrays, or maximum multiple of their file's bytes: anything larger is not a model.
SMALL_MODEL, MOST_PACKED = 64 << 20, 100
#: Number of samples whose decision values are computed at a time: they stay in the cache.
_CACHED = 4096

_ARRAYS = (
    "support_features_", "weights_", "output_weights_", "coef_", "intercept_", "lower_bounds_", "upper_bounds_",
)  # fmt: skip
_SCALARS: dict[str, type | tuple[type, ...]] = {
    "n_features_in_": int, "gap_": (int, float), "converged_": bool, "stopped_": str, "n_cuts_": int,
    "redundancy_rate_": (int, float), "timings_": dict, "counts_": dict,
}  # fmt: skip
#: Scalars missing from models of earlier versions.
_LATER = ("certified_share_", "C_", "C_path_", "variables_")
#: Arrays of feature numbers.
_FEATURES = ("support_features_", "included_", "affiliations.support", "affiliations.feature", "names.features")
#: Parameters that may be dicts, kept as lists of pairs.
_DICTS = ("class_weight", "groups_of")
_TABLE = ("support", "feature", "correlation", "owner")


class Estimator(Protocol):
    """An estimator in the manner of scikit-learn: parameters and `fit`."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""

    def set_params(self, **params: Any) -> Any:
        """Change parameters; return the estimator."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit on data; return the fitted model."""


class FittedModel(Estimator, Protocol):
    """Attributes of a fitted `GroupDiscoveryMachine`, documented there, that analyses and reports read."""

    tau: float
    C: float | str
    n_features_in_: int
    target_: Target
    classes_: np.ndarray
    support_features_: np.ndarray
    supports_: pd.DataFrame
    included_: np.ndarray
    variables_: dict[str, list[int]]
    weights_: np.ndarray
    output_weights_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    groups_: dict[int, np.ndarray] | None
    affiliations_: pd.DataFrame | None
    names_: dict[int, str]
    profile_: Profile | None  # None in models of the first version
    lower_bounds_: np.ndarray
    upper_bounds_: np.ndarray
    gap_: float
    certified_share_: float | None
    C_: float
    C_path_: dict[str, Any] | None  # None in models of the first version
    converged_: bool
    stopped_: str
    n_cuts_: int
    redundancy_rate_: float
    timings_: dict[str, float]
    counts_: dict[str, int]
    history_: list[Iteration]

    def name_of(self, feature: int) -> str:
        """Return the name of a feature, or its number if there are no names."""


@dataclass(frozen=True, eq=False)
class Profile:
    """Statistics of the supports, strongest first, by class; a target of numbers counts as one class.

    Attributes
    ----------
    class_counts : ndarray of shape (n_classes,), int64
        Number of samples of each class.
    frequency : ndarray of shape (n_classes, k), int64
        Number of samples of each class in which a support is nonzero.
    class_means : ndarray of shape (n_classes, k)
        Mean raw value of each support in each class.
    correlations : ndarray of shape (q, q), float32
        Correlations among the q strongest supports, at most 500.
    """

    class_counts: np.ndarray
    frequency: np.ndarray
    class_means: np.ndarray
    correlations: np.ndarray

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Profile):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.names())

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the arrays, as in a model file."""
        return [field.name for field in fields(cls)]


def profile_of(rows: Block, members: np.ndarray, rho: np.ndarray) -> Profile:
    """Compute the profile of support rows with these correlations; `members` marks each class's samples (see `Target`).

    Examples
    --------
    >>> rows = Block(0, 1, 3, np.array([[0.0, 2.0, 4.0]]), np.array([2.0]), np.array([np.sqrt(8)]))
    >>> found = profile_of(rows, np.array([[True, False, False], [False, True, True]]), np.ones((1, 1)))
    >>> found.class_counts.tolist(), found.frequency.tolist(), found.class_means.tolist()
    ([1, 2], [[0], [2]], [[0.0], [3.0]])
    """
    member = members.astype(np.float64)
    class_counts = member.sum(axis=1)
    matrix = rows.matrix()
    with single_threaded_blas():
        sums = (matrix @ member.T).T
    present = (matrix != 0).astype(np.float64)
    return Profile(
        class_counts.astype(np.int64),
        np.rint((present @ member.T).T).astype(np.int64),
        sums / np.maximum(class_counts, 1)[:, None],
        rho[:MAX_MAPPED, :MAX_MAPPED].astype(np.float32),
    )


def set_target(model: Any, target: Target) -> None:
    """Set `target_`, and `classes_` if the target has classes."""
    model.__dict__.pop("classes_", None)  # from an earlier fit
    model.target_ = target
    if hasattr(target, "classes"):
        model.classes_ = np.array(target.classes)


def names_in(model: Any, X: Any) -> Iterable[str] | None:
    """Return the names of all features of a store, or of the data that a model was given; None without names."""
    if isinstance(X, FeatureStore):
        return X.iter_names() if X.has_names else None
    return getattr(model, "feature_names_in_", None)


def names_at(model: Any, X: Any, features: np.ndarray) -> list[str] | None:
    """Return the names of some features, as `names_in` does."""
    if isinstance(X, FeatureStore):
        return X.names_of(features) if X.has_names else None
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [*map(str, names[features])]


def decision(columns: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Compute the decision values of a linear model on some features.

    The products of a sample are added in the order of the features, so the bits of the result are the same for an
    array, a sparse matrix and rows of a store.

    Parameters
    ----------
    columns : Block of k rows, or array or sparse matrix of shape (n_samples, k)
        Raw values.
    coef : ndarray of shape (n_outputs, k)
    intercept : ndarray of shape (n_outputs,)

    Returns
    -------
    ndarray of shape (n_outputs, n_samples)

    Examples
    --------
    >>> decision(np.array([[1.0, 0.0], [2.0, 3.0]]), np.array([[0.5, -1.0]]), np.array([0.25])).tolist()
    [[0.75, -1.75]]
    """
    rows = columns.matrix() if isinstance(columns, Block) else columns.T
    values = np.zeros((len(coef), rows.shape[1]))
    if sp.issparse(rows):
        matrix = sp.csr_array(rows)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        for weights, (start, stop) in zip(coef.T, itertools.pairwise(matrix.indptr.tolist()), strict=True):
            for output, weight in zip(values, weights, strict=True):
                output[matrix.indices[start:stop]] += weight * matrix.data[start:stop]
    else:
        for first in range(0, values.shape[1], _CACHED):
            for output, weights in zip(values, coef, strict=True):
                part = output[first : first + _CACHED]
                for weight, row in zip(weights, rows[:, first : first + _CACHED], strict=True):
                    part += weight * row
    values += intercept[:, None]
    return values


def save(model: FittedModel, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; the JSON file is written last and holds the checksum of the arrays."""
    folder = local_folder(path, "the place of a model")
    if folder.is_file():
        raise BadInput(f"{folder} is a file: choose a folder for the model")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(model, name) for name in (*_ARRAYS, "included_")}
    if model.affiliations_ is not None:
        arrays |= {f"affiliations.{name}": model.affiliations_[name].to_numpy() for name in _TABLE}
    if model.profile_ is not None:
        arrays |= {f"profile.{name}": getattr(model.profile_, name) for name in Profile.names()}
    if model.names_:
        arrays["names.features"] = np.array(list(model.names_))
        arrays |= {f"names.{key}": value for key, value in pack_text(list(model.names_.values())).items()}
    if hasattr(model, "feature_names_in_"):
        arrays |= {f"names_in.{key}": value for key, value in pack_text(list(model.feature_names_in_)).items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    given = model.get_params()
    given |= {name: as_list(name, given[name]) for name in ("include", "exclude") if given.get(name) is not None}
    if given.get("groups_of") is not None:
        given["groups_of"] = named_variables(given["groups_of"], model.n_features_in_)
    parameters = {name: plain(value) for name, value in given.items() if name != "scheduler"}
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "parameters": {name: value for name, value in parameters.items() if _is_plain(value)},
        "target": model.target_.to_json(),
        **{name: getattr(model, name) for name in (*_SCALARS, *_LATER)},
        "history": [asdict(iteration) for iteration in model.history_],
        "arrays_sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    write_whole(folder / "model.npz", buffer.getvalue())
    write_whole(folder / "model.json", json.dumps(document, indent=1).encode())


def plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to plain ones and a dict to a list of pairs; return anything else unchanged."""
    if isinstance(value, Mapping):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list))


def load(class_of: Callable[[Target], type], path: str | os.PathLike[str]) -> Any:
    """Read a model; refuse damaged files and newer format versions. `class_of` returns the class for a target."""
    folder = Path(path)
    try:
        document = json.loads((folder / "model.json").read_bytes())
        data = (folder / "model.npz").read_bytes()
    except OSError as error:
        raise BadInput(
            f"{folder}: there is no fitted model here ({error.strerror}). Make one with 'gdm fit'."
        ) from error
    except ValueError as error:
        raise BadInput(f"{folder / 'model.json'}: the file is damaged. Fit again.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadInput(f"{folder / 'model.json'}: not a model of gdm_dask")
    version = document.get("format_version")
    if not isinstance(version, int) or "arrays_sha256" not in document:
        raise BadInput(f"{folder / 'model.json'}: the file is damaged. Fit again.")
    if version > FORMAT_VERSION:
        raise BadInput(
            f"{folder}: the model has format version {version}, this software reads up to "
            f"{FORMAT_VERSION}. Install a newer gdm_dask."
        )
    if hashlib.sha256(data).hexdigest() != document["arrays_sha256"]:
        raise BadInput(f"{folder / 'model.npz'}: the file is damaged or of another model. Fit again.")
    try:
        if version == 1:
            document["target"] = {"kind": "classes", "classes": document.pop("classes")}
        target = target_from_json(document["target"])
    except (KeyError, BadInput) as error:
        raise BadInput(f"{folder}: the model is malformed: {error}. Fit again.") from error
    cls = class_of(target)
    try:
        check_archive(io.BytesIO(data), max(SMALL_MODEL, MOST_PACKED * len(data)))
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return _restore(cls, target, document, dict(arrays))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"{folder}: the model is malformed: {error}. Fit again.") from error


def _restore(cls: type, target: Target, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    # version 0.1 had no intercept, a single source of duals and a single output
    parameters = {"fit_intercept": False, "master": "cuts", **document["parameters"]}
    parameters |= {name: dict(parameters[name]) for name in _DICTS if isinstance(parameters.get(name), list)}
    parameters.pop("scheduler", None)  # never connect to an address from a file
    model = cls(**parameters)
    arrays.setdefault("output_weights_", arrays["weights_"][None])
    model.included_ = arrays.setdefault("included_", np.zeros(0, np.int64))
    _check_shapes(document, arrays, target.n_outputs)
    for name in _ARRAYS:
        setattr(model, name, arrays[name])
    for name, kind in _SCALARS.items():
        if not isinstance(document[name], kind):
            raise ValueError(f"{name} is {document[name]!r}")
        setattr(model, name, document[name])
    for name in _LATER:
        setattr(model, name, document.get(name))
    model.variables_ = {str(name): [*map(int, own)] for name, own in (document.get("variables_") or {}).items()}
    model.C_ = model.C if model.C_ is None else model.C_
    set_target(model, target)
    model.history_ = [Iteration(**iteration) for iteration in document["history"]]
    model.groups_ = model.affiliations_ = model.profile_ = None
    if "affiliations.support" in arrays:
        table = pd.DataFrame({name: arrays[f"affiliations.{name}"] for name in _TABLE})
        model.affiliations_ = table
        support, feature = arrays["affiliations.support"], arrays["affiliations.feature"]
        model.groups_ = {int(k): np.sort(feature[support == k]) for k in model.support_features_}
    if "profile.class_counts" in arrays:
        model.profile_ = Profile(**{name: arrays[f"profile.{name}"] for name in Profile.names()})
    model.names_ = {}
    if "names.text" in arrays:
        texts = unpack_text(arrays["names.offsets"], arrays["names.text"])
        model.names_ = dict(zip(arrays["names.features"].tolist(), texts, strict=True))
    if "names_in.text" in arrays:
        texts = unpack_text(arrays["names_in.offsets"], arrays["names_in.text"])
        model.feature_names_in_ = np.array(texts, dtype=object)
    return model


def _check_shapes(document: dict[str, Any], arrays: dict[str, np.ndarray], n_outputs: int) -> None:
    """Raise ValueError unless the arrays of a model match each other and its number of features."""
    n_features, k = document["n_features_in_"], arrays["support_features_"].size
    tables = ("lower_bounds_", "affiliations.support", "profile.class_counts", "names.features")
    n_cuts, n_pairs, n_classes, n_names = (arrays[name].size if name in arrays else 0 for name in tables)
    mapped = min(k, MAX_MAPPED)
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "support_features_": ("i", (k,)), "weights_": ("f", (k,)), "coef_": ("f", (n_outputs, k)),
        "output_weights_": ("f", (n_outputs, k)), "included_": ("i", (-1,)),
        "intercept_": ("f", (n_outputs,)), "lower_bounds_": ("f", (n_cuts,)), "upper_bounds_": ("f", (n_cuts,)),
        "affiliations.support": ("i", (n_pairs,)), "affiliations.feature": ("i", (n_pairs,)),
        "affiliations.correlation": ("f", (n_pairs,)), "affiliations.owner": ("b", (n_pairs,)),
        "profile.class_counts": ("i", (n_classes,)), "profile.frequency": ("i", (n_classes, k)),
        "profile.class_means": ("f", (n_classes, k)), "profile.correlations": ("f", (mapped, mapped)),
        "names.features": ("i", (n_names,)), "names.offsets": ("i", (n_names + 1,)), "names.text": ("u", (-1,)),
        "names_in.offsets": ("i", (n_features + 1,)), "names_in.text": ("u", (-1,)),
    }  # fmt: skip
    for name, array in arrays.items():
        kind, shape = wanted[name]
        if array.dtype.kind != kind or array.ndim != len(shape) or (-1 not in shape and array.shape != shape):
            raise ValueError(f"the array {name!r} is {array.dtype} of shape {array.shape}")
        if name in _FEATURES and array.size and not (array.min() >= 0 and array.max() < n_features):
            raise ValueError(f"{name!r} has features that are not among {n_features}")
