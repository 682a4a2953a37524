"""Tables with named columns as sources: CSV, TSV and Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from helpers.store_helpers import gdm

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.pipeline import load_pipeline, run_pipeline

N_SAMPLES, N_FEATURES = 500, 30


def some_table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((N_SAMPLES, N_FEATURES)) * 10.0 ** rng.integers(-9, 9, N_FEATURES)
    values[rng.random(values.shape) < 0.3] = 0.0
    frame = pd.DataFrame(values, columns=[f"gene {number}, left" for number in range(N_FEATURES)])
    frame.insert(4, "diagnosis", np.where(values[:, 0] > 0, "ill, or so", "well"))
    return frame.set_index(pd.Index([f"patient {number}" for number in range(N_SAMPLES)]))


def assert_same(store: gdm_dask.FeatureStore, table: pd.DataFrame, target: str = "diagnosis") -> None:
    values = table.drop(columns=target)
    np.testing.assert_array_equal(store.to_scipy().toarray().T, values.to_numpy())
    assert store.feature_names == list(values.columns)
    np.testing.assert_array_equal(store.y, table[target].to_numpy())


WRITERS = {
    "a.csv": lambda table, path: table.to_csv(path),
    "a.csv.gz": lambda table, path: table.to_csv(path),
    "a.tsv": lambda table, path: table.to_csv(path, sep="\t"),
    "semicolons.csv": lambda table, path: table.to_csv(path, sep=";"),
    "windows.csv": lambda table, path: table.to_csv(path, lineterminator="\r\n", encoding="utf-8-sig"),
    "a.parquet": lambda table, path: table.to_parquet(path, row_group_size=70),
}


@pytest.mark.parametrize("run_bytes", ["16kB", None])
@pytest.mark.parametrize("name", WRITERS)
def test_a_table_keeps_values_names_ids_and_target(tmp_path: Path, name: str, run_bytes: str | None) -> None:
    table = some_table()
    WRITERS[name](table, tmp_path / name)
    store = gdm_dask.ingest(str(tmp_path / name), tmp_path / "a.zarr", "diagnosis", run_bytes=run_bytes)
    assert_same(store, table)
    assert store.sample_ids == list(table.index)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_holds_the_sample_weights(tmp_path: Path, name: str) -> None:
    table = some_table()
    weighed = table.assign(times=np.arange(N_SAMPLES) % 3)
    WRITERS[name](weighed, tmp_path / name)
    store = gdm_dask.ingest(str(tmp_path / name), tmp_path / "a.zarr", "diagnosis", sample_weight="times")
    assert_same(store, table)
    np.testing.assert_array_equal(store.sample_weight, weighed["times"])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_columns_are_dropped(tmp_path: Path, capsys, name: str) -> None:
    table = some_table()
    WRITERS[name](table.assign(patient="P", visit="2024-01-01"), tmp_path / name)
    source, place = str(tmp_path / name), str(tmp_path / "a.zarr")
    with pytest.raises(BadInput, match="patient"):
        gdm_dask.ingest(source, place, "diagnosis", run_bytes="16kB")
    options = ["--target", "diagnosis", "--drop", "patient", "--drop"]
    assert gdm(capsys, "ingest", source, place, *options, "visit")[0] == 0
    assert_same(gdm_dask.open_store(place), table)
    code, _, err = gdm(capsys, "ingest", source, place, "--overwrite", *options, "date")
    assert (code, "no column is named 'date'" in err) == (2, True)


def test_what_has_no_columns_drops_none(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3))
    with pytest.raises(BadInput, match=r"`drop` names columns of a table or a DataFrame.*got a"):
        gdm_dask.ingest(str(tmp_path / "a.npy"), tmp_path / "a.zarr", drop="a")


@pytest.mark.parametrize("scheduler", ["synchronous", "processes"])
def test_tables_are_the_same_on_other_schedulers(tmp_path: Path, scheduler: str) -> None:
    table = some_table()
    for name in ("a.csv", "a.parquet"):
        WRITERS[name](table, tmp_path / name)
        there = tmp_path / f"{name}.zarr"
        assert_same(gdm_dask.ingest(str(tmp_path / name), there, "diagnosis", scheduler=scheduler, n_workers=2), table)


def test_a_number_column_is_a_number_to_predict(tmp_path: Path) -> None:
    table = some_table().rename(columns={"gene 3, left": "age"})
    for name in ("a.csv", "a.parquet"):
        WRITERS[name](table.drop(columns="diagnosis"), tmp_path / name)
        store = gdm_dask.ingest(str(tmp_path / name), tmp_path / f"{name}.zarr", "age")
        assert_same(store, table.drop(columns="diagnosis"), "age")
        assert store.own_target().kind == "numbers"


def test_a_table_needs_no_target_and_takes_one_from_a_file(tmp_path: Path) -> None:
    table = some_table()
    table.drop(columns="diagnosis").to_csv(tmp_path / "a.csv", index=False)
    path = str(tmp_path / "a.csv")
    assert gdm_dask.ingest(path, tmp_path / "a.zarr").target is None
    (tmp_path / "y.txt").write_text("\n".join(table["diagnosis"]))
    assert_same(gdm_dask.ingest(path, tmp_path / "b.zarr", str(tmp_path / "y.txt")), table)
    assert_same(gdm_dask.ingest(path, tmp_path / "c.zarr", table["diagnosis"]), table)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("a,b,y\n1,2,0\n3,x,1\n", "y", "line 3, column 'b': 'x' is not a finite number"),
        ("a,b,y\n1,2,0\n\n3,,1\n", "y", "line 4, column 'b': '' is not a finite number"),
        ("a,b,y\n1,nan,0\n3,4,1\n", "y", "line 2, column 'b': 'nan' is not a finite number"),
        ("a,b,y\n1,2,0\n3,1e999,1\n", "y", "line 3, column 'b': '1e999' is not a finite number"),
        ("y,a,b\n0,1,2\n1,3\n", "y", "line 3: the line has 2 fields, the header 3"),
        ("a,b,y\n1,2,0\n3,4,1,5\n", "y", "line 3: the line has 4 fields, the header 3"),
        ("a,b,y\n1,2,\n3,4,1\n", "y", "column 'y' is empty for sample 0"),
        (
            "a;b;y\n1,5;2;0\n3;4;1\n",
            "y",
            "line 2, column 'a': '1,5' is not a finite number. Replace it (decimals follow a",
        ),
        ("a,b,y\n1,2,0\n1_0,4,1\n", "y", "line 3, column 'a': '1_0' is not a finite number"),
        ("a,b,y\n1,2,0\n3,4,1\n", "z", "line 1: 'z' is neither a column nor a file; the columns are a, b, y"),
        ("a,a,y\n1,2,0\n3,4,1\n", "y", "line 1: 2 columns are named 'a'"),
        ("y\n1\n2\n", "y", "line 1: no column is left for the features"),
        ("1,2,0\n3,4,1\n", None, "line 1: must name the columns, got the numbers 1, 2, 0"),
        ("", None, "line 1: must name the columns, got an empty line"),
        ("a,b\n", None, "there are no samples"),
        ('a,"b\nc",y\n1,2,0\n3,4,1\n', "y", "line 1: the names of columns cannot be read: unexpected end of data"),
    ],
)
def test_a_bad_table_is_refused_by_its_place(tmp_path, capsys, text: str, target: str | None, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    options = [] if target is None else ["--target", target]
    code, _, err = gdm(capsys, "ingest", path, tmp_path / "bad.zarr", *options, "--scheduler", "synchronous")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "bad.zarr").exists()


def test_spaces_around_words_and_a_mark_of_the_byte_order_do_not_count(tmp_path: Path) -> None:
    lines = [" ,a,b,y", "one ,1 , 2,x ", "two,3,4,z", "", " three,5,6, x"]
    (tmp_path / "t.csv").write_text("\r\n".join(lines), encoding="utf-8-sig", newline="")
    store = gdm_dask.ingest(str(tmp_path / "t.csv"), tmp_path / "t.zarr", y="y")
    assert (store.feature_names, store.sample_ids) == (["a", "b"], ["one", "two", "three"])
    assert store.y.tolist() == ["x", "z", "x"]
    np.testing.assert_array_equal(store.read_rows([0, 1]).toarray(), [[1, 3, 5], [2, 4, 6]])


def test_separators_in_quoted_names_separate_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a;b;c;d",y\n1,x\n2,z\n4,x\n')
    (tmp_path / "y.csv").write_text('"y, or so";w\nx;1\nz;2\nx;3\n')
    store = gdm_dask.ingest(str(tmp_path / "t.csv"), tmp_path / "t.zarr", y="y")
    assert (store.feature_names, store.y.tolist()) == (["a;b;c;d"], ["x", "z", "x"])
    store = gdm_dask.ingest(str(tmp_path / "t.csv"), tmp_path / "u.zarr", y=f"{tmp_path}/y.csv:w", drop="y")
    assert store.y.tolist() == [1, 2, 3]


def test_a_separator_at_the_end_of_each_line_begins_no_ids(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y,\n1,x,\n2,z,\n4,x,\n")
    store = gdm_dask.ingest(str(tmp_path / "t.csv"), tmp_path / "t.zarr", y="y")
    assert (store.feature_names, store.sample_ids) == (["a"], None)


def test_text_in_a_parquet_column_is_refused_by_name(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"column 'b' of .*a\.parquet does not hold numbers"):
        gdm_dask.ingest(str(tmp_path / "a.parquet"), tmp_path / "a.zarr", scheduler="synchronous")


def test_a_gap_in_a_parquet_file_is_refused_by_column_and_file(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0, 2.0], "b": [3, None]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"a\.parquet, feature 'b': sample 1, feature 1 \(counted from 0\) is NaN"):
        gdm_dask.ingest(str(tmp_path / "a.parquet"), tmp_path / "a.zarr", scheduler="synchronous")


def test_a_folder_of_parquet_files_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(BadInput, match=r"this is a folder: from Python, ingest dask\.dataframe\.read_parquet"):
        gdm_dask.ingest(str(tmp_path / "a.parquet"), tmp_path / "a.zarr")


@pytest.mark.parametrize(
    "columns",
    [
        {"a": pd.arrays.SparseArray([1.0, 1.0, 0.0], fill_value=1.0)},
        {"a": pd.arrays.SparseArray([1, 0, 3]), "b": pd.arrays.SparseArray([1.5, 0.0, 3.0])},
        {"a": pd.arrays.SparseArray([True, False, True])},
    ],
)
def test_sparse_columns_of_any_filling(tmp_path: Path, columns) -> None:
    store = gdm_dask.ingest(pd.DataFrame(columns), tmp_path / "a.zarr")
    expected = np.column_stack([np.asarray(column, float) for column in columns.values()])
    np.testing.assert_array_equal(np.asarray(store.read_rows(range(len(columns))).todense()).T, expected)


@pytest.mark.parametrize(
    ("data", "y", "message"),
    [
        (pd.DataFrame({"a": pd.interval_range(0, 2)}), None, "column 'a' of the DataFrame does not hold numbers"),
        (
            pd.DataFrame([[1, 2, 0], [3, 4, 1]], columns=["a", "y", "y"]),
            "y",
            "2 columns of the DataFrame are named 'y'",
        ),
        (polars.LazyFrame({"a": [1.0, 2.0]}), None, "LazyFrame is not computed yet"),
        (np.ma.masked_array([[1.0, 2.0]], [[False, True]]), None, "the input has masked values"),
    ],
)
def test_objects_whose_numbers_are_not_plain_are_refused(tmp_path: Path, data, y, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        gdm_dask.ingest(data, tmp_path / "a.zarr", y)


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    some_table().to_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"b\.parquet: not a complete Parquet file"):
        gdm_dask.ingest(str(tmp_path / "b.parquet"), tmp_path / "b.zarr")


PIPELINE = """
name = "table"
[acquire.genes]
path = "genes.csv"
[ingest.train]
reader = "matrix"
files = "genes"
target = "diagnosis"
drop = ["patient", "visit"]
[fit]
n_features_to_select = 3
scheduler = "synchronous"
"""


def test_a_pipeline_names_the_target_of_a_table_and_drops_columns(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GDM_RUNS", raising=False)
    some_table().assign(patient="P", visit="2024-01-01").to_csv("genes.csv")
    Path("table.toml").write_text(PIPELINE)
    assert run_pipeline(load_pipeline("table.toml")).status == "done"
    assert_same(gdm_dask.open_store("runs/table/data/train.zarr"), some_table())


FRAMES = {"polars": polars.from_pandas, "arrow": pyarrow.Table.from_pandas}


@pytest.mark.parametrize("library", FRAMES)
def test_tables_of_other_libraries(tmp_path: Path, library: str) -> None:
    table, convert = some_table().reset_index(drop=True), FRAMES[library]
    assert_same(gdm_dask.ingest(convert(table), tmp_path / "a.zarr", "diagnosis"), table)
    X, y = table.drop(columns="diagnosis"), table["diagnosis"]
    expected = gdm_dask.GroupDiscoveryMachine(3).fit(X, y)
    machine = gdm_dask.GroupDiscoveryMachine(3).fit(convert(X), y)
    assert machine.supports_.equals(expected.supports_)
    assert machine.predict(convert(X)).tolist() == expected.predict(X).tolist()
    missing = [1.0] * 7 + [None] + [1.0] * (N_SAMPLES - 8)
    for values, message in (
        ("x", "does not hold numbers"),
        (pd.Timestamp("2020-01-01"), "does not hold numbers"),
        (missing, "contains NaN, first in row 7"),
    ):
        with pytest.raises(BadInput, match=f"column 'name' of the DataFrame {message}"):
            gdm_dask.GroupDiscoveryMachine(3).fit(convert(X.assign(name=values)), y)


def test_a_polars_table_needs_no_arrow_package(monkeypatch) -> None:
    table = some_table().reset_index(drop=True)
    X, y = table.drop(columns="diagnosis"), table["diagnosis"]
    expected = gdm_dask.GroupDiscoveryMachine(3).fit(X, y)
    frame, labels = polars.from_pandas(X), polars.Series(y.tolist())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    machine = gdm_dask.GroupDiscoveryMachine(3).fit(frame, labels)
    assert machine.supports_.equals(expected.supports_)
    assert machine.predict(frame).tolist() == expected.predict(X).tolist()
    for values, message in (("x", "does not hold numbers"), ([None] + [1] * (N_SAMPLES - 1), "contains NaN")):
        bad = frame.with_columns(polars.lit(values).alias("name") if values == "x" else polars.Series("name", values))
        with pytest.raises(BadInput, match=f"column 'name' of the DataFrame {message}"):
            gdm_dask.GroupDiscoveryMachine(3).fit(bad, y)


def test_fit_refuses_a_table_that_is_not_computed() -> None:
    with pytest.raises(BadInput, match="the LazyFrame is not computed yet: pass the result of its `collect` method"):
        gdm_dask.GroupDiscoveryMachine(3).fit(polars.LazyFrame({"a": [1.0, 2.0]}), [0, 1])


def test_identifiers_beyond_float64_are_refused_by_name(tmp_path: Path) -> None:
    table = some_table().drop(columns="diagnosis").assign(patient=2**60 + np.arange(N_SAMPLES))
    with pytest.raises(BadInput, match="column 'patient' of the DataFrame: some int64 values are not exact"):
        gdm_dask.ingest(table, tmp_path / "a.zarr")


@pytest.mark.parametrize("as_dask", [False, True])
def test_fit_names_the_bad_column_of_a_data_frame(as_dask: bool) -> None:
    table, y = some_table().drop(columns="diagnosis"), np.arange(N_SAMPLES) % 2
    text = table.assign(name="x")
    missing = table.copy()
    missing.iloc[7, 2] = np.nan
    if as_dask:
        import dask.dataframe as dd

        text = dd.from_pandas(text, npartitions=2)
    with pytest.raises(BadInput, match="column 'name' of the DataFrame does not hold numbers"):
        gdm_dask.GroupDiscoveryMachine(3).fit(text, y)
    if not as_dask:
        for values in (pd.Categorical(["a", "b"])[y], pd.Timestamp("2020-01-01")):
            with pytest.raises(BadInput, match="column 'name' of the DataFrame does not hold numbers"):
                gdm_dask.GroupDiscoveryMachine(3).fit(table.assign(name=values), y)
        with pytest.raises(BadInput, match="column 'gene 2, left' of the DataFrame contains NaN, first in row 7"):
            gdm_dask.GroupDiscoveryMachine(3).fit(missing, y)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_gap_in_a_target_or_a_weight_is_refused_by_column(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": ["no", None, "yes"], "w": [1.0, None, 2.0]})
    (table.to_csv if name == "a.csv" else table.to_parquet)(tmp_path / name, index=False)
    for options, column in (({"y": "y", "drop": "w"}, "y"), ({"sample_weight": "w", "drop": "y"}, "w")):
        with pytest.raises(BadInput, match=rf"{name}: column '{column}' is empty for sample 1 \(counted from 0\)"):
            gdm_dask.ingest(str(tmp_path / name), tmp_path / "a.zarr", **options)
