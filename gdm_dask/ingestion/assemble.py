"""Blocks from the slices that all runs hold of them: the second half of the out-of-core transposition."""

from __future__ import annotations

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.run_rows import append_runs
from gdm_dask.ingestion.runs import Run
from gdm_dask.ingestion.slices import Slices, groups, read_pieces
from gdm_dask.ingestion.sorting import rows_increase, sort_rows
from gdm_dask.moments import dense_moments, sparse_moments
from gdm_dask.store.block import Block
from gdm_dask.values import dtype_of
from gdm_dask.work_space import work_space


def assemble_sparse(
    runs: list[Run], slices: Slices, first_samples: list[int], n_samples: int, start: int, counts: np.ndarray,
    value_type: str, most_bytes: int, places: int | None = None,
) -> Block:  # fmt: skip
    """Features `start` to ``start + len(counts)`` of all runs as a block.

    Parameters
    ----------
    runs : list of Run
        In the order of their samples.
    slices : Slices
        Where the block lies in them.
    first_samples : list of int
        Number of each run's first sample.
    n_samples : int
        Samples in all.
    start : int
        First feature of the block.
    counts : ndarray of uint32
        Nonzeros of each feature of the block.
    value_type : str
        Of the store.
    most_bytes : int
        What the pieces of runs that are held at a time may take, unless a single one takes more.
    places : int or None
        Decimal places of the values of all runs, where these are as many.

    Returns
    -------
    Block
        Its indices and values are work space of this thread, good until its next call.
    """
    indptr = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, dtype=np.uint32, out=indptr[1:])
    # Of the work space that the making of runs has left, what the pieces of runs are not read into.
    indices = work_space("keys 0", indptr[-1], np.uint32)
    dtype = dtype_of(value_type) if places is None else np.dtype(np.int32)
    values = work_space("parsed values", 0 if value_type == "one" else indptr[-1], dtype)
    cursors = indptr[:-1].copy()
    firsts = np.array(first_samples, np.uint32)
    for group in groups(runs, slices, most_bytes):
        part = read_pieces(runs, slices, group, value_type != "one", places is not None)
        part_values = values[:0] if part.values is None else part.values
        append_runs(
            part.rows, part.samples, part_values, part.places, part.power, np.uint32(start), firsts[group], cursors,
            indices, values,
        )  # fmt: skip
    if any(run.n_samples == 0 for run in runs) and not rows_increase(indptr, indices):  # loose entries, in any order
        twice = sort_rows(indptr, indices, values)
        if twice >= 0:
            raise BadInput(
                f"feature {start + twice} has two values for one sample: sum or remove duplicate entries first"
            )
    stored = None if value_type == "one" else values
    means, norms = sparse_moments(indptr, stored, n_samples, None if places is None else 10.0**places)
    check_moments(means, norms, start)
    return Block(start, start + len(counts), n_samples, stored, means, norms, indptr, indices, places=places)


def assemble_dense(runs: list[Run], n_samples: int, start: int, stop: int, value_type: str) -> Block:
    """Features `start` to `stop` of dense runs as a dense block."""
    values = np.empty((stop - start, n_samples), dtype_of(value_type))
    position = 0
    for run in runs:
        values[:, position : position + run.n_samples] = run.read("values", start, stop)
        position += run.n_samples
    means, norms = dense_moments(values)
    check_moments(means, norms, start)
    nonzeros = np.array([np.count_nonzero(row) for row in values], np.uint32)
    return Block(start, stop, n_samples, values, means, norms, nonzeros=nonzeros)


def check_moments(means: np.ndarray, norms: np.ndarray, start: int) -> None:
    """Refuse a feature whose values are so large that its mean or norm is beyond float64."""
    wrong = np.flatnonzero(~(np.isfinite(means) & np.isfinite(norms)))
    if len(wrong):
        raise BadInput(f"feature {start + wrong[0]} has values so large that its norm is infinite: scale them first")
