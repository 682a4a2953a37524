"""Covariates beside the matrix: further features of the store, which fits include."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.sources import SOURCES, counts
from helpers.store_helpers import gdm

import gdm_dask
from gdm_dask import GroupDiscoveryMachine
from gdm_dask.errors import BadInput, DamagedStore

HAS_IDS = [kind for kind in SOURCES if kind not in ("npy", "zarr", "npz csr", "npz csc", "npz coo", "mtx", "ndarray",
                                                     "scipy", "dask")]  # fmt: skip
NAMES = ["age", "sex=M", "center=Oxford", "center=York"]


def some_covariates(ids: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table, and the features that it becomes."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, len(ids)) + 0.25,
            "sex": rng.choice(["F", "M"], len(ids)),
            "center": rng.choice(["Leeds", "Oxford", "York"], len(ids)),
        },
        index=pd.Index(ids, name="IID"),
    )
    center = frame["center"]
    return frame, np.stack([frame["age"], frame["sex"] == "M", center == "Oxford", center == "York"], axis=1) * 1.0


@pytest.mark.parametrize("run_bytes", ["200", None])
@pytest.mark.parametrize("kind", SOURCES)
def test_covariates_are_the_last_features(tmp_path, kind, run_bytes) -> None:
    X, ids = counts()
    frame, expected = some_covariates(ids)
    source = SOURCES[kind](tmp_path, X, ids)
    y = np.arange(40) % 2
    given = frame.sample(frac=1, random_state=0) if kind in HAS_IDS else frame
    options = {"scheduler": "synchronous", "run_bytes": run_bytes, "covariates": given}
    store = gdm_dask.ingest(source, tmp_path / "a", y, **options)
    np.testing.assert_array_equal(store.to_scipy().toarray().T, np.hstack([X, expected]))
    assert store.feature_names[-5:] == [store.feature_names[8], *NAMES]
    assert store.feature_names[8] in ("g8", "8", "g8_A1")
    assert store.covariates == {"age": [9], "sex": [10], "center": [11, 12]}
    store.verify()
    for name in ("fewer", "more"):
        (tmp_path / name).mkdir()
    fewer = SOURCES[kind](tmp_path / "fewer", X[:, :7], ids)  # the last two features are zeros
    test = gdm_dask.ingest(fewer, tmp_path / "b", y, like=store, **options)
    np.testing.assert_array_equal(test.to_scipy().toarray().T, np.hstack([np.where(np.arange(9) < 7, X, 0), expected]))
    assert test.covariates == store.covariates
    further = SOURCES[kind](tmp_path / "more", np.hstack([X, X[:, :2]]), ids)
    test = gdm_dask.ingest(further, tmp_path / "c", y, like=store, **options)
    np.testing.assert_array_equal(test.to_scipy().toarray().T, np.hstack([X, expected]))


@pytest.mark.parametrize(
    ("name", "between", "columns"),
    [
        ("people.csv", ",", ""), ("people.tsv", "\t", ":age,sex,center"), ("people.cov", " ", ""),
        ("people.cov.gz", "\t", ":age,sex,center"), ("people.eigenvec", "\t", ""),
    ],
)  # fmt: skip
def test_covariates_of_a_file(tmp_path, name, between, columns) -> None:
    X, ids = counts()
    frame, expected = some_covariates(ids)
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / name, sep=between)
    store = gdm_dask.ingest(
        SOURCES["plink"](tmp_path, X, ids), tmp_path / "a", covariates=f"{tmp_path / name}{columns}"
    )
    np.testing.assert_array_equal(store.to_scipy().toarray().T, np.hstack([X, expected]))
    assert store.feature_names[9:] == NAMES
    assert store.target is None


@pytest.mark.parametrize("run_bytes", ["2000", None])
@pytest.mark.parametrize(("most", "wanted"), [(1, "uint8"), (2, "uint8"), (1.1, "float32")])
def test_covariates_do_not_widen_the_values_of_the_matrix(tmp_path, run_bytes, most, wanted) -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 200), density=0.3, rng=rng, format="csr")
    X.data = rng.choice(np.array([1, most], np.float32 if most == 1.1 else np.float64), X.nnz)
    ids = [f"s{number}" for number in range(300)]
    frame, expected = some_covariates(ids)
    frame["age"] += 0.1
    expected[:, 0] += 0.1
    store = gdm_dask.ingest(X, tmp_path / "a", rng.integers(0, 2, 300), covariates=frame, run_bytes=run_bytes)
    types = [block.arrays["values"].dtype for block in store.manifest.blocks]
    assert (types[:-1], store.manifest.value_type) == ([wanted] * (len(types) - 1), "float64")
    assert store.manifest.blocks[-1].start == 200
    np.testing.assert_array_equal(store.to_scipy().toarray().T, np.hstack([X.toarray(), expected]))
    store.verify()
    machine = GroupDiscoveryMachine(6).fit(store)
    same = gdm_dask.ingest(np.hstack([X.toarray(), expected]), tmp_path / "b", store.y)
    given = GroupDiscoveryMachine(6, include=[200, 201, 202, 203]).fit(same)
    np.testing.assert_array_equal(machine.support_features_, given.support_features_)
    np.testing.assert_allclose(machine.coef_, given.coef_, rtol=1e-9, atol=1e-12)


def test_columns_of_obs_are_covariates(tmp_path) -> None:
    cells = str(Path(__file__).parents[1] / "data/anndata/csr.h5ad")
    store = gdm_dask.ingest(cells, tmp_path / "a", "cell_type", covariates="age,donor,doublet")
    assert store.feature_names[-3:] == ["age", "donor=bob", "doublet"]
    values = store.read_rows(np.arange(store.shape[0] - 3, store.shape[0])).toarray()
    assert set(values[1].tolist()) == set(values[2].tolist()) == {0.0, 1.0}
    with pytest.raises(BadInput, match="age,donors: no such file, and no such column of obs"):
        gdm_dask.ingest(cells, tmp_path / "b", "cell_type", covariates="age,donors")


def test_samples_that_lack_a_covariate_are_refused_or_dropped(tmp_path) -> None:
    X, ids = counts()
    frame, expected = some_covariates(ids)
    frame.loc[ids[4], "age"] = np.nan
    frame.loc[ids[7], "center"] = None
    y = np.where(np.arange(40) == 9, np.nan, np.arange(40) % 2)
    frame.drop(index=ids[30]).to_csv(tmp_path / "c.csv", na_rep="NA")
    source, given = SOURCES["h5ad csr"](tmp_path, X, ids), tmp_path / "c.csv"
    with pytest.raises(BadInput, match="there is no label for sample 9"):
        gdm_dask.ingest(source, tmp_path / "a", y, covariates=given)
    with pytest.raises(BadInput, match=r"c\.csv, line 6: there is no age for sample 'cell4-1' and 1 others: fill it"):
        gdm_dask.ingest(source, tmp_path / "a", covariates=given)
    store = gdm_dask.ingest(source, tmp_path / "a", y, covariates=given, on_missing="drop")
    kept = np.setdiff1d(np.arange(40), [4, 7, 9, 30])
    np.testing.assert_array_equal(store.to_scipy().toarray().T, np.hstack([X, expected])[kept])
    np.testing.assert_array_equal(store.y, y[kept])
    assert store.sample_ids == [ids[k] for k in kept]


def test_covariates_that_cannot_be_used_are_refused(tmp_path) -> None:
    X, ids = counts()
    frame = some_covariates(ids)[0]
    for table, problem in (
        (frame.assign(age=5), "covariate 'age' has the same value for all samples: leave it out"),
        (frame.assign(sex="F"), "covariate 'sex' has the same value for all samples"),
        (frame.assign(age=np.inf), "covariate 'age' must be finite"),
        (frame.iloc[:-3].set_axis(range(37)), "`covariates` has 37 rows for 40 samples"),
        (frame.iloc[[0, *range(40)]], "some samples have more than one row"),
        (frame.rename(columns={"age": "g3"}), "two features are named 'g3': rename the covariate"),
        ([1, 2], "`covariates` must be a table or the path of one, got list"),
        ("nowhere.csv", r"nowhere\.csv: no such file"),
    ):
        with pytest.raises(BadInput, match=problem):
            gdm_dask.ingest(pd.DataFrame(X, ids).add_prefix("g"), tmp_path / "a", covariates=table)
    many = pd.DataFrame({"id": [f"x{k}" for k in range(300)]})
    with pytest.raises(BadInput, match="covariate 'id' is text with 300 values, such as 'x0'"):
        gdm_dask.ingest(counts(300)[0], tmp_path / "a", covariates=many)
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n")
    with pytest.raises(BadInput, match="covariates need a matrix or a table"):
        gdm_dask.ingest(tmp_path / "a.svm", tmp_path / "a", covariates=frame)


def test_a_test_set_needs_the_same_covariates(tmp_path) -> None:
    X, ids = counts()
    frame = some_covariates(ids)[0]
    store = gdm_dask.ingest(X, tmp_path / "a", np.arange(40) % 2, covariates=frame)
    plain = gdm_dask.ingest(X, tmp_path / "p", np.arange(40) % 2)
    for like, table, problem in (
        (store, None, "the store given as `like` has the covariates age, sex, center: pass those of these samples"),
        (store, frame[["age"]], "`covariates` has no column 'sex'"),
        (store, frame.replace("York", "Paris"), "covariate 'center' is 'Paris' for a sample, but the store .* knows"),
        (store, frame.assign(age="old"), "covariate 'age' must hold numbers, as in the store given as `like`"),
        (plain, frame, "the covariates are age, sex, center, but none in the store given as `like`"),
    ):
        with pytest.raises(BadInput, match=problem):
            gdm_dask.ingest(X, tmp_path / "b", like=like, covariates=table)
    one = gdm_dask.ingest(X[:1], tmp_path / "b", like=store, covariates=frame.iloc[:1].assign(weight=70))
    np.testing.assert_array_equal(one.to_scipy().toarray()[:, 0], store.to_scipy().toarray()[:, 0])


def test_a_fit_includes_the_covariates_of_a_store(tmp_path) -> None:
    X, ids = counts(400, 30)
    frame, expected = some_covariates(ids)
    y = np.where(X[:, 3] + 0.05 * frame["age"].to_numpy() + (frame["sex"] == "M") > 4, "case", "control")
    store = gdm_dask.ingest(X, tmp_path / "a", y, covariates=frame)
    machine = GroupDiscoveryMachine(8).fit(store)
    assert machine.included_.tolist() == [30, 31, 32, 33]
    assert {30, 31, 32, 33} <= set(machine.support_features_.tolist())
    assert len(machine.support_features_) == 8
    given = GroupDiscoveryMachine(8, include=[*NAMES]).fit(gdm_dask.ingest(
        np.hstack([X, expected]), tmp_path / "b", y, feature_names=[*map(str, range(30)), *NAMES]
    ))  # fmt: skip
    np.testing.assert_array_equal(machine.support_features_, given.support_features_)
    np.testing.assert_array_equal(machine.coef_, given.coef_)
    assert GroupDiscoveryMachine(8, exclude=["center"]).fit(store).included_.tolist() == [30, 31]
    assert GroupDiscoveryMachine(8, include=["3", "sex"]).fit(store).included_.tolist() == [3, 30, 31, 32, 33]
    with pytest.raises(BadInput, match="n_features_to_select=3 features, got 4, with the covariates of the store"):
        GroupDiscoveryMachine(3).fit(store)


def test_a_manifest_with_strange_covariates_is_damaged(tmp_path) -> None:
    from gdm_dask.store import layout
    from gdm_dask.store.folder import Folder
    from gdm_dask.store.sample_tables import Covariate

    X, ids = counts()
    store = gdm_dask.ingest(X, tmp_path / "a", covariates=some_covariates(ids)[0])
    for features in ([13], [-1], ["9"], []):
        store.manifest.covariates[0] = Covariate("age", features)
        layout.write_manifest(Folder(tmp_path / "a"), store.manifest)
        with pytest.raises(DamagedStore, match="the features of covariate 'age' do not exist"):
            gdm_dask.open_store(tmp_path / "a")


def test_predictions_name_their_samples(tmp_path, capsys) -> None:
    X, ids = counts()
    y = np.where(X[:, 3] > 0, "case", "control")
    frame = pd.DataFrame(X, ids).add_prefix("g")
    gdm_dask.ingest(frame, tmp_path / "a", y)
    gdm(capsys, "fit", tmp_path / "a", "--run", tmp_path / "run", "-k", 2)
    code, out, _ = gdm(capsys, "predict", tmp_path / "run", tmp_path / "a", "--ids", "--scores")
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ids
    assert {row[1] for row in rows} == {"case", "control"}
    assert all((float(row[2]) > 0) == (row[1] == "control") for row in rows)
    gdm_dask.ingest(X, tmp_path / "b", y)
    code, _, err = gdm(capsys, "predict", tmp_path / "run", tmp_path / "b", "--ids")
    assert (code, "the samples have no ids: leave out --ids" in err) == (2, True)


def test_info_and_messages_name_covariates(tmp_path, capsys) -> None:
    X, ids = counts()
    np.save(tmp_path / "X.npy", X)
    frame = some_covariates(ids)[0]
    frame.iloc[2, 0] = np.nan
    frame.to_csv(tmp_path / "c.csv", index=False)
    options = ("--covariates", f"{tmp_path}/c.csv:age,sex")
    code, _, err = gdm(capsys, "ingest", tmp_path / "X.npy", tmp_path / "a", *options)
    assert (code, "line 4: there is no age for sample 2 (counted from 0): fill it in, or drop" in err) == (2, True)
    code, _, err = gdm(capsys, "ingest", tmp_path / "X.npy", tmp_path / "a", *options, "--on-missing", "drop")
    assert (code, "1 of 40 samples without a target or a covariate" in err) == (0, True)
    assert "covariates   age, sex" in gdm(capsys, "info", tmp_path / "a")[1]
