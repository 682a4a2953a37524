"""The feature store: the only place that knows how feature rows lie on disk."""

from gdm_dask.store.block import Block
from gdm_dask.store.feature_store import FeatureStore, open_store

__all__ = ["Block", "FeatureStore", "open_store"]
