"""Ingest: convert sample-major sources to the feature store."""

from gdm_dask.ingestion.driver import IngestReport, as_blocks, ingest, run_ingest

__all__ = ["IngestReport", "as_blocks", "ingest", "run_ingest"]
