"""A sample of RCV1, corporate news or not: 1,000 + 500 stories, 47,237 words. An addition to the paper's data."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..problem import Problem, data_file

NAME = "RCV1 sample"
RANDOM = False
FILES = ("rcv1_sample/rcv1_small.npz",)
PAGE = "https://github.com/VowpalWabbit/vowpal_wabbit (test/train-sets/rcv1_small.dat)"


def load(seed: int) -> Problem:
    """Read rcv1_sample/rcv1_small.npz: the arrays of two CSR matrices, y_train, y_test and n_features."""
    del seed
    with np.load(data_file(FILES[0], PAGE)) as data:
        width = int(data["n_features"])
        X, X_test = (
            sp.csr_array(
                (data[f"{part}_data"], data[f"{part}_indices"], data[f"{part}_indptr"]),
                shape=(len(data[f"y_{part}"]), width),
            )
            for part in ("train", "test")
        )
        return Problem(X, data["y_train"].astype(np.int64), X_test, data["y_test"].astype(np.int64))
