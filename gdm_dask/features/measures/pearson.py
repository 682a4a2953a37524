"""Pearson's correlation coefficient (1): the measure of the paper, and the default."""

from gdm_dask.features.correlation import angle, correlations
from gdm_dask.features.groups import prepare
from gdm_dask.features.measures.measure import Measure

PEARSON = Measure("pearson", "Pearson's correlation coefficient", correlations, prepare, angle)
