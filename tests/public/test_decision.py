"""One decision function: the same bits from any form of the data, and for every caller."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.store_helpers import some_labels, some_matrix

from gdm_dask import GroupDiscoveryMachine, ingest
from gdm_dask.analysis.metrics import Labelled, LinearDecision, evaluate
from gdm_dask.features.correlation import as_rows
from gdm_dask.model import decision


@pytest.fixture(scope="module", params=["sparse", "dense"])
def case(request, tmp_path_factory):
    """A matrix, its store, and a model fitted on it."""
    matrix, labels = some_matrix(), some_labels(60)
    X = matrix if request.param == "sparse" else matrix.toarray()
    store = ingest(X, tmp_path_factory.mktemp("decision") / "s.zarr", labels)
    return sp.csr_array(matrix), store, GroupDiscoveryMachine(5, scheduler="synchronous").fit(store)


def shuffled(matrix):
    """Reverse the entries of each row of a matrix, and split one of them into a sum."""
    rows = sp.csr_array(matrix).tocoo()
    first = int(np.flatnonzero(rows.data)[0])
    value = rows.data[first]
    data = np.append(rows.data[::-1], value / 2)
    data[len(rows.data) - 1 - first] = value / 2
    places = [np.append(axis[::-1], axis[first]) for axis in (rows.row, rows.col)]
    found = sp.csr_array(rows.shape, dtype=np.float64)
    order = np.argsort(places[0], kind="stable")
    found.indptr = np.searchsorted(places[0][order], np.arange(rows.shape[0] + 1)).astype(np.int32)
    found.indices, found.data = places[1][order].astype(np.int32), data[order]
    return found


def in_order(columns, coef, intercept):
    """Compute decisions sample by sample and product by product, in plain Python."""
    found = []
    for row in columns.tolist():
        total = 0.0
        for weight, value in zip(coef.tolist(), row, strict=True):
            total += weight * value
        found.append(total + intercept)
    return np.array(found)


def test_all_forms_of_data_give_the_same_bits(case):
    matrix, store, model = case
    features = model.support_features_
    dense = matrix.toarray()[:, features]
    expected = in_order(dense, model.coef_[0], float(model.intercept_[0]))
    assert not shuffled(matrix[:, features]).has_canonical_format
    forms = [
        dense, np.asfortranarray(dense), sp.csr_array(dense), sp.csc_matrix(dense), shuffled(matrix[:, features]),
        store.load_rows(features), Labelled((matrix, store.y), model).rows(features),
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_array_equal(decision(form, model.coef_, model.intercept_)[0], expected)
    for X in (store, store.url, matrix, matrix.toarray()):
        np.testing.assert_array_equal(model.decision_function(X), expected)


def test_more_samples_than_are_computed_at_a_time():
    rng = np.random.default_rng(0)
    columns, coef, intercept = rng.normal(size=(9000, 7)), rng.normal(size=(2, 7)), np.array([0.5, -1.0])
    for form in (columns, sp.csr_array(columns)):
        for values, weights, own in zip(decision(form, coef, intercept), coef, intercept, strict=True):
            np.testing.assert_array_equal(values, in_order(columns, weights, own))
    assert decision(columns.astype(np.float32), coef, intercept).dtype == np.float64


def test_tasks_over_samples_give_the_same_bits(case):
    _, store, model = case
    linear = LinearDecision(model.coef_[0], model.intercept_[0])
    rows = store.load_rows(model.support_features_)
    in_tasks = linear.predict_in_parallel(rows, "threads", chunk=7)
    np.testing.assert_array_equal(in_tasks, model.decision_function(store))
    assert evaluate(model, store, distributed=True, scheduler="synchronous") == evaluate(model, store)


def test_tasks_over_samples_take_memory_for_nonzeros_only():
    rows = as_rows(sp.random_array((200_000, 20), density=1e-3, format="csr", rng=np.random.default_rng(0)))
    linear = LinearDecision(np.ones(20), 0.0)
    tracemalloc.start()
    try:
        linear.predict_in_parallel(rows, "synchronous")
        assert tracemalloc.get_traced_memory()[1] < 0.5 * rows.n_rows * rows.n_samples * 8
    finally:
        tracemalloc.stop()


def test_an_evaluation_measures_the_decision_function(case):
    _, store, model = case
    expected = model.target_.measures(store.y, model.decision_function(store)[None])
    assert expected["accuracy"] == model.score(store)
    assert evaluate(model, store).items() >= expected.items()
