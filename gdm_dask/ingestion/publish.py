"""Last step of an ingest: labels and manifest are written, and the store takes its name."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version

from gdm_dask.errors import GdmError
from gdm_dask.ingestion.options import IngestOptions
from gdm_dask.ingestion.partition import Partition
from gdm_dask.ingestion.source import Source
from gdm_dask.ingestion.workspace import Workspace
from gdm_dask.store import layout
from gdm_dask.store.arrays import write_array
from gdm_dask.store.feature_store import FeatureStore


def publish(
    parts: Partition, entries: list[layout.BlockEntry], source: Source, workspace: Workspace, options: IngestOptions
) -> FeatureStore:
    """Finish the store and open it."""
    if sum(entry.nnz for entry in entries) != parts.nnz or entries[-1].stop != parts.n_features:
        raise GdmError("the blocks do not hold all that was read: please report this as a fault of gdm_dask")
    folder, codec = workspace.store, options.codec
    layout.write_group(folder, "blocks")
    arrays = {"labels": write_array(folder, "labels", parts.labels, codec)}
    if source.sample_ids is not None:
        ids = layout.write_text(folder, "sample_ids", source.sample_ids, codec)
        arrays |= {f"sample_ids/{key}": entry for key, entry in ids.items()}
    if source.vocabulary is not None:
        arrays["vocabulary"] = write_array(folder, "vocabulary", source.vocabulary.packed(), codec)
    provenance = {
        "source": source.description,
        "files": source.identity.get("files", []),
        "parameters": asdict(options),
        "skipped_lines": parts.skipped,
        "unseen_nonzeros": parts.unseen,
        "versions": {name: version(name) for name in ("gdm_dask", "numpy", "numcodecs")}
        | {"python": platform.python_version()},
    }
    manifest = layout.Manifest(
        parts.kind, (parts.n_features, parts.n_samples), parts.nnz, parts.value_type, codec, parts.classes, entries,
        arrays, provenance,
    )  # fmt: skip
    workspace.mark_finished(manifest.fingerprint)
    layout.write_manifest(folder, manifest)
    workspace.publish()
    return FeatureStore(workspace.target)
