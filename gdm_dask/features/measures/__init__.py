"""Correlation measures: one file each. They decide which features conflict, and which belong to a group."""

from gdm_dask.features.measures.cosine import COSINE
from gdm_dask.features.measures.ig import IG
from gdm_dask.features.measures.measure import Measure
from gdm_dask.features.measures.pearson import PEARSON
from gdm_dask.features.measures.spearman import SPEARMAN
from gdm_dask.features.measures.su import SU

#: All measures by name.
MEASURES: dict[str, Measure] = {
    PEARSON.name: PEARSON,
    SPEARMAN.name: SPEARMAN,
    COSINE.name: COSINE,
    SU.name: SU,
    IG.name: IG,
}

__all__ = ["MEASURES", "PEARSON", "Measure"]
