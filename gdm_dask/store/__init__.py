"""The feature store. No other package knows how feature rows are laid out on disk."""

from gdm_dask.features.block import Block
from gdm_dask.store.feature_store import FeatureStore, as_store, is_store, open_store

__all__ = ["Block", "FeatureStore", "as_store", "is_store", "open_store"]
