"""Leukaemia, AML or ALL (Golub et al., 1999): 72 samples, 7,129 genes."""

from __future__ import annotations

from ..problem import Problem
from ._genes import load_genes

NAME = "genes, leukaemia"
RANDOM = True


def load(seed: int) -> Problem:
    """Another split for each seed."""
    return load_genes("golub", seed)
