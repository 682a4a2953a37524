"""Stores much larger than the memory of a test, made in a moment: a few blocks, linked many times."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from gdm_dask.features.block import Block
from gdm_dask.features.moments import sparse_moments
from gdm_dask.store import FeatureStore, layout, open_store
from gdm_dask.store.arrays import write_array, write_group
from gdm_dask.store.blocks import write_block
from gdm_dask.store.folder import Folder
from gdm_dask.store.layout import BLOCK
from gdm_dask.store.targets import TwoClasses


def random_block(start: int, n_rows: int, n_samples: int, per_row: int, seed: int) -> Block:
    """Make rows with `per_row` nonzeros each, at random positions."""
    rng = np.random.default_rng(seed)
    step = n_samples // per_row
    places = np.arange(per_row, dtype=np.uint32) * np.uint32(step)
    indices = (places + rng.integers(0, step, (n_rows, per_row), dtype=np.uint32)).reshape(-1)
    values = rng.random(n_rows * per_row, dtype=np.float32)
    indptr = np.arange(0, n_rows * per_row + 1, per_row, dtype=np.uint32)
    means, norms = sparse_moments(indptr, values, n_samples)
    return Block(start, start + n_rows, n_samples, values, means, norms, indptr, indices)


def large_store(
    path: Path, n_blocks: int, block_bytes: int, n_samples: int = 20_000, per_row: int = 60, n_distinct: int = 4
) -> FeatureStore:
    """Make a store of `n_blocks` blocks, of which `n_distinct` differ."""
    folder = Folder(path)
    n_rows = block_bytes // (8 * per_row + 20)
    write_group(folder, "blocks")
    entries = []
    for number in range(n_blocks):
        start = number * n_rows
        if number < n_distinct:
            block = random_block(start, n_rows, n_samples, per_row, number)
            entries.append(write_block(folder, number, block, "lz4"))
            continue
        like = number % n_distinct
        link_tree(path / BLOCK.format(like), path / BLOCK.format(number))
        entries.append(replace(entries[like], start=start, stop=start + n_rows))
    target = TwoClasses((-1, 1))
    packed = target.pack(np.where(np.arange(n_samples) % 2 == 0, 1, -1))
    arrays = {"targets": write_array(folder, "targets", packed, "lz4")}
    shape = (n_blocks * n_rows, n_samples)
    manifest = layout.Manifest(
        "sparse", shape, shape[0] * per_row, "float32", "lz4", target.to_json(), entries, arrays, {"source": {}}
    )
    layout.write_manifest(folder, manifest)
    return open_store(path)


def link_tree(source: Path, target: Path) -> None:
    for place, _, names in os.walk(source):
        there = target / Path(place).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.link(Path(place) / name, there / name)
