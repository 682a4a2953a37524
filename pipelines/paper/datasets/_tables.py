"""Small sets in one file, mostly of strongly correlated genes. Additions to the paper's data."""

from __future__ import annotations

import numpy as np

from ..problem import Problem, data_file, split

#: Origin of the gene expression data.
GENES = "https://github.com/ramhiser/datamicroarray"


def load_table(path: str, page: str, seed: int) -> Problem:
    """Read x and y from an .npz file; a third of each class is the test set."""
    with np.load(data_file(path, page)) as data:
        return split(data["x"].astype(np.float32), np.where(data["y"] > 0, 1, -1), 1 / 3, seed)
