"""Ingest: from sample-major sources to the feature store."""

from gdm_dask.ingestion.driver import IngestReport, ingest, run_ingest

__all__ = ["IngestReport", "ingest", "run_ingest"]
