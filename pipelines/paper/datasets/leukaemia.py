"""Leukaemia, AML or ALL (Golub et al., 1999): 72 samples, 7,129 genes."""

from __future__ import annotations

from ..problem import Problem
from ._tables import GENES, load_table

NAME = "genes, leukaemia"
RANDOM = True
FILES = ("genes/golub.npz",)
PAGE = GENES


def load(seed: int) -> Problem:
    """Split anew for each seed."""
    return load_table(FILES[0], PAGE, seed)
