"""Prostate tumour or normal tissue (Singh et al., 2002): 102 samples, 12,600 genes."""

from __future__ import annotations

from ..problem import Problem
from ._genes import load_genes

NAME = "genes, prostate"
RANDOM = True


def load(seed: int) -> Problem:
    """Another split for each seed."""
    return load_genes("singh", seed)
