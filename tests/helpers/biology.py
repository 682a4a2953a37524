"""The files that docs/biology.md starts from: two cohorts of genotypes, cells in .h5ad and in a folder of 10x."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.sources import cell_ranger, h5ad

N_PEOPLE, N_VARIANTS, N_CELLS, N_GENES = 240, 120, 300, 80


def write_biology(folder: Path) -> None:
    write_people(folder)
    write_cells(folder)


def write_people(folder: Path) -> None:
    """Write blocks of correlated variants, a case/control phenotype and a height, with gaps, and covariates."""
    from bed_reader import to_bed

    rng = np.random.default_rng(0)
    causes = rng.integers(0, 3, (N_PEOPLE, N_VARIANTS // 6))
    X = np.repeat(causes, 6, axis=1)
    fresh = rng.random(X.shape) < 0.1
    X[fresh] = rng.integers(0, 3, fresh.sum())
    ids = [f"HG{number}" for number in range(N_PEOPLE)]
    people = pd.DataFrame({"FID": "0", "IID": ids, "age": rng.integers(20, 80, N_PEOPLE)})
    people["sex"] = rng.choice(["F", "M"], N_PEOPLE)
    people[["PC1", "PC2"]] = rng.normal(size=(N_PEOPLE, 2)).round(4)
    height = X[:, 3] - X[:, 15] + 0.03 * people["age"] + rng.normal(size=N_PEOPLE)
    case = pd.Series(np.where(height > height.median(), "2", "1"))
    case[::17], height[::13], people.loc[::40, "PC1"] = "NA", np.nan, np.nan
    people.sample(frac=1, random_state=0).to_csv(folder / "people.cov", sep=" ", index=False, na_rep="NA")
    people[["FID", "IID"]].assign(case=case, height=height).to_csv(
        folder / "people.pheno", sep="\t", na_rep="NA", index=False
    )
    for name, some in (("people", slice(0, 180)), ("cohort", slice(180, None))):
        properties: dict[str, Any] = {
            "iid": ids[some], "sid": [f"rs{number}" for number in range(N_VARIANTS)],
            "chromosome": ["22"] * N_VARIANTS, "bp_position": list(range(1000, 1000 + N_VARIANTS)),
            "allele_1": ["A"] * N_VARIANTS, "allele_2": ["G"] * N_VARIANTS,
        }  # fmt: skip
        to_bed(folder / f"{name}.bed", np.ascontiguousarray(X[some], float), properties=properties)


def write_cells(folder: Path) -> None:
    """Write cells of three types, one of them rare, in two batches."""
    rng = np.random.default_rng(1)
    types = rng.choice(["B", "T", "pDC"], N_CELLS, p=[0.5, 0.42, 0.08])
    means = np.where(np.arange(N_GENES) % 3 == np.searchsorted(["B", "T", "pDC"], types)[:, None], 2.0, 0.7)
    X, ids = rng.poisson(means).astype(float), [f"AAAC{number:04d}-1" for number in range(N_CELLS)]
    annotation = pd.DataFrame({"cell_type": types, "batch": rng.choice(["b1", "b2"], N_CELLS)}, ids)
    annotation["pct_mt"] = rng.random(N_CELLS).round(3)
    annotation.loc[ids[5], "cell_type"] = None
    annotation.sample(frac=1, random_state=0).to_csv(folder / "annotation.csv")
    for name, some in (("cells", slice(0, 200)), ("others", slice(200, None))):
        h5ad("csr")(folder, X[some], ids[some], annotation.iloc[some]).rename(folder / f"{name}.h5ad")
    (folder / "10x").mkdir()
    cell_ranger(folder / "10x", X, ids)
