"""Labels and numbers become outputs and back, in memory, in stores and from files."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.store_helpers import gdm, some_labels, some_matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.store.numbers import Numbers
from gdm_dask.store.target_files import check_targets
from gdm_dask.store.targets import Classes, TwoClasses, infer_target, target_from_json

MATRIX = some_matrix()
RNG = np.random.default_rng(0)
WORDS = np.array(["ham", "spam", "news"])[np.arange(60) % 3]
ONE_NUMBER = np.round(RNG.normal(5, 3, 60), 3)
TWO_NUMBERS = RNG.normal(size=(60, 2)) * [1, 100]

KINDS = {
    "two integers": (some_labels(60), TwoClasses((-1, 1))),
    "two fractions": (np.where(some_labels(60) > 0, 0.25, 0.75), TwoClasses((0.25, 0.75))),
    "booleans": (some_labels(60) > 0, TwoClasses((False, True))),
    "words": (WORDS, Classes(("ham", "news", "spam"))),
    "objects": (WORDS.astype(object), Classes(("ham", "news", "spam"))),
    "integers": (np.arange(60) % 7, Classes((0, 1, 2, 3, 4, 5, 6))),
    "whole floats": (np.arange(60) % 3 - 1.0, Classes((-1, 0, 1))),
    "numbers": (ONE_NUMBER, Numbers.of(ONE_NUMBER)),
    "a column": (ONE_NUMBER[:, None], Numbers.of(ONE_NUMBER)),
    "many integers": (np.arange(60), Numbers.of(np.arange(60))),
    "two numbers": (TWO_NUMBERS, Numbers.of(TWO_NUMBERS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_targets_in_memory_and_in_a_store(tmp_path, kind):
    y, expected = KINDS[kind]
    target = infer_target(y)
    assert target == expected
    assert target_from_json(json.loads(json.dumps(target.to_json()))) == target
    Y = target.encode(y)
    assert (Y.shape, Y.dtype, Y.flags.c_contiguous) == ((target.n_outputs, 60), np.float64, True)
    store = gdm_dask.ingest(MATRIX, tmp_path / "s", y)
    assert store.target == target
    np.testing.assert_array_equal(store.y, y if kind != "a column" else y[:, 0])
    np.testing.assert_array_equal(store.outputs(), Y)
    store.verify()
    if isinstance(target, Numbers):
        np.testing.assert_allclose(target.decode(Y), store.y, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose([Y.mean(axis=1), Y.std(axis=1)], [[0] * len(Y), [1] * len(Y)], atol=1e-12)
        assert target.members(Y).all()
    else:
        assert set(np.unique(Y)) == {-1, 1}
        np.testing.assert_array_equal(target.decode(Y), y)
        members = target.members(Y)
        assert members.sum(axis=0).tolist() == [1] * 60
        np.testing.assert_array_equal(members.argmax(axis=0), store.codes)


def test_measures():
    y, F = some_labels(60), RNG.normal(size=(1, 60))
    found = TwoClasses((-1, 1)).measures(y, F)
    predicted = np.where(F[0] > 0, 1, -1)
    assert found == pytest.approx({
        "accuracy": accuracy_score(y, predicted), "balanced_accuracy": balanced_accuracy_score(y, predicted),
        "auc": roc_auc_score(y, F[0]), "average_precision": average_precision_score(y, F[0]),
    })  # fmt: skip
    one_class = TwoClasses((-1, 1)).measures([1, 1], np.array([[1.0, -1.0]]))
    assert one_class == {"accuracy": 0.5, "balanced_accuracy": None, "auc": None, "average_precision": None}
    F = RNG.normal(size=(3, 60))
    predicted = np.array(["ham", "news", "spam"])[F.argmax(axis=0)]
    assert infer_target(WORDS).measures(WORDS, F) == pytest.approx(
        {"accuracy": accuracy_score(WORDS, predicted), "balanced_accuracy": balanced_accuracy_score(WORDS, predicted)}
    )
    target, F = infer_target(TWO_NUMBERS), RNG.normal(size=(2, 60))
    predicted = target.decode(F)
    assert target.measures(TWO_NUMBERS, F) == pytest.approx(
        {"r2": r2_score(TWO_NUMBERS, predicted), "rmse": root_mean_squared_error(TWO_NUMBERS, predicted)}
    )
    assert Numbers((0.0,), (1.0,)).measures([2.0], np.zeros((1, 1))) == {"r2": None, "rmse": 2.0}


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        ([1.0, np.nan, 2.5], None, "y: sample 1 has no label"),
        ([[1.0, 2.0], [np.inf, 3.0]], None, "y: sample 1 has no label"),
        (["a", "a"], None, "every sample has the label 'a': there must be two classes"),
        ([2.5, 2.5], "regression", "every sample has the number 2.5"),
        ([[1.0, 2.5], [2.0, 2.5]], "regression", "every sample has the number 2.5 in column 1"),
        ([1e200, -1e200, 1e308], None, "too large"),
        ([1e-200, 2e-200, -1e-200], None, "the numbers differ too little: multiply them first"),
        (np.array([7, 2**63, 2**63 + 1] * 2, np.uint64), "classification", "too large beside 7: write them as text"),
        (np.array([1, 2**70] * 2, object), None, "an integer is too large: write labels as text, and numbers as float"),
        (["a", "b", "a"], "regression", "regression needs numbers, got text such as 'a'"),
        ([["a", "b"], ["b", "a"]], None, r"labels must have shape \(n_samples,\)"),
        ([[1.0, 2.5], [3.0, 4.5]], "classification", r"labels must have shape \(n_samples,\)"),
        ([1, 2, 3, 4], "classification", r"4 classes for 4 samples: 1, 2, 3, 4\. Give .* task='regression'"),
        (np.array(["a", 1, "b"], object), None, "got int, str"),
        ([], None, "there are no labels"),
        (np.zeros((2, 0)), None, "shape"),
        (np.zeros((2, 2, 2)), None, "shape"),
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), None, "numbers, text or booleans, got datetime64"),
        ([1, 2], "ranking", "`task` must be None, 'classification' or 'regression', got 'ranking'"),
    ],
)
def test_bad_targets(y, task, message):
    with pytest.raises(BadInput, match=message):
        infer_target(y, task)


def test_labels_that_a_target_does_not_know():
    with pytest.raises(BadInput, match=r"test: sample 12 has label 3, but the classes are 1, 2, 4, 5, 6, \.\.\."):
        Classes((1, 2, 4, 5, 6, 7)).pack([1, 2, 3], "test", first_sample=10)
    with pytest.raises(BadInput, match="sample 0 has label '1', but the classes are 1 and 2"):
        TwoClasses((1, 2)).encode(["1", "2"])
    with pytest.raises(BadInput, match="expected 2 numbers per sample, got 1"):
        Numbers((0.0, 0.0), (1.0, 1.0)).encode([1.0, 2.0])


SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
PLAIN = SCALAR | st.lists(SCALAR | st.lists(SCALAR, max_size=2), max_size=3)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(["classes", "numbers"]), one=PLAIN, other=PLAIN)
def test_any_json_is_a_target_or_refused(kind, one, other):
    try:
        target = target_from_json({"kind": kind, "classes": one, "means": one, "scales": other})
    except BadInput:
        return
    assert target_from_json(target.to_json()) == target
    assert target.decode(np.zeros((target.n_outputs, 2))).shape[0] == 2


def test_more_classes_than_a_byte_counts(tmp_path):
    y = np.array([f"class {number % 300:03d}" for number in range(900)])
    store = gdm_dask.ingest(np.eye(900, 3), tmp_path / "s", y)
    assert (store.codes.dtype, store.target.n_outputs) == (np.uint16, 300)
    np.testing.assert_array_equal(store.y, y)


@pytest.mark.parametrize("form", ["npz", "npy", "mtx", "zarr", "array"])
def test_a_matrix_without_targets(tmp_path, capsys, form):
    path = tmp_path / f"x.{form}"
    if form == "npz":
        sp.save_npz(path, MATRIX)
    elif form == "npy":
        np.save(path, MATRIX.toarray())
    elif form == "mtx":
        from scipy.io import mmwrite

        mmwrite(path, MATRIX)
    elif form == "zarr":
        import zarr

        zarr.save_array(path, MATRIX.toarray())
    if form == "array":
        gdm_dask.ingest(MATRIX.toarray(), tmp_path / "s")
    else:
        assert gdm(capsys, "ingest", path, tmp_path / "s")[0] == 0
    store = gdm_dask.open_store(tmp_path / "s")
    store.verify()
    assert (store.target, store.classes, "targets" in store.manifest.arrays) == (None, [], False)
    np.testing.assert_array_equal(store.to_scipy().toarray(), MATRIX.T.toarray())
    with pytest.raises(
        BadInput, match=r"the store has no targets\. Ingest it with --target, or pass them to the fit: y="
    ):
        gdm_dask.GroupDiscoveryMachine(2).fit(store)
    fitted = gdm_dask.GroupDiscoveryMachine(2).fit(store, some_labels(60))
    with pytest.raises(BadInput, match="the store has no targets"):
        fitted.score(store)
    assert "none: fit with --target FILE" in gdm(capsys, "info", tmp_path / "s")[1]


def test_fit_with_a_file_of_targets(tmp_path, capsys):
    y = np.where(some_labels(60) > 0, "spam", "ham")
    store = gdm_dask.ingest(MATRIX, tmp_path / "s")
    expected = gdm_dask.GroupDiscoveryMachine(3).fit(store, y)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "y.txt").write_text("\n".join(y) + "\n")
    (tmp_path / "y.csv").write_text("label\n" + "\n".join(y) + "\n")
    for name in ("y.npy", "y.txt", "y.csv"):
        run = tmp_path / name.replace(".", "-")
        code, _, err = gdm(capsys, "fit", tmp_path / "s", "--run", run, "-k", 3, "--target", tmp_path / name)
        assert code == 0, err
        model = gdm_dask.GroupDiscoveryMachine.load(run)
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        assert model.target_ == TwoClasses(("ham", "spam"))
        assert model.predict(store).tolist() == expected.predict(store).tolist()
    (tmp_path / "y.txt").write_text("\n".join(y[::-1]) + "\n")
    again = ("fit", tmp_path / "s", "--run", tmp_path / "y-txt", "-k", 3, "--resume", "--target", tmp_path / "y.txt")
    assert "holds a fit with another target" in gdm(capsys, *again)[2]
    (tmp_path / "y.txt").write_text("1\n2\n")
    code, _, err = gdm(capsys, "fit", tmp_path / "s", "--run", tmp_path / "r", "--target", tmp_path / "y.txt")
    assert (code, "2 labels for 60 samples" in err) == (2, True)


@pytest.mark.parametrize(
    ("lines", "options", "problem"),
    [
        (["1"] * 60, (), ": every sample has the label 1"),
        (["1", "nan"] * 30, (), ", line 2: there is no value for sample 1 (counted from 0) and 29 others"),
        (["a", "b"] * 30, ("--task", "regression"), ": regression needs numbers"),
        (["a,b"] * 60, (), ": labels must have shape (n_samples,), got (60, 2): choose one column"),
        (["id,type", *["1,b", "2,", "3,"] * 20], (), ", line 3: there is no value for sample 1 (counted from 0)"),
    ],
)
def test_a_bad_file_of_targets_is_named(tmp_path, capsys, lines, options, problem):
    gdm_dask.ingest(MATRIX, tmp_path / "s")
    file = tmp_path / ("y.csv" if "," in lines[-1] else "y.txt")
    file.write_text("\n".join(lines) + "\n")
    code, _, err = gdm(capsys, "fit", tmp_path / "s", "--run", tmp_path / "r", "-k", 3, "--target", file, *options)
    assert (code, f"{file}{problem}" in err.replace("\n", "")) == (2, True), err


IDS = [f"cell {number}" for number in range(6)]
TYPES = ["B", "T", "NK", "T", "B", "NK"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_column_of_a_table_by_the_ids_of_samples(tmp_path, suffix):
    between = {"csv": ",", "tsv": "\t"}[suffix]
    lines = [("cell", "type", "age"), *zip(IDS, TYPES, "123456", strict=True), ("other", "B", "9")]
    path = tmp_path / f"cells.{suffix}"
    path.write_text("\n".join(between.join(line) for line in [lines[0], *lines[:0:-1]]) + "\n")
    assert check_targets(f"{path}:type", 6, "here", IDS).tolist() == TYPES
    assert check_targets(f"{path}:age", 6, "here", IDS).tolist() == [1, 2, 3, 4, 5, 6]
    assert check_targets(path, 6, "here", IDS).tolist() == [[a, b] for a, b in zip(TYPES, "123456", strict=True)]
    with pytest.raises(BadInput, match="no column 'tape'; the columns are cell, type, age"):
        check_targets(f"{path}:tape", 6, "here", IDS)
    with pytest.raises(BadInput, match="there is no line for sample 'cell 6' and 1 others"):
        check_targets(f"{path}:type", 8, "here", [*IDS, "cell 6", "cell 7"])
    path.write_text(path.read_text() + between.join(lines[1]) + "\n")
    with pytest.raises(BadInput, match="more than one line"):
        check_targets(f"{path}:type", 6, "here", IDS)


def test_a_column_of_a_table_without_ids_is_in_the_order_of_samples(tmp_path):
    path = tmp_path / "y.csv"
    path.write_text("height,weight\n1.5,2\n2.5,3\n3.5,4\n")
    for ids in (None, ["a", "b", "c"]):
        np.testing.assert_array_equal(check_targets(f"{path}:weight", 3, "here", ids), [2, 3, 4])
        np.testing.assert_array_equal(check_targets(path, 3, "here", ids), [[1.5, 2], [2.5, 3], [3.5, 4]])


def test_a_store_knows_the_ids_of_its_samples(tmp_path, capsys):
    y = np.where(some_labels(60) > 0, "spam", "ham")
    names = [f"mail {number}" for number in range(60)]
    pd.DataFrame(MATRIX.toarray(), names, [f"w{n}" for n in range(MATRIX.shape[1])]).to_csv(tmp_path / "X.csv")
    store = gdm_dask.ingest(tmp_path / "X.csv", tmp_path / "s")
    pd.DataFrame({"kind": y, "size": 1}, names)[::-1].to_csv(tmp_path / "y.csv")
    given = "--target", f"{tmp_path / 'y.csv'}:kind"
    assert gdm(capsys, "fit", tmp_path / "s", "--run", tmp_path / "r", "-k", 3, *given)[0] == 0
    assert gdm(capsys, "ingest", tmp_path / "X.csv", tmp_path / "t", *given)[0] == 0
    assert gdm_dask.open_store(tmp_path / "t").y.tolist() == y.tolist()
    expected = gdm_dask.GroupDiscoveryMachine(3).fit(store, y)
    found = gdm_dask.GroupDiscoveryMachine.load(tmp_path / "r")
    np.testing.assert_array_equal(found.coef_, expected.coef_)


@pytest.mark.parametrize(("name", "given"), [("y.csv", ""), ("Y.CSV", ":label"), ("y.txt", "")])
def test_a_mark_of_the_byte_order_is_no_part_of_a_label(tmp_path, name, given):
    header = "label,weight\n" if given else ""
    lines = [f"{label},1" if given else str(label) for label in (1, 0, 1, 0)]
    (tmp_path / name).write_text(header + "\n".join(lines), encoding="utf-8-sig")
    assert check_targets(f"{tmp_path / name}{given}", 4, "y").tolist() == [1, 0, 1, 0]


def test_files_of_numbers(tmp_path):
    path = tmp_path / "y.csv"
    path.write_text("height,weight\n1.5, 2\n2.5,3\n\n3.5,-4e1\n")
    np.testing.assert_array_equal(check_targets(path, 3, "here"), [[1.5, 2], [2.5, 3], [3.5, -40]])
    path.write_text("1.5,2\n2.5\n")
    with pytest.raises(BadInput, match="lines have 2 and 1 values"):
        check_targets(path, 2, "here")
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(BadInput, match="labels cannot be read"):
        check_targets(path, 1, "here")


@pytest.mark.parametrize("run_bytes", [None, 40])
def test_svmlight_with_any_labels(tmp_path, capsys, run_bytes):
    labels = {
        "classes": [3, 7, 20, 3, 7, 20, 20, 3],
        "numbers": [0.5, -1.25, 3, 7, 2.5, 0.125, 4, 2],
        "integers": [5, 1, 2, 9, 3, 4, 8, 7],
    }
    for name, y in labels.items():
        path = tmp_path / f"{name}.svm"
        path.write_text("".join(f"{label} {k % 3 + 1}:{k + 1}\n" for k, label in enumerate(y)))
        store = gdm_dask.ingest(path, tmp_path / name, run_bytes=run_bytes)
        assert store.target == infer_target(y)
        assert isinstance(store.target, Classes if name == "classes" else Numbers)
        assert store.y.tolist() == y
    forced = gdm_dask.ingest(tmp_path / "classes.svm", tmp_path / "forced", task="regression", run_bytes=run_bytes)
    assert forced.target == Numbers.of(labels["classes"])
    shown = gdm(capsys, "info", tmp_path / "classes")[1]
    assert "3 classes: 3 (3), 7 (2), 20 (3)" in shown
    assert (
        f"numbers: {np.mean(labels['numbers']):.4g} +- {np.std(labels['numbers']):.4g}"
        in gdm(capsys, "info", tmp_path / "numbers")[1]
    )


def test_a_test_set_shares_the_target(tmp_path):
    train = gdm_dask.ingest(MATRIX, tmp_path / "train", ONE_NUMBER)
    test = gdm_dask.ingest(MATRIX[:5], tmp_path / "test", ONE_NUMBER[:5] + 1, like=train)
    assert test.target == train.target
    np.testing.assert_array_equal(test.y, ONE_NUMBER[:5] + 1)
    unknown = gdm_dask.ingest(MATRIX[:5], tmp_path / "unknown", like=train)
    assert unknown.target is None


def test_the_fingerprint_tells_targets_apart(tmp_path):
    given = [None, WORDS, WORDS[::-1], np.char.upper(WORDS), ONE_NUMBER]
    stores = [gdm_dask.ingest(MATRIX, tmp_path / str(number), y) for number, y in enumerate(given)]
    assert len({store.fingerprint for store in stores}) == len(given)
