"""Errors name the bad input; `BadInput` is a `ValueError`."""

from __future__ import annotations

import json
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from helpers.instances import informative

from gdm_dask import GroupDiscoveryMachine, feature_correlations, information_gain, ingest, redundancy_rate
from gdm_dask.errors import BadInput

ROWS, Y = informative(12, 40, 0)
X = ROWS.T.copy()

PARAMETERS = [
    *(("tau", value, r"`tau` must be in \[0, 1\)") for value in (1, 1.5, -0.1, np.nan, "0.25", None, True)),
    *(
        ("C", value, "`C` must be .auto. or a positive number, got ")
        for value in (0, -1, np.nan, np.inf, "1", None, True)
    ),
    *(("C", value, r"`C` must be from 1e-100 to 1e\+100, got ") for value in (1e-101, 1e101, 10**400)),
    *(
        ("cut_size", value, "`cut_size` must be 'auto' or an integer >= 1")
        for value in (0, -3, 1.5, "many", None, True)
    ),
    *(
        ("n_features_to_select", value, "`n_features_to_select` must be None or an integer >= 1")
        for value in (0, -3, 1.5, "all", True)
    ),
    *(("max_cuts", value, "`max_cuts` must be None or an integer >= 1") for value in (0, -1, 2.0, "ten", False)),
    *(("tol", value, "`tol` must be a number >= 0") for value in (-1e-3, np.nan, "small", None, False)),
    *(("measure", value, "`measure` must be one of pearson, spearman") for value in ("kendall", None, 1, ["su"])),
    *(("linkage", value, "`linkage` must be one of star, clique, component") for value in ("single", None, 1)),
    *(("matching", value, "`matching` must be one of greedy, exact") for value in ("best", None, 1, np.array("exact"))),
    *(("scheduler", value, "scheduler") for value in ("thread", 5, ["threads"])),
    *(("memory_limit", value, "size") for value in ("much", 0, -1, np.inf, np.nan)),
    *(("groups", value, "`groups` must be True or False") for value in (None, 1, "no")),
    *(("verbose", value, "`verbose` must be an integer >= 0") for value in (None, -1, "no", 1.5)),
    *(("certify", value, "`certify` must be True or False") for value in (None, 1, "yes")),
    *(("class_weight", value, "`class_weight` must be None, 'balanced' or a dict") for value in ("rare", 2, {1: -1.0})),
    *(("n_workers", value, "`n_workers` must be None or an integer >= 1") for value in (0, 1.5, "2", True)),
]


@pytest.mark.parametrize(("name", "value", "message"), PARAMETERS)
def test_parameters(tmp_path: Path, name: str, value, message: str) -> None:
    store = ingest(X, tmp_path / "data.zarr", Y)
    with pytest.raises(BadInput, match=message):
        GroupDiscoveryMachine(**{name: value}).fit(store)


def test_bad_input_is_a_value_error() -> None:
    assert issubclass(BadInput, ValueError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix, da.from_array])
def test_values_that_are_no_numbers(value: float, form) -> None:
    bad = X.copy()
    bad[3, 5] = value
    with pytest.raises(ValueError, match=r"NaN|infinity|inf"):
        GroupDiscoveryMachine().fit(form(bad), Y)


@pytest.mark.parametrize(
    ("bad", "y"),
    [
        (X[0], Y),
        (X[None], Y),
        (X, Y[:-1]),
        (X[:-1], Y),
        (X, np.column_stack([Y, Y])),
        (X[:0], Y[:0]),
        (X[:, :0], Y),
        (X[:1], Y[:1]),
        (np.full((40, 3), "a"), Y),
        (X.astype(complex), Y),
    ],
)
def test_shapes_and_types(bad: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"."):
        GroupDiscoveryMachine().fit(bad, y)


def test_dask_arrays_of_another_shape() -> None:
    with pytest.raises(BadInput, match="39 labels for 40 samples"):
        GroupDiscoveryMachine().fit(da.from_array(X), Y[:-1])
    with pytest.raises(BadInput, match="samples x features"):
        GroupDiscoveryMachine().fit(da.from_array(X[0]), Y)
    with pytest.raises(BadInput, match="samples x features"):
        GroupDiscoveryMachine(3).fit(X, Y).predict(da.from_array(X[0]))


def test_a_matrix_without_samples_has_no_correlations() -> None:
    for empty in (np.zeros((0, 3)), sp.csr_array((0, 3))):
        with pytest.raises(BadInput, match="no samples"):
            feature_correlations(empty)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ma.array(X, mask=X > 0), "the matrix has masked values: fill them in first"),
        (X.astype(complex), "the matrix holds complex numbers"),
        (sp.csr_array(X.astype(complex)), "the matrix holds complex numbers"),
        (np.full((40, 3), "a"), "the matrix must hold real numbers: could not convert string"),
    ],
)
def test_a_matrix_without_real_numbers_has_no_correlations(bad, message) -> None:
    with pytest.raises(BadInput, match=message):
        feature_correlations(bad)
    with pytest.raises(BadInput, match=message):
        redundancy_rate(bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ma.array(Y, mask=Y > 0), "the input has masked values: fill them in first"),
        (np.array([None, "a"] * 20, object), "the values of a feature must have one type, without None"),
        (np.array([1, "a"] * 20, object), "the values of a feature must have one type, without None"),
    ],
)
def test_values_that_cannot_be_compared_have_no_information(bad, message) -> None:
    for one, other in ((bad, Y), (Y, bad)):
        with pytest.raises(BadInput, match=message):
            information_gain(one, other)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, da.from_array])
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.ones(40), r"one class|two classes"),
        (np.arange(40), r"40 classes for 40 samples"),
        (np.linspace(0, 1, 40), r"continuous|Unknown label type|binary"),
        (np.where(Y > 0, np.nan, 1.0), "NaN"),
        (None, "requires y"),
    ],
)
def test_labels(form, y, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GroupDiscoveryMachine().fit(form(X), y)


def test_a_store_with_samples_of_one_class(tmp_path: Path) -> None:
    train = ingest(X, tmp_path / "train.zarr", Y)
    alike = ingest(X[Y > 0], tmp_path / "one.zarr", Y[Y > 0], like=train)
    with pytest.raises(BadInput, match=r"one\.zarr holds samples of one class only"):
        GroupDiscoveryMachine(2).fit(alike)


def test_labels_for_a_store(tmp_path: Path) -> None:
    store = ingest(X, tmp_path / "data.zarr", Y)
    with pytest.raises(BadInput, match="39 labels for 40 samples"):
        GroupDiscoveryMachine().fit(store, Y[:-1])
    with pytest.raises(BadInput, match="40 classes for 40 samples"):
        GroupDiscoveryMachine().fit(store, np.arange(40))


@pytest.mark.parametrize("bad", [np.zeros((40, 3)), np.full((40, 3), 7.5), sp.csr_array((40, 3))])
def test_nothing_to_choose_from(bad) -> None:
    with pytest.raises(BadInput, match="no feature is informative about y"):
        GroupDiscoveryMachine().fit(bad, Y)


def test_a_store_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere: there is no feature store here"):
        GroupDiscoveryMachine().fit(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="there is no feature store here"):
        GroupDiscoveryMachine().fit(X, Y).predict(str(tmp_path / "nowhere"))


def test_a_store_of_another_format_version(tmp_path: Path) -> None:
    ingest(X, tmp_path / "data.zarr", Y)
    root = json.loads((tmp_path / "data.zarr" / "zarr.json").read_text())
    root["attributes"]["gdm_dask"]["format_version"] = 99
    (tmp_path / "data.zarr" / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(BadInput, match="format version 99"):
        GroupDiscoveryMachine().fit(tmp_path / "data.zarr")


@pytest.mark.parametrize("method", ["predict", "decision_function", "transform", "score"])
def test_another_number_of_features(tmp_path: Path, method: str) -> None:
    gdm = GroupDiscoveryMachine(n_features_to_select=2).fit(X, Y)
    other = X[:, :-1]
    store = ingest(other, tmp_path / "data.zarr", Y)
    labels = [Y] if method == "score" else []
    for given in (other, sp.csr_array(other), da.from_array(other), store, tmp_path / "data.zarr"):
        with pytest.raises(ValueError, match=r"11 features"):
            getattr(gdm, method)(given, *labels)


@pytest.mark.parametrize("method", ["predict", "decision_function", "transform", "get_support"])
def test_a_machine_that_was_not_fitted(method: str) -> None:
    for given in ([X], [da.from_array(X)]):
        with pytest.raises(ValueError, match="not fitted"):
            getattr(GroupDiscoveryMachine(), method)(*given if method != "get_support" else [])
