"""MNIST, 3 against 8: 11,982 + 1,984 images. The paper's 752 features are the pixels up to the last with any ink."""

from __future__ import annotations

import numpy as np

from ..problem import Problem, data_file

NAME = "MNIST 3 v 8"
RANDOM = False
FILES = ("mnist/mnist_3v8.npz",)
PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets (mnist)"
N_FEATURES = 752


def load(seed: int) -> Problem:
    """Read mnist/mnist_3v8.npz: x_train, y_train, x_test, y_test."""
    del seed
    with np.load(data_file(FILES[0], PAGE)) as data:
        X, X_test = (data[name][:, :N_FEATURES] for name in ("x_train", "x_test"))
        y, y_test = (np.where(data[name] > 0, 1, -1) for name in ("y_train", "y_test"))
    return Problem(X, y, X_test, y_test)
