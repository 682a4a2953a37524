"""Pipelines: one TOML file is one job, from the data to the report, run by hand or by a schedule."""

from gdm_dask.pipeline.runner import plan_pipeline, run_pipeline
from gdm_dask.pipeline.schema import Pipeline, load_pipeline

__all__ = ["Pipeline", "load_pipeline", "plan_pipeline", "run_pipeline"]
