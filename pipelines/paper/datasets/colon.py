"""Colon tumour or normal tissue (Alon et al., 1999): 62 samples, 2,000 genes."""

from __future__ import annotations

from ..problem import Problem
from ._tables import GENES, load_table

NAME = "genes, colon"
RANDOM = True
FILES = ("genes/alon.npz",)
PAGE = GENES


def load(seed: int) -> Problem:
    """Split anew for each seed."""
    return load_table(FILES[0], PAGE, seed)
