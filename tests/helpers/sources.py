"""The same matrix as every source whose samples and targets are separate."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import zarr


def csv(folder: Path, X: np.ndarray, ids: list[str], packed: bool = False) -> Path:
    path = folder / ("a.csv.gz" if packed else "a.csv")
    pd.DataFrame(X, ids, [f"g{k}" for k in range(X.shape[1])]).to_csv(path)
    return path


def parquet(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
    frame = pd.DataFrame(X, ids, [f"g{k}" for k in range(X.shape[1])])
    frame.to_parquet(folder / "a.parquet", row_group_size=7)
    return folder / "a.parquet"


def npy(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
    np.save(folder / "a.npy", X)
    return folder / "a.npy"


def zarr_array(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
    array = zarr.create_array(folder / "a.zarr", shape=X.shape, dtype=X.dtype, chunks=(5, X.shape[1]))
    array[:] = X
    return folder / "a.zarr"


def npz(layout: str) -> Callable[..., Path]:
    def write(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
        sp.save_npz(folder / "a.npz", sp.coo_array(X).asformat(layout))
        return folder / "a.npz"

    return write


def mtx(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
    scipy.io.mmwrite(folder / "a.mtx", sp.coo_array(X), symmetry="general")
    return folder / "a.mtx"


def cell_ranger(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
    market = io.BytesIO()
    scipy.io.mmwrite(market, sp.coo_array(X.T), symmetry="general")
    for name, text in {
        "matrix.mtx": market.getvalue(),
        "barcodes.tsv": "".join(f"{one}\n" for one in ids).encode(),
        "features.tsv": "".join(f"ENSG{k}\tg{k}\tGene Expression\n" for k in range(X.shape[1])).encode(),
    }.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text))
    return folder


def h5ad(layout: str) -> Callable[..., Path]:
    """Write an AnnData file as AnnData does, for which it would have to be installed."""

    def write(folder: Path, X: np.ndarray, ids: list[str], obs: pd.DataFrame | None = None) -> Path:
        import h5py

        text = h5py.string_dtype()
        with h5py.File(folder / "a.h5ad", "w") as file:
            if layout == "dense":
                file["X"] = X
                file["X"].attrs["encoding-type"] = "array"
            else:
                matrix, group = sp.coo_array(X).asformat(layout), file.create_group("X")
                for name in ("data", "indices", "indptr"):
                    group[name] = getattr(matrix, name)
                group.attrs.update({"encoding-type": f"{layout}_matrix", "shape": X.shape})
            for table, names in (("obs", ids), ("var", [f"g{k}" for k in range(X.shape[1])])):
                group = file.create_group(table)
                group.create_dataset("_index", data=names, dtype=text)
                group.attrs.update({"_index": "_index", "column-order": np.zeros(0, text)})
            if obs is not None:
                file["obs"].attrs["column-order"] = [*obs.columns]
                for name in obs.columns:
                    write_column(file["obs"], name, obs[name])
        return folder / "a.h5ad"

    return write


def write_column(group: Any, name: str, column: pd.Series) -> None:
    """Write a column of numbers, or of text as categories."""
    if column.dtype.kind in "biuf":
        group[name] = column.to_numpy()
        return
    found = column.astype("category").cat
    group.create_group(name).attrs["encoding-type"] = "categorical"
    group[name]["codes"] = found.codes.to_numpy()
    group[name]["categories"] = found.categories.to_numpy(object)


def plink(folder: Path, X: np.ndarray, ids: list[str]) -> Path:
    from bed_reader import to_bed

    properties = {"iid": ids, "fid": ["0"] * len(ids), "sid": [f"g{k}" for k in range(X.shape[1])]}
    to_bed(folder / "a.bed", np.ascontiguousarray(X), properties={**properties, "pheno": ["-9"] * len(ids)})
    return folder / "a.bed"


SOURCES: dict[str, Callable[[Path, np.ndarray, list[str]], Any]] = {
    "csv": csv,
    "csv.gz": lambda folder, X, ids: csv(folder, X, ids, packed=True),
    "parquet": parquet,
    "npy": npy,
    "zarr": zarr_array,
    "npz csr": npz("csr"),
    "npz csc": npz("csc"),
    "npz coo": npz("coo"),
    "mtx": mtx,
    "cell ranger": cell_ranger,
    "h5ad csr": h5ad("csr"),
    "h5ad csc": h5ad("csc"),
    "h5ad dense": h5ad("dense"),
    "plink": plink,
    "ndarray": lambda folder, X, ids: X,
    "scipy": lambda folder, X, ids: sp.csr_array(X),
    "frame": lambda folder, X, ids: pd.DataFrame(X, ids, [f"g{k}" for k in range(X.shape[1])]),
    "dask": lambda folder, X, ids: da.from_array(X, chunks=(7, -1)),
}


def counts(n_samples: int = 40, n_features: int = 9) -> tuple[np.ndarray, list[str]]:
    """Return a matrix of 0, 1 and 2, and ids of its samples."""
    rng = np.random.default_rng(n_samples)
    X = rng.choice([0.0, 1.0, 2.0], (n_samples, n_features), p=[0.5, 0.3, 0.2])
    return X, [f"cell{number}-1" for number in range(n_samples)]
