"""Lookalikes have the statistics of the real sets, and the same values however they are generated."""

import filecmp
import json

import numpy as np
import pytest

from gdm_dask import GroupDiscoveryMachine, ingest, open_store
from gdm_dask.analysis.metrics import evaluate
from gdm_dask.errors import BadInput
from gdm_dask.ingestion.sources.lookalikes import LOOKALIKES, generate, plant, scaled_lookalike
from gdm_dask.ingestion.sources.lookalikes.files import read_groups, synthesise
from gdm_dask.ingestion.sources.lookalikes.paper_data import compare_groups


@pytest.mark.parametrize(("name", "scale"), [("kdd2010", 0.005), ("webspam", 0.002), ("url", 0.01), ("news20", 0.1)])
def test_the_statistics_are_those_of_the_real_set(name, scale):
    lookalike = scaled_lookalike(name, scale)
    slab = generate(lookalike, 0, 0, lookalike.n_samples)
    assert len(slab.features) / lookalike.n_samples == pytest.approx(lookalike.row_length, rel=0.05)
    assert np.mean(slab.labels > 0) == pytest.approx(lookalike.positive, abs=0.03)
    squares = np.bincount(slab.samples, slab.values**2)
    if lookalike.unit_rows:
        np.testing.assert_allclose(squares, 1, atol=1e-3)
    else:
        assert set(slab.values.tolist()) == {1.0}
    once = np.mean(np.bincount(slab.features, minlength=lookalike.n_features) == 1)
    if lookalike.single:
        assert once == pytest.approx(lookalike.single, abs=0.01)  # 72 % of kddb's features
    assert lookalike.planted_length < 0.15 * lookalike.row_length


def test_full_size_shapes():
    shapes = {name: (lookalike.n_samples, lookalike.n_features) for name, lookalike in LOOKALIKES.items()}
    assert shapes == {
        "webspam": (350_000, 16_609_143),
        "kdd2010": (19_264_097, 29_890_095),
        "url": (2_396_130, 3_231_961),
        "news20": (19_996, 1_355_191),
    }


def test_a_sample_depends_on_its_number_alone():
    lookalike = scaled_lookalike("webspam", 0.002)
    whole, part = generate(lookalike, 3, 0, 200), generate(lookalike, 3, 120, 130)
    of_part = (whole.samples >= 120) & (whole.samples < 130)
    np.testing.assert_array_equal(whole.features[of_part], part.features)
    np.testing.assert_array_equal(whole.values[of_part], part.values)
    assert not np.array_equal(generate(lookalike, 4, 120, 130).features, part.features)


def test_text_and_stores_hold_the_same_for_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("gdm_dask.ingestion.sources.lookalikes.JOB_NONZEROS", 50_000)
    stores = []
    for workers in (1, 3):
        synthesise("news20", tmp_path / f"{workers}.svm", 0.02, n_workers=workers)
        synthesise("news20", tmp_path / f"{workers}.zarr", 0.02, n_workers=workers)
        stores.append(open_store(tmp_path / f"{workers}.zarr"))
    assert filecmp.cmp(tmp_path / "1.svm", tmp_path / "3.svm", shallow=False)
    from_text = ingest(tmp_path / "1.svm", tmp_path / "text.zarr", n_features=stores[0].shape[0])
    assert stores[0].fingerprint == stores[1].fingerprint == from_text.fingerprint
    np.testing.assert_array_equal(stores[0].y, from_text.y)


def test_planted_groups_are_found_and_a_test_set_is_of_the_same_kind(tmp_path):
    facts = synthesise("kdd2010", tmp_path / "train.zarr", 0.002, 0, tmp_path / "test.zarr")
    assert json.loads((tmp_path / "train.zarr.truth.json").read_bytes())["n_groups"] == facts["n_groups"]
    machine = GroupDiscoveryMachine(20).fit(tmp_path / "train.zarr")
    recovery = compare_groups(machine.groups_, read_groups(tmp_path / "train.zarr"))
    assert recovery.precision > 0.6
    assert recovery.f1 > 0.95
    test = open_store(tmp_path / "test.zarr")
    assert test.shape == (facts["n_features"], round(1.25 * facts["n_samples"]) - facts["n_samples"])
    assert 0.5 < evaluate(machine, test)["auc"] < 0.98


def test_paper_data_is_the_same_as_text_and_store(tmp_path):
    synthesise("paper", tmp_path / "a.svm", 0.02)
    synthesise("paper", tmp_path / "a.zarr", 0.02)
    text = ingest(tmp_path / "a.svm", tmp_path / "b.zarr")
    store = open_store(tmp_path / "a.zarr")
    everything = np.arange(store.shape[0])
    rows = [opened.read_rows(everything).toarray() for opened in (text, store)]
    np.testing.assert_array_equal(*rows)
    assert len(read_groups(tmp_path / "a.zarr")) == 4


def test_groups_are_neither_frequent_nor_single():
    lookalike = scaled_lookalike("kdd2010", 0.005)
    slab = generate(lookalike, 0, 0, lookalike.n_samples)
    counts = np.bincount(slab.features, minlength=lookalike.n_features)
    members = plant(lookalike, 0).groups.ravel()
    assert len(np.unique(members)) == members.size
    assert counts[members].min() > 1


@pytest.mark.parametrize(
    ("like", "name", "scale", "message"),
    [
        ("mnist", "a.svm", 1.0, r"`like` must be one of webspam.* got .mnist"),
        ("url", "a.csv", 1.0, r"\.svm for svmlight text"),
        ("url", "a.svm", 0.0, "positive"),
        ("paper", "a.svm", -1.0, "positive"),
        ("url", "a.svm", float("inf"), "positive"),
        ("url", "a.svm", 2000.0, r"at most 4,294,967,295 samples .*lower `scale`"),
        ("paper", "a.svm", 1e4, r"take 1.64e\+04 TB of memory, .*lower `scale`"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, like, name, scale, message):
    with pytest.raises(BadInput, match=message):
        synthesise(like, tmp_path / name, scale)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_kept(tmp_path):
    (tmp_path / "a.svm").write_text("mine")
    with pytest.raises(BadInput, match="overwrite"):
        synthesise("url", tmp_path / "a.svm", 0.001)
    assert (tmp_path / "a.svm").read_text() == "mine"
