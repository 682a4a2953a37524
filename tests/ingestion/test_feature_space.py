"""Test sets share the feature space of their training set; labels and names of any kind are kept."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.store_helpers import assert_store_equals, gdm, some_labels, some_matrix, write_svmlight

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.ingestion import run_ingest

TRAIN = some_matrix(60, 40)
LABELS = some_labels(60)


@pytest.fixture
def train(tmp_path):
    path = write_svmlight(tmp_path / "train.svm", TRAIN, LABELS)
    return gdm_dask.ingest(path, tmp_path / "train.zarr", block_bytes=1000)


def test_a_test_set_gets_the_training_space(tmp_path, train, capsys):
    matrix = some_matrix(30, 50, seed=1)
    path = write_svmlight(tmp_path / "test.svm", matrix, LABELS[:30])
    beyond = matrix[:, 40:].nnz
    code, out, err = gdm(capsys, "ingest", path, tmp_path / "test.zarr", "--like", tmp_path / "train.zarr")
    assert code == 0
    assert "40 features x 30 samples" in out
    assert f"{beyond} nonzeros of features beyond the 40 known ones were ignored" in err
    store = gdm_dask.open_store(tmp_path / "test.zarr")
    assert_store_equals(store, matrix[:, :40], LABELS[:30])
    assert store.manifest.provenance["unseen_nonzeros"] == beyond


@pytest.mark.parametrize("n_features", [25, 40, 60])
@pytest.mark.parametrize("form", ["text", "csr", "dense", "npz", "npy", "mtx"])
def test_every_source_can_be_cut_or_padded(tmp_path, form, n_features):
    source, y = TRAIN, LABELS
    if form == "text":
        source, y = write_svmlight(tmp_path / "x.svm", TRAIN, LABELS), None
    elif form == "dense":
        source = TRAIN.toarray()
    elif form != "csr":
        source = tmp_path / f"x.{form}"
        if form == "npz":
            sp.save_npz(source, TRAIN)
        elif form == "npy":
            np.save(source, TRAIN.toarray())
        else:
            import scipy.io

            scipy.io.mmwrite(source, TRAIN, precision=17)
    done = run_ingest(source, tmp_path / "s", y, n_features=n_features, run_bytes=2000)
    expected = np.zeros((60, n_features))
    common = min(n_features, 40)
    expected[:, :common] = TRAIN.toarray()[:, :common]
    assert_store_equals(done.store, expected, LABELS)
    assert done.unseen_nonzeros == TRAIN[:, common:].nnz


def test_a_test_set_may_have_one_class_but_no_new_one(tmp_path, train):
    one = gdm_dask.ingest(TRAIN[:5], tmp_path / "one", np.full(5, 1.0), like=train)
    assert one.classes == train.classes == [-1, 1]
    assert one.y.tolist() == [1] * 5
    for labels in ([1, -1, 2, 1, 1], ["1", "-1", "1", "1", "1"]):
        with pytest.raises(BadInput, match=r"sample \d has label .*but the classes are -1 and 1"):
            gdm_dask.ingest(TRAIN[:5], tmp_path / "two", labels, like=train)
    with pytest.raises(BadInput, match=r"n_features=7 conflicts with `like` \(40 features\)"):
        gdm_dask.ingest(TRAIN, tmp_path / "three", LABELS, like=train, n_features=7)


@pytest.mark.parametrize(
    ("negative", "positive"),
    [(-1, 1), (0, 1), (1, 2), (0.5, 0.25 * 3), ("ham", "spam"), (False, True), ("", "ä"), (-3.5, 2**40), (b"a", b"b")],
)
def test_labels_of_any_two_values(tmp_path, negative, positive):
    labels = np.array([positive, negative, positive, negative])
    if isinstance(negative, bytes):
        labels, negative, positive = labels.astype(str), "a", "b"
    store = gdm_dask.ingest(np.eye(4), tmp_path / "s", labels)
    assert store.classes == [negative, positive]
    assert [type(value) for value in store.classes] == [type(value) for value in (negative, positive)]
    assert store.y.tolist() == [positive, negative, positive, negative]
    assert store.outputs().tolist() == [[1, -1, 1, -1]]
    assert store.codes.dtype == np.uint8


@pytest.mark.parametrize("block_bytes", [1, 64 << 20])
def test_names_of_any_kind(tmp_path, block_bytes):
    names = ["", "plain", "ünï©ødé 猫 🐈", "x" * 10_000, "tab\tand\nnewline", "plain", "plain ", "\0"]
    ids = [f"sample {name[:20]} {number}" for number, name in enumerate(names)]
    frame = pd.DataFrame(np.eye(8), columns=names, index=ids)
    store = gdm_dask.ingest(frame, tmp_path / "s", [0, 1] * 4, block_bytes=block_bytes)
    assert store.feature_names == names
    assert store.names_of(np.array([3, 0, 3])) == [names[3], names[0], names[3]]
    assert store.sample_ids == ids
    store.verify()
    names[5] = "\udcff, which is no UTF-8"
    given = gdm_dask.ingest(sp.eye_array(8, format="csr"), tmp_path / "t", [0, 1] * 4, feature_names=names)
    assert given.feature_names == names
    assert given.sample_ids is None


def test_names_are_checked(tmp_path):
    frame = pd.DataFrame(np.eye(3), columns=list("abc"))
    train = gdm_dask.ingest(frame, tmp_path / "train", [0, 1, 0])
    with pytest.raises(BadInput, match="expected 3 feature names, one per feature, got 2"):
        gdm_dask.ingest(np.eye(3), tmp_path / "s", [0, 1, 0], feature_names=["a", "b"])
    with pytest.raises(BadInput, match=r"feature 0 is named 'b', but 'a' in the store given as `like`.*order"):
        gdm_dask.ingest(frame[["b", "a", "c"]], tmp_path / "s", [0, 1, 0], like=train)
    wider = frame.assign(d=1.0)
    assert gdm_dask.ingest(wider, tmp_path / "wider", [0, 1, 0], like=train).feature_names == list("abc")
    assert gdm_dask.ingest(wider, tmp_path / "cut", [0, 1, 0], n_features=2).feature_names == list("ab")
    assert gdm_dask.ingest(np.eye(3), tmp_path / "inherited", [0, 1, 0], like=train).feature_names == list("abc")
    plain = gdm_dask.ingest(np.eye(3), tmp_path / "plain", [0, 1, 0])
    assert plain.feature_names is None
    assert plain.names_of(np.array([2, 0])) == ["2", "0"]


def test_an_index_that_means_billions_of_features_is_refused(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("1 1:1 4294967000:1\n-1 2:1\n")
    with pytest.raises(BadInput, match=r"4,294,967,000 features .*need 17.* GB.*--n-features"):
        gdm_dask.ingest(path, tmp_path / "s", memory_limit="2GB")
    assert gdm_dask.ingest(path, tmp_path / "s", n_features=5).nnz == 2
