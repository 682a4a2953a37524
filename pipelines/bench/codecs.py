"""Cost of each codec: compression ratio, and seconds per decoded GB for an ingest and for a pass over all blocks.

Run with ``make bench-codecs``. A pass reads and decodes every block, here from the page cache. Ingest is measured in
processor time. For comparison, zarr-python's own pipeline reads the same chunks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr
from measure import machine

import gdm_dask
from gdm_dask.store import FeatureStore
from gdm_dask.system.scratch import SpareBuffers

N_SAMPLES, N_FEATURES, N_NONZEROS = 100_000, 500_000, 25_000_000


def some_matrix(kind: str) -> sp.csr_array:
    """Generate samples x features whose feature frequencies follow a power law."""
    rng = np.random.default_rng(0)
    features = (N_FEATURES ** rng.random(N_NONZEROS)).astype(np.int64) - 1
    samples = rng.integers(0, N_SAMPLES, N_NONZEROS)
    matrix = sp.csr_array((np.ones(N_NONZEROS), (samples, features)), shape=(N_SAMPLES, N_FEATURES))
    if kind == "ones":
        matrix.data[:] = 1
    elif kind == "random floats":
        matrix.data = rng.random(matrix.nnz).astype(np.float32)
    elif kind == "six decimals":  # stored as whole numbers
        matrix.data = np.round(1 - rng.random(matrix.nnz), 6)
        matrix.eliminate_zeros()
    elif kind == "unit rows":  # as in text data: few distinct values in a row
        lengths = np.sqrt(np.maximum(np.diff(matrix.indptr), 1))
        matrix.data = (matrix.data / np.repeat(lengths, np.diff(matrix.indptr))).astype(np.float32)
    return matrix


def best_pass(read_block: Callable[[int], Any], n_blocks: int, n_threads: int) -> tuple[float, float]:
    """Return seconds and processor seconds of the best of five passes."""
    taken = []
    for _ in range(5):
        began, cpu = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(read_block, range(n_blocks)))
        taken.append((time.perf_counter() - began, time.process_time() - cpu))
    return min(seconds for seconds, _ in taken), min(cpu for _, cpu in taken)


def read_as_passes_do(store: FeatureStore) -> Callable[[int], Any]:
    """Return a function that reads a block into buffers that its thread reuses."""
    spare = SpareBuffers()

    def read(number: int) -> None:
        with spare.borrowed() as buffers:
            store.load_block(number, buffers)

    return read


def read_with_zarr(store: FeatureStore) -> Callable[[int], Any]:
    """Return a function that reads a block with zarr-python."""
    root = zarr.open_group(store.url, mode="r")
    blocks = [
        [root[f"blocks/{number:05d}/{name}"] for name in entry.arrays]
        for number, entry in enumerate(store.manifest.blocks)
    ]
    return lambda number: [array[:] for array in blocks[number]]


def main() -> None:
    """Print a table."""
    print(machine())
    print(
        "| values | codec | ratio | ingest | pass, 1 thread | pass, 2 threads | processor | zarr-python's processor |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind in ("random floats", "unit rows", "six decimals", "counts", "ones"):
        matrix = some_matrix(kind)
        labels = np.arange(N_SAMPLES) % 2
        for codec in ("none", "lz4", "zstd"):
            with tempfile.TemporaryDirectory() as folder:
                cpu = time.process_time()
                store = gdm_dask.ingest(matrix, Path(folder) / "s", labels, codec=codec)
                ingest_cpu = time.process_time() - cpu
                gigabytes = store.nbytes / 1e9
                one, cpu = best_pass(read_as_passes_do(store), store.n_blocks, 1)
                two, _ = best_pass(read_as_passes_do(store), store.n_blocks, 2)
                _, theirs = best_pass(read_with_zarr(store), store.n_blocks, 1)
                ratio = store.nbytes / store.size_on_disk()
            figures = (ingest_cpu, one, two, cpu, theirs)
            shown = " | ".join(f"{figure / gigabytes:.2f}" for figure in figures)
            print(f"| {kind} | {codec} | {ratio:.2f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
