"""Sets from OpenML; only `python -m pipelines.paper fetch` downloads them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml

from gdm_dask.errors import BadInput

from ..problem import Problem, data_file, is_there, split

PAGE = "https://www.openml.org (python -m pipelines.paper fetch)"
#: Name on OpenML (version 1) -> label of the positive class.
NAMES = {"Bioresponse": "1", "gina_agnostic": "1", "hiva_agnostic": "1", "OVA_Breast": "Breast"}


def file_of(name: str) -> str:
    """Return the path of a set below the folder GDM_DATA."""
    return f"fetched/{name}.npz"


def load_fetched(name: str, seed: int) -> Problem:
    """Read a downloaded set; a third of each class is the test set."""
    with np.load(data_file(file_of(name), PAGE)) as data:
        return split(data["x"], data["y"], 1 / 3, seed)


def fetch() -> None:
    """Download the missing sets to the folder GDM_DATA."""
    if "GDM_DATA" not in os.environ:
        raise BadInput("set GDM_DATA to the folder for downloads")
    for name, positive in NAMES.items():
        if is_there(file_of(name)) is None:
            print(f"fetching {name}", flush=True)
            X, y = fetch_openml(name, version=1, as_frame=False, parser="liac-arff", return_X_y=True)
            _write(np.asarray(X, np.float32), np.where(y.astype(str) == positive, 1, -1), file_of(name))


def _write(X: np.ndarray, y: np.ndarray, file: str) -> None:
    """Write a set atomically."""
    path = Path(os.environ["GDM_DATA"]) / file
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    np.savez_compressed(part, x=X, y=y)
    part.replace(path)
