"""Colon tumour or normal tissue (Alon et al., 1999): 62 samples, 2,000 genes."""

from __future__ import annotations

from ..problem import Problem
from ._genes import load_genes

NAME = "genes, colon"
RANDOM = True


def load(seed: int) -> Problem:
    """Another split for each seed."""
    return load_genes("alon", seed)
