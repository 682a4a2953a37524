"""Files of biologists: .h5ad, written by AnnData 0.12, PLINK's .bed, written by bed-reader, and Cell Ranger's .mtx.

AnnData requires an old pandas, so its files lie in ``tests/data/anndata``; ``write_cells`` made them.
"""

from __future__ import annotations

import builtins
import gzip
import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

import gdm_dask
from gdm_dask.errors import BadInput

CELLS = Path(__file__).parents[1] / "data/anndata"
N_CELLS, N_PEAKS = 60, 40
N_PEOPLE, N_VARIANTS = 53, 31


def some_cells() -> tuple[pd.DataFrame, list[str], np.ndarray]:
    """Return obs, the names of the features, and the values of the stored files."""
    rng = np.random.default_rng(0)
    peaks = rng.poisson(0.4, (N_CELLS, N_PEAKS)).astype(np.float32)
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical(rng.choice(["B", "T", "NK"], N_CELLS)),
            "donor": rng.choice(["ann", "bob"], N_CELLS),
            "age": rng.random(N_CELLS),
            "doublet": rng.random(N_CELLS) < 0.5,
            "times": rng.integers(0, 3, N_CELLS),
        },
        index=[f"cell {number}" for number in range(N_CELLS)],
    )
    return obs, [f"chr1:{100 * number}-{100 * number + 50}" for number in range(N_PEAKS)], peaks


def write_cells() -> None:
    import anndata

    obs, names, peaks = some_cells()
    for layout, form in {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": np.asarray}.items():
        cells = anndata.AnnData(form(peaks), obs, pd.DataFrame(index=names))
        cells.write_h5ad(CELLS / f"{layout}.h5ad", compression="gzip" if layout == "csc" else None)


@pytest.mark.parametrize("run_bytes", ["300", None])
@pytest.mark.parametrize("layout", ["csr", "csc", "dense"])
def test_cells_keep_values_names_and_columns_of_obs(tmp_path, layout, run_bytes) -> None:
    obs, names, peaks = some_cells()
    store = gdm_dask.ingest(
        str(CELLS / f"{layout}.h5ad"), tmp_path / "a.zarr", "cell_type", sample_weight="times", run_bytes=run_bytes,
        scheduler="synchronous",
    )  # fmt: skip
    np.testing.assert_array_equal(store.to_scipy().toarray().T, peaks)
    assert store.is_sparse == (layout != "dense")
    assert store.feature_names == names
    assert store.sample_ids == list(obs.index)
    np.testing.assert_array_equal(store.y, obs["cell_type"].to_numpy(str))
    np.testing.assert_array_equal(store.sample_weight, obs["times"])


@pytest.mark.parametrize(("column", "kind"), [("donor", "two classes"), ("age", "numbers"), ("doublet", "two classes")])
def test_columns_of_obs_are_targets_of_their_kind(tmp_path, column, kind) -> None:
    store = gdm_dask.ingest(str(CELLS / "csr.h5ad"), tmp_path / "a.zarr", column, n_workers=2)
    assert store.own_target().kind == kind
    np.testing.assert_array_equal(store.y, some_cells()[0][column].to_numpy())


def test_files_of_old_versions_keep_their_categories(tmp_path) -> None:
    """Before version 0.8, a column held codes with a reference to their categories, and a dense X had no type."""
    import h5py

    path = tmp_path / "cells.h5ad"
    shutil.copy(CELLS / "dense.h5ad", path)
    obs, _, peaks = some_cells()
    codes = obs["cell_type"].cat.codes.to_numpy().copy()
    codes[5] = -1
    with h5py.File(path, "a") as file:
        for key in list(file["X"].attrs):
            del file["X"].attrs[key]
        del file["obs/cell_type"]
        file["obs/__categories/cell_type"] = list(obs["cell_type"].cat.categories)
        file["obs/cell_type"] = codes
        file["obs/cell_type"].attrs["categories"] = file["obs/__categories/cell_type"].ref
    store = gdm_dask.ingest(str(path), tmp_path / "a.zarr", "cell_type", on_missing="drop")
    kept = np.arange(N_CELLS) != 5
    np.testing.assert_array_equal(store.y, obs["cell_type"].to_numpy()[kept])
    np.testing.assert_array_equal(store.to_scipy().toarray().T, peaks[kept])


def test_bad_cells_are_refused_by_name(tmp_path) -> None:
    import h5py

    path = tmp_path / "cells.h5ad"
    shutil.copy(CELLS / "csr.h5ad", path)
    with h5py.File(path, "a") as file:
        file["obs/cell_type/codes"][3] = -1
    with pytest.raises(BadInput, match="column 'cell_type' of obs has no value for sample 3"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", "cell_type")
    with pytest.raises(BadInput, match="'type' is neither a column nor a file; the columns are cell_type, donor, age"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", "type")
    with h5py.File(path, "a") as file:
        file["obs/cell_type/codes"][3] = 100
    with pytest.raises(BadInput, match=r"not a complete \.h5ad file: index 100"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", "cell_type")
    with h5py.File(path, "a") as file:
        file["obs/cell_type/codes"][:] = -1
        del file["obs/cell_type/categories"]
        file["obs/cell_type/categories"] = np.zeros(0)
    with pytest.raises(BadInput, match="column 'cell_type' of obs has no value for sample 0"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", "cell_type")
    with h5py.File(path, "a") as file:
        file["X/indices"][5] = N_PEAKS
    with pytest.raises(BadInput, match="X/indices is damaged"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", "donor", scheduler="synchronous")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInput, match=r"cells\.h5ad: not a complete \.h5ad file"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", "donor")


def some_genotypes(path: Path, phenotype: list[str], missing: bool = True) -> np.ndarray:
    from bed_reader import to_bed

    rng = np.random.default_rng(1)
    genotypes = rng.choice([0.0, 1.0, 2.0], (N_PEOPLE, N_VARIANTS), p=[0.6, 0.3, 0.1])
    if missing:
        genotypes[rng.random(genotypes.shape) < 0.05] = np.nan
        genotypes[:, 7] = np.nan
    names = [f"rs{number}" if number != 4 else "." for number in range(N_VARIANTS)]
    properties = {
        "iid": [f"person{number}" for number in range(N_PEOPLE)],
        "sid": names,
        "pheno": phenotype,
        "chromosome": ["22"] * N_VARIANTS,
        "bp_position": list(range(1000, 1000 + N_VARIANTS)),
    }
    to_bed(path, genotypes, properties=properties)
    return genotypes


@pytest.mark.parametrize("run_bytes", ["300", None])
def test_genotypes_keep_counts_names_and_phenotype(tmp_path, run_bytes) -> None:
    phenotype = [str(1 + number % 2) for number in range(N_PEOPLE)]
    genotypes = some_genotypes(tmp_path / "people.bed", phenotype)
    store = gdm_dask.ingest(str(tmp_path / "people.bed"), tmp_path / "a.zarr", run_bytes=run_bytes)
    known = np.ma.masked_invalid(genotypes)
    expected = np.where(known.mask, known.mean(axis=0).filled(0.0).round(3), genotypes)
    np.testing.assert_array_equal(store.to_scipy().toarray().T, expected)
    assert {block.arrays["values"].dtype for block in store.manifest.blocks} == {"int32"}
    assert store.feature_names[:5] == ["rs0_A1", "rs1_A1", "rs2_A1", "rs3_A1", "22:1004_A1"]
    assert store.sample_ids == [f"person{number}" for number in range(N_PEOPLE)]
    np.testing.assert_array_equal(store.y, np.array(phenotype, float))


def test_an_unknown_phenotype_is_no_target_or_refused(tmp_path) -> None:
    path = str(tmp_path / "people.bed")
    some_genotypes(tmp_path / "people.bed", ["-9"] * N_PEOPLE)
    assert gdm_dask.ingest(path, tmp_path / "a.zarr").target is None
    numbers = np.random.default_rng(2).random(N_PEOPLE)
    np.testing.assert_array_equal(gdm_dask.ingest(path, tmp_path / "b.zarr", numbers).y, numbers)
    some_genotypes(tmp_path / "people.bed", ["1", "2", "-9"] + ["1"] * (N_PEOPLE - 3))
    with pytest.raises(BadInput, match=r"people\.fam, line 3: the phenotype is unknown \(-9\)"):
        gdm_dask.ingest(path, tmp_path / "c.zarr")


def test_genotypes_need_all_three_files(tmp_path) -> None:
    some_genotypes(tmp_path / "people.bed", ["1", "2"] + ["1"] * (N_PEOPLE - 2))
    path = tmp_path / "people.bed"
    path.write_bytes(b"chr1\t100\t200\n")
    with pytest.raises(BadInput, match=r"people\.bed: not a complete set of \.bed, \.bim and \.fam files"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr", scheduler="synchronous")
    (tmp_path / "people.bim").unlink()
    with pytest.raises(BadInput, match=r"people\.bim: cannot be read"):
        gdm_dask.ingest(str(path), tmp_path / "a.zarr")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("a.h5ad", "h5py", "anndata"), ("a.bed", "bed_reader", "plink"), ("a.parquet", "pyarrow", "parquet")],
)
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, name, package, extra) -> None:
    for other in (name, "a.bim", "a.fam"):
        (tmp_path / other).write_bytes(b"")
    load = builtins.__import__

    def without_package(wanted: str, *args: object, **options: object) -> object:
        if wanted.startswith(package):
            raise ImportError(wanted)
        return load(wanted, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_package)
    with pytest.raises(BadInput, match=rf"pip install 'gdm_dask\[{extra}\]'"):
        gdm_dask.ingest(str(tmp_path / name), tmp_path / "a.zarr")


def write_lists(folder: Path, counts: np.ndarray, begin: str, features: str, compressed: bool) -> Path:
    """Write features x cells as Cell Ranger does."""
    lines = {
        "features.tsv": [f"ENSG{n}\t{'TWICE' if n in (3, 5) else f'G{n}'}\tGene Expression" for n in range(N_PEAKS)],
        "genes.tsv": [f"ENSG{n}\tG{n}" for n in range(N_PEAKS)],
        "peaks.bed": ["# id=peaks", *(f"chr1\t{100 * n}\t{100 * n + 50}" for n in range(N_PEAKS))],
    }
    texts = {features: lines[features], "barcodes.tsv": [f"AAAC{n}-1" for n in range(len(counts))]}
    market = io.BytesIO()
    scipy.io.mmwrite(market, sp.coo_array(counts.T.astype(np.int64)), symmetry="general")
    contents = {name: ("\n".join(text) + "\n").encode() for name, text in texts.items()}
    for name, content in {**contents, "matrix.mtx": market.getvalue()}.items():
        packed = gzip.compress(content) if compressed else content
        (folder / f"{begin}{name}{'.gz' if compressed else ''}").write_bytes(packed)
    return folder / f"{begin}matrix.mtx{'.gz' if compressed else ''}"


@pytest.mark.parametrize(
    ("begin", "features", "compressed", "name"),
    [
        ("", "features.tsv", True, "TWICE (ENSG3)"),
        ("GSM1_", "genes.tsv", False, "G3"),
        ("", "peaks.bed", False, "chr1:300-350"),
    ],
)
def test_matrices_of_cell_ranger_hold_features_by_cells(tmp_path, begin, features, compressed, name) -> None:
    counts = some_cells()[2]
    path = write_lists(tmp_path, counts, begin, features, compressed)
    given = path if begin else tmp_path  # Cell Ranger's own names are found in its folder
    store = gdm_dask.ingest(given, tmp_path / "a.zarr", run_bytes="2000", scheduler="synchronous")
    np.testing.assert_array_equal(store.to_scipy().toarray().T, counts)
    assert store.feature_names[2:4] == [{"peaks.bed": "chr1:200-250"}.get(features, "G2"), name]
    assert store.sample_ids == [f"AAAC{n}-1" for n in range(N_CELLS)]


def test_lists_of_another_matrix_are_refused(tmp_path) -> None:
    path = write_lists(tmp_path, some_cells()[2], "", "features.tsv", False)
    (tmp_path / "barcodes.tsv").write_text("AAAC0-1\n")
    with pytest.raises(BadInput, match=r"barcodes.tsv: 1 lines, but .*matrix.mtx has 60"):
        gdm_dask.ingest(path, tmp_path / "a.zarr")


def test_without_both_lists_a_matrix_holds_samples_by_features(tmp_path) -> None:
    path = write_lists(tmp_path, some_cells()[2], "", "features.tsv", False)
    (tmp_path / "features.tsv").unlink()
    assert gdm_dask.ingest(path, tmp_path / "a.zarr").shape == (N_CELLS, N_PEAKS)
    with pytest.raises(BadInput, match=r"the lists of cells and features \(.*\) are missing"):
        gdm_dask.ingest(tmp_path, tmp_path / "b.zarr")  # the folder can only be Cell Ranger's


def with_alleles(path: Path, alleles: list[tuple[str, str]]) -> None:
    """Name the alleles of the variants in a ``.bim`` file."""
    rows = [line.split()[:4] for line in path.with_suffix(".bim").read_text().splitlines()]
    lines = ["\t".join([*row, *pair]) for row, pair in zip(rows, alleles, strict=True)]
    path.with_suffix(".bim").write_text("\n".join(lines) + "\n")


def test_a_test_set_counts_the_alleles_of_the_training_set(tmp_path) -> None:
    phenotype = ["1", "2"] + ["1"] * (N_PEOPLE - 2)
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        some_genotypes(tmp_path / name / "a.bed", phenotype)
    with_alleles(tmp_path / "train/a.bed", [("A", "G")] * 28 + [("A", "G"), ("0", "G"), ("A", "G")])
    with_alleles(tmp_path / "test/a.bed", [("A", "G")] * 20 + [("G", "A")] * 8 + [("0", "G"), ("A", "G"), ("0", "A")])
    train = gdm_dask.ingest(tmp_path / "train/a.bed", tmp_path / "a")
    test = gdm_dask.ingest(tmp_path / "test/a.bed", tmp_path / "b", like=train)
    assert train.feature_names == test.feature_names
    assert train.feature_names[19:21] + train.feature_names[28:] == ["rs19_A", "rs20_A", "rs28_A", "rs29_0", "rs30_A"]
    X, swapped = train.to_scipy().toarray(), [*range(20, 28), 30]
    np.testing.assert_allclose(
        test.to_scipy().toarray(), np.where(np.isin(np.arange(N_VARIANTS), swapped)[:, None], 2 - X, X)
    )
    with_alleles(tmp_path / "test/a.bed", [("T", "C")] * N_VARIANTS)
    with pytest.raises(BadInput, match=r"variant rs0 has the alleles T and C, but the store .* counts A"):
        gdm_dask.ingest(tmp_path / "test/a.bed", tmp_path / "c", like=train)
    with_alleles(tmp_path / "test/a.bed", [("A", "G")] * N_VARIANTS)
    text = (tmp_path / "test/a.bim").read_text()
    (tmp_path / "test/a.bim").write_text(text.replace("rs5\t", "rs55\t"))
    with pytest.raises(BadInput, match="feature 5 is named 'rs55_A', but 'rs5_A' in the store"):
        gdm_dask.ingest(tmp_path / "test/a.bed", tmp_path / "c", like=train)
