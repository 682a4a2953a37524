"""Prostate tumour or normal tissue (Singh et al., 2002): 102 samples, 12,600 genes."""

from __future__ import annotations

from ..problem import Problem
from ._tables import GENES, load_table

NAME = "genes, prostate"
RANDOM = True
FILES = ("genes/singh.npz",)
PAGE = GENES


def load(seed: int) -> Problem:
    """Split anew for each seed."""
    return load_table(FILES[0], PAGE, seed)
