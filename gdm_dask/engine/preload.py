"""Imported once, by the server that worker processes are forks of: they need not import it again."""

import numpy as np

import gdm_dask.engine.data
import gdm_dask.engine.local
import gdm_dask.features.groups
import gdm_dask.features.ranking  # noqa: F401
from gdm_dask.features.values import from_whole

from_whole(np.zeros(1, np.int32), 1.0, np.zeros(1))  # numba takes half a second to get ready for its first kernel
