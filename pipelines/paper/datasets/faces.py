"""ORL (Olivetti) faces, women against men: 400 images of 112 x 92 pixels. A quarter of each class is the test set."""

from __future__ import annotations

import numpy as np

from ..problem import Problem, data_file, split

NAME = "ORL faces"
RANDOM = True
FILES = ("orl/orl.npz",)
PAGE = "https://cam-orl.co.uk/facedatabase.html"


def load(seed: int) -> Problem:
    """Read orl/orl.npz: x (400 x 112 x 92) and female."""
    with np.load(data_file(FILES[0], PAGE)) as data:
        images, y = data["x"], np.where(data["female"], 1, -1)
    portraits = {name: images[y == label].mean(axis=0) for name, label in (("women", 1), ("men", -1))}
    return split(images.reshape(len(images), -1), y, 0.25, seed, portraits=portraits)
