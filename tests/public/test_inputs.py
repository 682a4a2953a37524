"""All inputs of `fit` are equivalent: arrays, sparse matrices, Dask arrays, DataFrames, stores and their paths."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from helpers.clusters import same_fit
from helpers.instances import informative

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, group_importance, ingest, open_store
from gdm_dask import stability_selection as stability
from gdm_dask.analysis.metrics import evaluate
from gdm_dask.errors import BadInput

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 6}


@pytest.fixture(scope="module", params=["groups", "counts"])
def data(request) -> tuple[np.ndarray, np.ndarray]:
    X, y = informative(40, 90, 3, request.param)
    return X.T.copy(), y


@pytest.fixture(scope="module")
def fitted(data) -> dict[str, GroupDiscoveryMachine]:
    """Inputs by how their rows are stored, the only thing that may change the last bits."""
    X, y = data
    return {
        "dense": GroupDiscoveryMachine(**SETTINGS).fit(X, y),
        "sparse": GroupDiscoveryMachine(**SETTINGS).fit(sp.csr_array(X), y),
    }


@pytest.mark.parametrize("form", ["csc_array", "csr_matrix", "csc_matrix", "coo_array", "coo_matrix", "lil_array"])
def test_sparse_formats(data, fitted, form: str) -> None:
    X, y = data
    matrix = getattr(sp, form)(X)
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(matrix, y)
    same_fit(gdm, fitted["sparse"])
    np.testing.assert_allclose(gdm.decision_function(matrix), gdm.decision_function(X), atol=1e-10)
    np.testing.assert_array_equal(gdm.transform(matrix).toarray(), gdm.transform(X))


@pytest.mark.parametrize("kind", [list, np.asfortranarray, pd.DataFrame, lambda X: X.astype(np.longdouble)])
def test_dense_forms(data, fitted, kind) -> None:
    X, y = data
    same_fit(GroupDiscoveryMachine(**SETTINGS).fit(kind(X), y), fitted["dense"])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float32, np.bool_])
def test_types_of_numbers_that_hold_the_values(dtype) -> None:
    X, y = informative(20, 60, 0, "binary")
    expected = GroupDiscoveryMachine(**SETTINGS).fit(X.T, y)
    for matrix in (X.T.astype(dtype), sp.csr_array(X.T.astype(dtype))):
        gdm = GroupDiscoveryMachine(**SETTINGS).fit(matrix, y)
        np.testing.assert_array_equal(gdm.support_features_, expected.support_features_)
        np.testing.assert_allclose(gdm.weights_, expected.weights_, rtol=1e-6)


def test_dense_and_sparse_storage_agree_up_to_rounding(data, fitted) -> None:
    dense, sparse = fitted["dense"], fitted["sparse"]
    np.testing.assert_array_equal(dense.support_features_, sparse.support_features_)
    np.testing.assert_allclose(dense.weights_, sparse.weights_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(dense.lower_bounds_, sparse.lower_bounds_, rtol=1e-6)
    np.testing.assert_allclose(dense.upper_bounds_, sparse.upper_bounds_, rtol=1e-3)
    np.testing.assert_array_equal(dense.affiliations_["feature"], sparse.affiliations_["feature"])
    np.testing.assert_allclose(dense.affiliations_["correlation"], sparse.affiliations_["correlation"], atol=1e-12)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("form", ["store", "path", "text"])
def test_stores(data, fitted, tmp_path: Path, storage: str, form: str) -> None:
    X, y = data
    words = np.where(y > 0, "spam", "ham")
    matrix = X if storage == "dense" else sp.csr_array(X)
    store = ingest(matrix, tmp_path / "data.zarr", words, block_bytes=1000)
    assert store.n_blocks > 2
    given = {"store": store, "path": tmp_path / "data.zarr", "text": str(tmp_path / "data.zarr")}[form]
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(given)
    same_fit(gdm, fitted[storage])
    assert gdm.classes_.tolist() == ["ham", "spam"]
    np.testing.assert_array_equal(gdm.predict(given), gdm.predict(X))
    np.testing.assert_allclose(gdm.decision_function(given), gdm.decision_function(X), atol=1e-10)
    np.testing.assert_array_equal(gdm.transform(given).toarray(), gdm.transform(X))
    assert gdm.score(given) == gdm.score(given, words) == gdm.score(X, words)


def test_a_store_of_text_labels_is_scored_by_their_names(data, tmp_path: Path) -> None:
    X, y = data
    numbers = np.where(y > 0, 10, 2)
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(X, numbers)
    store = ingest(X, tmp_path / "text.zarr", numbers.astype(str))
    assert store.classes == ["10", "2"]
    assert gdm.score(store) == gdm.score(X, numbers)
    with pytest.raises(ValueError, match=r"has the classes \['4', '6'\], but the model was fitted on \[2, 10\]"):
        gdm.score(ingest(X, tmp_path / "other.zarr", y + 5))


def test_labels_that_are_given_take_the_place_of_the_stores(data, tmp_path: Path) -> None:
    X, y = data
    store = ingest(X, tmp_path / "data.zarr", y)
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(store, np.where(y > 0, "b", "a"))
    assert gdm.classes_.tolist() == ["a", "b"]
    other = GroupDiscoveryMachine(**SETTINGS).fit(store, -y)
    np.testing.assert_array_equal(other.support_features_, gdm.support_features_)
    np.testing.assert_allclose(other.weights_, -gdm.weights_, rtol=1e-6)


def test_names_of_a_store(data, tmp_path: Path) -> None:
    X, y = data
    names = [f"word {j}" for j in range(X.shape[1])]
    ingest(pd.DataFrame(X, columns=names), tmp_path / "data.zarr", y)
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(tmp_path / "data.zarr")
    assert gdm.feature_names_in_.tolist() == names
    assert gdm.get_feature_names_out().tolist() == [names[j] for j in sorted(gdm.support_features_)]
    ingest(X, tmp_path / "nameless.zarr", y)
    gdm.fit(tmp_path / "nameless.zarr")
    assert not hasattr(gdm, "feature_names_in_")


def test_a_store_with_its_features_in_another_order_is_refused(data, tmp_path: Path) -> None:
    X, y = data
    table = pd.DataFrame(X, columns=[f"word {j}" for j in range(X.shape[1])])
    train = ingest(table, tmp_path / "train.zarr", y)
    moved = ingest(table[table.columns[::-1]], tmp_path / "moved.zarr", y)
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(train)
    message = r"moved.zarr: feature \d+ is 'word \d+', but was 'word \d+' in the fit: ingest it with --like"
    for use in (gdm.predict, gdm.transform, gdm.score, partial(group_importance, gdm), partial(evaluate, gdm)):
        with pytest.raises(ValueError, match=f"{message} the training store$"):
            use(moved)
    nameless = ingest(X, tmp_path / "nameless.zarr", y)
    np.testing.assert_array_equal(gdm.predict(nameless), gdm.predict(train))


@pytest.mark.parametrize("chunks", [(30, 40), (90, 7)])
def test_dask_arrays(data, fitted, chunks: tuple[int, int]) -> None:
    X, y = data
    lazy, lazy_y = da.from_array(X, chunks=chunks), da.from_array(y, chunks=chunks[0])
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(lazy, lazy_y)
    same_fit(gdm, fitted["dense"])
    same_fit(GroupDiscoveryMachine(**SETTINGS).fit(lazy, y), fitted["dense"])
    np.testing.assert_array_equal(gdm.predict(lazy), gdm.predict(X))
    np.testing.assert_array_equal(gdm.transform(lazy).compute(), gdm.transform(X))
    assert gdm.score(lazy, y) == gdm.score(X, y)


def test_dask_data_frames_and_unknown_chunks(data, fitted) -> None:
    X, y = data
    frame = pd.DataFrame(X).add_prefix("word ")
    lazy = dd.from_pandas(frame, npartitions=3)
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(lazy, y)
    same_fit(gdm, fitted["dense"])
    assert gdm.feature_names_in_.tolist() == frame.columns.tolist()
    unknown = lazy.to_dask_array()
    same_fit(GroupDiscoveryMachine(**SETTINGS).fit(unknown, y), fitted["dense"])
    assert np.isnan(unknown.shape[0])
    for given in (lazy, unknown):
        np.testing.assert_array_equal(gdm.predict(given), gdm.predict(frame))
        np.testing.assert_array_equal(gdm.transform(given).compute(), gdm.transform(frame))


def test_numbers_of_columns_are_no_names(data) -> None:
    X, y = data
    for frame in (pd.DataFrame(X), dd.from_pandas(pd.DataFrame(X), npartitions=2)):
        gdm = GroupDiscoveryMachine(**SETTINGS).fit(frame, y)
        assert (hasattr(gdm, "feature_names_in_"), gdm.names_) == (False, {})
        assert gdm.score(X, y) == gdm.score(frame, y)


@pytest.mark.parametrize("method", ["predict", "transform"])
def test_columns_in_another_order_are_refused(data, method: str) -> None:
    X, y = data
    frame = pd.DataFrame(X).add_prefix("word ")
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(dd.from_pandas(frame, npartitions=2), y)
    turned = frame[frame.columns[::-1]]
    with pytest.raises(ValueError, match="in the same order as they were in fit"):
        getattr(gdm, method)(turned)
    with pytest.raises(ValueError, match=r"in the same order: got 'word .*' in place of 'word 0'"):
        getattr(gdm, method)(dd.from_pandas(turned, npartitions=2))


@pytest.mark.parametrize("kind", [pl.DataFrame, pa.Table.from_pandas, pa.RecordBatch.from_pandas])
def test_tables_of_other_libraries(data, fitted, kind) -> None:
    X, y = data
    frame = pd.DataFrame(X).add_prefix("word ")
    table, turned = kind(frame), kind(frame[frame.columns[::-1]])
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(table, y)
    same_fit(gdm, fitted["dense"])
    np.testing.assert_array_equal(gdm.predict(table), fitted["dense"].predict(X))
    np.testing.assert_array_equal(gdm.transform(table), fitted["dense"].transform(X))
    for method in (gdm.predict, gdm.transform):
        with pytest.raises(ValueError, match="in the same order as they were in fit"):
            method(turned)


def test_a_fit_and_a_prediction_take_the_same_types_of_columns() -> None:
    X, y = informative(20, 60, 0, "counts")
    frame = pd.DataFrame(X.T.astype(int)).add_prefix("word ")
    expected = GroupDiscoveryMachine(**SETTINGS).fit(frame, y)
    nullable = frame.astype("Int64")
    for table in (nullable, dd.from_pandas(nullable, npartitions=3), pl.DataFrame(frame).cast(pl.Decimal(20, 2))):
        gdm = GroupDiscoveryMachine(**SETTINGS).fit(table, y)
        same_fit(gdm, expected)
        np.testing.assert_array_equal(gdm.predict(table), expected.predict(frame))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_integers_that_would_be_rounded_are_refused(kind) -> None:
    table = kind({"a": [0.5, 2.0, 1.0, 3.0], "id": [1, 2, 3, 2**53 + 1]})
    with pytest.raises(BadInput, match="column 'id' of the DataFrame: some int64 values are not exact in float64"):
        GroupDiscoveryMachine(1).fit(table, [0, 1, 0, 1])


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_a_column_without_finite_values_is_named(value, what) -> None:
    table = pd.DataFrame({"a": [0.5, 2.0, 1.0, 3.0], "b": [1.0, 2.0, value, 1.0]})
    with pytest.raises(BadInput, match=f"column 'b' of the DataFrame contains {what}, first in row 2"):
        GroupDiscoveryMachine(1).fit(table, [0, 1, 0, 1])


@pytest.mark.parametrize(
    "use",
    [
        lambda gdm, X, y, hidden: gdm.fit(hidden(X), y),
        lambda gdm, X, y, hidden: gdm.fit(da.from_array(hidden(X)), y),
        lambda gdm, X, y, hidden: gdm.fit(X, hidden(y)),
        lambda gdm, X, y, hidden: GroupDiscoveryRegressor(1).fit(X, hidden(y)),
        lambda gdm, X, y, hidden: gdm.fit(X, y, sample_weight=hidden(np.ones(len(y)))),
        lambda gdm, X, y, hidden: gdm.predict(hidden(X)),
        lambda gdm, X, y, hidden: gdm.predict(da.from_array(hidden(X))),
        lambda gdm, X, y, hidden: gdm.transform(hidden(X)),
        lambda gdm, X, y, hidden: gdm.score(X, hidden(y)),
        lambda gdm, X, y, hidden: group_importance(gdm, (hidden(X), y)),
        lambda gdm, X, y, hidden: group_importance(gdm, (X, hidden(y))),
        lambda gdm, X, y, hidden: stability(gdm, hidden(X), y, n_repeats=2),
        lambda gdm, X, y, hidden: stability(gdm, X, hidden(y), n_repeats=2),
    ],
)
def test_masked_values_are_refused(use) -> None:
    X, y = informative(6, 30, 0, "groups")
    gdm = GroupDiscoveryMachine(1).fit(X.T, y)
    use(gdm, X.T, y, np.ma.array)  # nothing is hidden
    with pytest.raises(BadInput, match="masked values: fill them in first, with its `filled` method"):
        use(gdm, X.T, y, lambda values: np.ma.array(values, mask=True))


def test_a_score_of_a_matrix_needs_targets(data, fitted) -> None:
    with pytest.raises(BadInput, match="y must be passed: a matrix has no labels"):
        fitted["dense"].score(data[0])


def test_a_column_is_no_matrix() -> None:
    for column in (pl.Series([0.5, 2.0]), pd.Series([0.5, 2.0])):
        with pytest.raises(ValueError, match="Expected a 2-dimensional container"):
            GroupDiscoveryMachine(1).fit(column, [0, 1])


def test_dask_array_of_sparse_blocks(data, fitted) -> None:
    X, y = data
    lazy = da.from_array(X, chunks=(30, 40)).map_blocks(sp.csr_matrix)
    same_fit(GroupDiscoveryMachine(**SETTINGS).fit(lazy, y), fitted["sparse"])


@pytest.mark.parametrize(
    "label",
    [
        lambda y: y,
        lambda y: y > 0,
        lambda y: np.where(y > 0, "yes", "no"),
        lambda y: np.where(y > 0, "yes", "no").astype(np.dtypes.StringDType()),
        lambda y: np.where(y > 0, 7, 3),
    ],
)
def test_labels_of_any_kind(data, fitted, label) -> None:
    X, y = data
    gdm = GroupDiscoveryMachine(**SETTINGS).fit(X, label(y))
    same_fit(gdm, fitted["dense"])
    np.testing.assert_array_equal(gdm.classes_, np.unique(label(y)))
    assert gdm.score(X, label(y)) == fitted["dense"].score(X, y)


def test_the_input_is_left_as_it_was(data) -> None:
    X, y = data
    matrix = sp.csr_array(X)
    before = X.copy(), matrix.copy()
    GroupDiscoveryMachine(**SETTINGS).fit(X, y)
    GroupDiscoveryMachine(**SETTINGS).fit(matrix, y)
    np.testing.assert_array_equal(X, before[0])
    assert (matrix != before[1]).nnz == 0


def test_a_store_that_was_opened_again_is_the_same(data, tmp_path: Path) -> None:
    X, y = data
    ingest(X, tmp_path / "data.zarr", y)
    one = GroupDiscoveryMachine(**SETTINGS).fit(open_store(tmp_path / "data.zarr"))
    same_fit(one, GroupDiscoveryMachine(**SETTINGS).fit(open_store(tmp_path / "data.zarr")))
