"""gdm_dask: the Group Discovery Machine, distributed and out of core."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from gdm_dask.kernel_cache import ensure_kernel_cache

if TYPE_CHECKING:
    from gdm_dask.correlation import feature_correlations, redundancy_rate
    from gdm_dask.estimator import GroupDiscoveryMachine
    from gdm_dask.importance import group_importance
    from gdm_dask.information import information_gain, symmetrical_uncertainty
    from gdm_dask.ingestion import ingest
    from gdm_dask.stability import stability_selection
    from gdm_dask.store import FeatureStore, open_store

__version__ = version("gdm_dask")
ensure_kernel_cache()

# Loaded when first used: the command line answers --help without importing Dask and numba.
_HOMES = {
    "FeatureStore": "gdm_dask.store",
    "GroupDiscoveryMachine": "gdm_dask.estimator",
    "feature_correlations": "gdm_dask.correlation",
    "information_gain": "gdm_dask.information",
    "ingest": "gdm_dask.ingestion",
    "open_store": "gdm_dask.store",
    "group_importance": "gdm_dask.importance",
    "redundancy_rate": "gdm_dask.correlation",
    "stability_selection": "gdm_dask.stability",
    "symmetrical_uncertainty": "gdm_dask.information",
}

__all__ = [
    "FeatureStore",
    "GroupDiscoveryMachine",
    "__version__",
    "feature_correlations",
    "group_importance",
    "information_gain",
    "ingest",
    "open_store",
    "redundancy_rate",
    "stability_selection",
    "symmetrical_uncertainty",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
