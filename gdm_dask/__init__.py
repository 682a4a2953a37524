"""gdm_dask: the Group Discovery Machine, distributed and out of core."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gdm_dask.system.version import VERSION

if TYPE_CHECKING:
    from gdm_dask.analysis.importance import group_importance
    from gdm_dask.analysis.stability import stability_selection
    from gdm_dask.estimator import GroupDiscoveryMachine, load_model
    from gdm_dask.features.correlation import feature_correlations, redundancy_rate
    from gdm_dask.features.information import information_gain, symmetrical_uncertainty
    from gdm_dask.ingestion import ingest
    from gdm_dask.regressor import GroupDiscoveryRegressor
    from gdm_dask.store import FeatureStore, open_store

__version__ = VERSION

# Loaded when first used: the command line answers --help without importing Dask and numba.
_HOMES = {
    "FeatureStore": "gdm_dask.store",
    "GroupDiscoveryMachine": "gdm_dask.estimator",
    "GroupDiscoveryRegressor": "gdm_dask.regressor",
    "feature_correlations": "gdm_dask.features.correlation",
    "information_gain": "gdm_dask.features.information",
    "ingest": "gdm_dask.ingestion",
    "load_model": "gdm_dask.estimator",
    "open_store": "gdm_dask.store",
    "group_importance": "gdm_dask.analysis.importance",
    "redundancy_rate": "gdm_dask.features.correlation",
    "stability_selection": "gdm_dask.analysis.stability",
    "symmetrical_uncertainty": "gdm_dask.features.information",
}

__all__ = [
    "FeatureStore",
    "GroupDiscoveryMachine",
    "GroupDiscoveryRegressor",
    "__version__",
    "feature_correlations",
    "group_importance",
    "information_gain",
    "ingest",
    "load_model",
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
