"""Full-size lookalikes, from text to groups: ingest and fit within a memory limit. See `frame` for the options.

``--only webspam`` needs 24 GB of disk for the text, 16 GB for scratch and store, and many minutes; ``make bench-full``
runs it, ``make bench`` does not. GDM_SCALE=0.1 uses a tenth of the samples and features. The text is written in several
files and ingested as one set; all files are removed at the end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from frame import Benchmark, Line, Results, main
from peers import timed

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.ingestion import run_ingest
from gdm_dask.ingestion.sources.lookalikes import scaled_lookalike
from gdm_dask.ingestion.sources.lookalikes.files import write_text

SCALE = float(os.environ.get("GDM_SCALE", "1"))
MEMORY_LIMIT = "8GB"
N_PARTS, N_SUPPORTS = 8, 100


def full(data: Dataset) -> dict[str, Any]:
    """Write the text, ingest it, and fit."""
    lookalike = scaled_lookalike(data.name, SCALE)
    with tempfile.TemporaryDirectory(prefix="gdm-full-", dir=data.folder) as folder:
        bounds = [lookalike.n_samples * part // N_PARTS for part in range(N_PARTS + 1)]
        texts = [Path(folder) / f"{part}.svm" for part in range(N_PARTS)]
        for text, start, stop in zip(texts, bounds[:-1], bounds[1:], strict=True):
            write_text(text, lookalike, 0, start, stop)
        text_bytes = sum(text.stat().st_size for text in texts)
        ingest = partial(run_ingest, texts, Path(folder) / "x.zarr", memory_limit=MEMORY_LIMIT)
        done, ingest_seconds = timed(lambda: ingest(n_features=lookalike.n_features))
        machine, seconds = timed(lambda: GroupDiscoveryMachine(N_SUPPORTS, memory_limit=MEMORY_LIMIT).fit(done.store))
        store = done.store
        return {
            "seconds": seconds,
            "ingest_seconds": round(ingest_seconds, 1),
            "text_gb": round(text_bytes / 1e9, 2),
            "store_gb": round(store.size_on_disk() / 1e9, 2),
            "samples": store.shape[1],
            "features": store.shape[0],
            "nonzeros": store.nnz,
            **{name: round(taken, 1) for name, taken in machine.timings_.items() if name != "total"},
        }


def lines(results: Results) -> Iterator[Line]:
    """Compare peak memory with the limit."""
    for (dataset, _), result in results.items():
        if result["status"] == "ok":
            size = f"{result['samples']:,} x {result['features']:,}, {result['nonzeros']:.2e} nonzeros"
            text = f"{dataset}: {size}: ingest {result['ingest_seconds']:.0f} s, fit {result['seconds']:.0f} s"
            yield Line(
                f"{text}, peak memory {result['peak_bytes'] / 1e9:.2f} GB of 8", result["peak_bytes"] / 8e9, at_most=1.0
            )


BENCHMARK = Benchmark(
    "full", ("webspam", "kdd2010"), {f"text to groups, scale {SCALE:g}": full}, {}, lines, stored=False
)

if __name__ == "__main__":
    main(BENCHMARK)
