"""Madelon (Guyon, 2003): 2,600 samples, 500 features, of which 20 are relevant, but not linearly. An addition."""

from __future__ import annotations

from ..problem import Problem
from ._tables import load_table

NAME = "Madelon"
RANDOM = True
FILES = ("genes/madelon.npz",)
PAGE = "https://archive.ics.uci.edu/dataset/171/madelon"


def load(seed: int) -> Problem:
    """Split anew for each seed."""
    return load_table(FILES[0], PAGE, seed)
