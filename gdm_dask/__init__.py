"""gdm_dask: the Group Discovery Machine, distributed and out of core."""

from importlib.metadata import version

from gdm_dask.ingestion import ingest
from gdm_dask.store import FeatureStore, open_store

__version__ = version("gdm_dask")

__all__ = ["FeatureStore", "__version__", "ingest", "open_store"]
