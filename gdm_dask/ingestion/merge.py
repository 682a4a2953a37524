"""Merge runs into blocks: the second half of the out-of-core transposition."""

from __future__ import annotations

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.runs import Run
from gdm_dask.ingestion.sorting import append_run, append_values, rows_increase, sort_rows
from gdm_dask.moments import dense_moments, sparse_moments
from gdm_dask.store.block import Block
from gdm_dask.values import dtype_of


def feature_counts(runs: list[Run], n_features: int) -> np.ndarray:
    """Nonzeros of each feature over all sparse runs, uint32 (a feature has fewer than 2**32 samples)."""
    counts = np.zeros(n_features, np.uint32)
    for run in runs:
        # features are distinct within a run, so that += adds each of them
        counts[run.load("features")] += np.diff(run.load("pointers"))
    return counts


def merge_sparse(
    runs: list[Run], first_samples: list[int], n_samples: int, start: int, counts: np.ndarray, value_type: str
) -> Block:
    """Features `start` to ``start + len(counts)`` of all runs as a block.

    Parameters
    ----------
    runs : list of Run
        In the order of their samples.
    first_samples : list of int
        Number of each run's first sample.
    n_samples : int
        Samples in all.
    start : int
        First feature of the block.
    counts : ndarray
        Nonzeros of each feature of the block.
    value_type : str
        Of the store.
    """
    stop = start + len(counts)
    indptr = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, dtype=np.uint32, out=indptr[1:])
    indices = np.empty(indptr[-1], np.uint32)
    values = None if value_type == "one" else np.empty(indptr[-1], dtype_of(value_type))
    cursors = indptr[:-1].astype(np.int64)
    for run, first_sample in zip(runs, first_samples, strict=True):
        features = run.load("features")
        low, high = np.searchsorted(features, [start, stop])
        if low == high:
            continue
        features = np.array(features[low:high])
        pointers = np.array(run.load("pointers")[low : high + 1])
        begin, end = int(pointers[0]), int(pointers[-1])
        pointers -= pointers[0]
        if values is not None:
            part = np.array(run.load("values")[begin:end]) if run.has("values") else np.ones(end - begin, np.uint8)
            append_values(features, pointers, part.astype(values.dtype, copy=False), start, cursors, values)
        samples = np.array(run.load("samples")[begin:end])
        append_run(features, pointers, samples, start, np.uint32(first_sample), cursors, indices)
    if not rows_increase(indptr, indices):  # loose entries come in any order
        _sort_block(indptr, indices, values, start)
    means, norms = sparse_moments(indptr, values, n_samples)
    return Block(start, stop, n_samples, values, means, norms, indptr, indices)


def _sort_block(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray | None, start: int) -> None:
    twice = sort_rows(indptr, indices, np.empty(len(indices), np.uint8) if values is None else values)
    if twice >= 0:
        raise BadInput(f"feature {start + twice} has two values for one sample: sum or remove duplicate entries first")


def merge_dense(runs: list[Run], n_samples: int, start: int, stop: int, value_type: str) -> Block:
    """Features `start` to `stop` of dense runs as a dense block."""
    values = np.empty((stop - start, n_samples), dtype_of(value_type))
    position = 0
    for run in runs:
        values[:, position : position + run.n_samples] = run.load("values")[start:stop]
        position += run.n_samples
    means, norms = dense_moments(values)
    return Block(start, stop, n_samples, values, means, norms)
