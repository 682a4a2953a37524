"""Unattended runs: pipelines in TOML that skip steps whose inputs have not changed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdm_dask.pipeline.load import load_pipeline
    from gdm_dask.pipeline.runner import plan_pipeline, run_pipeline
    from gdm_dask.pipeline.schema import Pipeline

__all__ = ["Pipeline", "load_pipeline", "plan_pipeline", "run_pipeline"]

# Loaded on first use: a single fit needs the run directory but none of the steps.
_HOMES = {
    "Pipeline": "gdm_dask.pipeline.schema",
    "load_pipeline": "gdm_dask.pipeline.load",
    "plan_pipeline": "gdm_dask.pipeline.runner",
    "run_pipeline": "gdm_dask.pipeline.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
