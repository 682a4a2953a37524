"""Samples without a target: refused by name, or dropped and counted."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
from helpers.sources import SOURCES, counts

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.ingestion import run_ingest

LACKING = [0, 3, 4, 17, 38]


def some_targets(n_samples: int) -> np.ndarray:
    labels = np.array(["case", "control"], object)[np.arange(n_samples) % 2]
    labels[LACKING] = [None, float("nan"), pd.NA, None, None]
    return labels


@pytest.mark.parametrize("run_bytes", ["200", None])
@pytest.mark.parametrize("kind", SOURCES)
def test_dropping_samples_is_ingesting_the_others(tmp_path, caplog, kind, run_bytes) -> None:
    X, ids = counts()
    y, weights = some_targets(len(X)), np.arange(len(X)) + 1.0
    kept = np.setdiff1d(np.arange(len(X)), LACKING)
    options = {"scheduler": "synchronous", "run_bytes": run_bytes}
    for name in ("all", "kept"):
        (tmp_path / name).mkdir()
    source = SOURCES[kind](tmp_path / "all", X, ids)
    with caplog.at_level(logging.WARNING):
        done = run_ingest(source, tmp_path / "a", y, sample_weight=weights, on_missing="drop", **options)
    fewer = SOURCES[kind](tmp_path / "kept", X[kept], [ids[k] for k in kept])
    expected = gdm_dask.ingest(fewer, tmp_path / "b", y[kept].tolist(), sample_weight=weights[kept], **options)
    assert done.store.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(done.store.to_scipy().toarray().T, X[kept])
    assert done.store.sample_ids == expected.sample_ids
    assert done.dropped_samples == len(LACKING)
    assert done.store.manifest.provenance["dropped_samples"] == len(LACKING)
    assert "5 of 40 samples without a target or a covariate were dropped" in caplog.text
    with pytest.raises(BadInput, match=r"there is no label for sample 0 .* and 4 others: .*--on-missing drop"):
        gdm_dask.ingest(source, tmp_path / "c", y)


@pytest.mark.parametrize(
    ("suffix", "word"),
    [("csv", ""), ("tsv", "")]
    + [(suffix, word) for suffix in ("csv", "tsv", "pheno") for word in ("NA", "NaN", "nan", ".", "N/A", "<NA>")],
)
def test_words_of_a_table_that_stand_for_no_value(tmp_path, suffix, word) -> None:
    X, ids = counts()
    between = {"csv": ",", "tsv": "\t", "pheno": "  "}[suffix]
    path = tmp_path / f"y.{suffix}"
    rows = [("IID", "height"), *((one, str(k / 7) if k != 3 else word) for k, one in enumerate(ids))]
    path.write_text("\n".join(between.join(row) for row in rows) + "\n")
    source = SOURCES["h5ad csr"](tmp_path, X, ids)
    with pytest.raises(BadInput, match=rf"y\.{suffix}, line 5: there is no value for sample 'cell3-1': fill it in"):
        gdm_dask.ingest(source, tmp_path / "a.zarr", f"{path}:height")
    store = gdm_dask.ingest(source, tmp_path / "a.zarr", f"{path}:height", on_missing="drop")
    np.testing.assert_array_equal(store.y, np.delete(np.arange(40) / 7, 3))
    assert store.own_target().kind == "numbers"


def test_a_class_may_be_named_like_a_missing_value_in_an_array(tmp_path) -> None:
    X, _ = counts()
    y = np.where(np.arange(40) % 2, "NA", "EU")
    assert gdm_dask.ingest(X, tmp_path / "a.zarr", y).classes == ["EU", "NA"]
    np.save(tmp_path / "y.npy", y)
    assert gdm_dask.ingest(X, tmp_path / "b.zarr", tmp_path / "y.npy").classes == ["EU", "NA"]


def test_samples_without_a_line_are_dropped(tmp_path) -> None:
    X, ids = counts()
    pd.DataFrame({"type": ["B", "T"] * 5}, ids[10:20]).to_csv(tmp_path / "y.csv", index_label="cell")
    source = SOURCES["mtx"](tmp_path, X, ids)
    with pytest.raises(BadInput, match="10 labels for 40 samples"):  # an .mtx has no ids
        gdm_dask.ingest(source, tmp_path / "a.zarr", f"{tmp_path}/y.csv:type", on_missing="drop")
    source = SOURCES["cell ranger"](tmp_path, X, ids)
    with pytest.raises(BadInput, match=r"y\.csv: there is no line for sample 'cell0-1' and 29 others: .*drop"):
        gdm_dask.ingest(source, tmp_path / "a.zarr", f"{tmp_path}/y.csv:type")
    store = gdm_dask.ingest(source, tmp_path / "a.zarr", f"{tmp_path}/y.csv:type", on_missing="drop")
    assert store.sample_ids == ids[10:20]
    np.testing.assert_array_equal(store.y, ["B", "T"] * 5)


def test_columns_of_a_table_and_of_a_frame_may_have_gaps(tmp_path) -> None:
    X, ids = counts()
    frame = pd.DataFrame(X, ids, [f"g{k}" for k in range(X.shape[1])]).assign(kind=some_targets(40))
    kept = np.setdiff1d(np.arange(40), LACKING)
    frame.to_csv(tmp_path / "a.csv", na_rep="NA")
    with pytest.raises(BadInput, match=r"a\.csv: column 'kind' is empty for sample 0 .* and 4 others"):
        gdm_dask.ingest(tmp_path / "a.csv", tmp_path / "a", "kind")
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.csv", tmp_path / "a.parquet", frame):
        store = gdm_dask.ingest(source, tmp_path / "a", "kind", on_missing="drop", overwrite=True)
        np.testing.assert_array_equal(store.to_scipy().toarray().T, X[kept])
        np.testing.assert_array_equal(store.y, frame["kind"].iloc[kept])


def test_empty_lines_of_a_table_do_not_shift_its_samples(tmp_path) -> None:
    X, ids = counts()
    path = SOURCES["csv"](tmp_path, X, ids)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    y = some_targets(40)
    with pytest.raises(BadInput, match="some lines are empty: remove them"):
        gdm_dask.ingest(path, tmp_path / "a", y, on_missing="drop", scheduler="synchronous")


def test_sources_that_cannot_drop_say_so(tmp_path) -> None:
    X, _ = counts()
    with pytest.raises(BadInput, match="no sample has a target"):
        gdm_dask.ingest(X, tmp_path / "a", np.full(40, np.nan), on_missing="drop")
    with pytest.raises(BadInput, match="`on_missing` must be 'raise' or 'drop', got 'skip'"):
        gdm_dask.ingest(X, tmp_path / "a", on_missing="skip")


@pytest.mark.parametrize(
    ("lines", "ids", "found"),
    [
        (["FID IID x", "F0 b 2", "F0 a 1"], ["a", "b"], [1, 2]),
        (["#FID\tIID\tx", "F0\tb\t2", "F0\ta\t1"], ["a", "b"], [1, 2]),
        (["#IID x", "b 2", "a 1"], ["a", "b"], [1, 2]),
        (["  FID   IID   x", "   F0     1   2", "   F1     1   1"], ["F1_1", "F0_1"], [1, 2]),
        (["barcode x", "AC 2", "AA 1"], ["AA-1", "AC-1"], [1, 2]),
        (["barcode x", "AC-1 2", "AA-1 1"], ["AA", "AC"], [1, 2]),
        (["height x", "1.5 1", "1.6 2"], ["a", "b"], [1, 2]),
    ],
)
def test_ids_as_they_are_written_in_this_field(tmp_path, lines, ids, found) -> None:
    path = tmp_path / "y.txt"
    path.write_text("\n".join(lines) + "\n")
    from gdm_dask.store.target_files import check_targets

    assert check_targets(f"{path}:x", 2, "here", ids).tolist() == found


@pytest.mark.parametrize(
    ("lines", "ids", "problem"),
    [
        (["FID IID x", "F0 b 2", "F0 a 1"], ["c", "d"], "the ids are those of other samples: they begin with"),
        (["cell x", "AA-1 1", "AC-1 2", "AG-1 2"], ["TA-1", "TC-1", "TG-1"], "the ids are those of other samples"),
        (
            ["cell x", "AA 1", "AC 2", "AG 3"],
            ["AA-1", "AC-1", "AA-2"],
            "samples of several wells then have the same id",
        ),
        (["F0 a 1", "F0 b 2"], ["a", "b"], "line 1: must name the columns, got F0 a 1"),
        (["IID x", "a 1", "b 1 2"], ["a", "b"], "line 3: lines have 2 and 3 values"),
    ],
)
def test_strange_ids_are_refused(tmp_path, lines, ids, problem) -> None:
    from gdm_dask.store.target_files import check_targets

    path = tmp_path / "y.txt"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=problem):
        check_targets(f"{path}:x", len(ids), "here", ids)


@pytest.mark.parametrize(
    ("phenotype", "known", "y"),
    [
        ("1 2 0 -9 2", [0, 1, 4], [1, 2, 2]),  # 0 is unknown beside 1 and 2
        ("0 1 1 -9 0", [0, 1, 2, 4], [0, 1, 1, 0]),
        ("0 1.5 NA -9 2", [0, 1, 4], [0, 1.5, 2]),
    ],
)
def test_unknown_phenotypes_of_plink(tmp_path, phenotype, known, y) -> None:
    X, ids = counts(5)
    path = SOURCES["plink"](tmp_path, X, ids)
    fam = path.with_suffix(".fam")
    fam.write_text("".join(f"0 {one} 0 0 0 {word}\n" for one, word in zip(ids, phenotype.split(), strict=True)))
    store = gdm_dask.ingest(path, tmp_path / "a", on_missing="drop")
    assert store.sample_ids == [ids[k] for k in known]
    np.testing.assert_array_equal(store.y, y)
    with pytest.raises(BadInput, match=r"a\.fam, line [34]: the phenotype is unknown"):
        gdm_dask.ingest(path, tmp_path / "b")


def test_people_of_the_same_name_are_told_apart_by_family(tmp_path) -> None:
    X, _ = counts(4)
    path = SOURCES["plink"](tmp_path, X, ["1", "1", "2", "2"])
    path.with_suffix(".fam").write_text("A 1 0 0 0 1\nB 1 0 0 0 2\nA 2 0 0 0 1\nB 2 0 0 0 2\n")
    (tmp_path / "y.txt").write_text("FID IID x\nB 2 4\nA 2 3\nB 1 2\nA 1 1\n")
    store = gdm_dask.ingest(path, tmp_path / "a", f"{tmp_path}/y.txt:x", task="regression")
    assert store.sample_ids == ["A_1", "B_1", "A_2", "B_2"]
    np.testing.assert_array_equal(store.y, [1, 2, 3, 4])
