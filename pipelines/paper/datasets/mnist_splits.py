"""MNIST, 3 against 8, split anew for each seed: 13,966 images, a seventh of them for testing. An addition.

MNIST's own test set has 1,984 images, so one image is 0.05 % of accuracy; several splits tell more.
"""

from __future__ import annotations

import numpy as np

from ..problem import Problem, split
from . import mnist

NAME = "MNIST 3 v 8, splits"
RANDOM = True
FILES, PAGE = mnist.FILES, mnist.PAGE


def load(seed: int) -> Problem:
    """Join both parts of MNIST, and split anew for each seed."""
    whole = mnist.load(seed)
    X, y = np.concatenate([whole.X, whole.X_test]), np.concatenate([whole.y, whole.y_test])
    return split(X, y, 1 / 7, seed)
