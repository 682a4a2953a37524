"""The feature store: the only place that knows how feature rows lie on disk."""

from gdm_dask.features.block import Block
from gdm_dask.store.feature_store import FeatureStore, as_store, is_store, open_store

__all__ = ["Block", "FeatureStore", "as_store", "is_store", "open_store"]
