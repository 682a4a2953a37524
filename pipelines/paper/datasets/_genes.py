"""Gene expression: few samples, and genes in strongly correlated groups. An addition to the paper's data."""

from __future__ import annotations

import numpy as np

from ..problem import Problem, data_file, split


def load_genes(name: str, seed: int) -> Problem:
    """Reads genes/<name>.npz: x and y; a third of each class is the test set."""
    with np.load(data_file(f"genes/{name}.npz", "https://github.com/ramhiser/datamicroarray")) as data:
        return split(data["x"].astype(np.float32), np.where(data["y"] > 0, 1, -1), 1 / 3, seed)
