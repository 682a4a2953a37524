"""Blocks are the same however many runs are held at a time, and whatever their types."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from helpers.instances import many, seeds
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.features.values import widest
from gdm_dask.ingestion.merge import assemble_sparse, feature_counts, find_slices, groups
from gdm_dask.ingestion.partition import Partition
from gdm_dask.ingestion.runs import Run, write_run
from gdm_dask.ingestion.slab import Slab

#: Values of a run, which decide its types.
VALUES = {
    "ones": lambda rng, n: np.ones(n),
    "counts": lambda rng, n: rng.integers(1, 200, n).astype(np.float64),
    "float32": lambda rng, n: rng.random(n, np.float32).astype(np.float64) + 1,
    "decimals": lambda rng, n: rng.integers(1, 10**6, n) / 10**6,
    "negative": lambda rng, n: rng.integers(-(10**6), 0, n) / 100,
    "float64": lambda rng, n: rng.normal(size=n),
}
kinds = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6)
sizes = st.sampled_from([1, 20, 2**16 + 1])


def make_run(
    path: Path, kind: str, n_samples: int, n_features: int, rng: np.random.Generator
) -> tuple[Run, sp.coo_array]:
    nonzeros = np.sort(rng.choice(n_samples * n_features, min(2000, n_samples * n_features) // 2 + 1, replace=False))
    samples, features = (part.astype(np.uint32) for part in np.divmod(nonzeros, n_features))
    values = VALUES[kind](rng, len(nonzeros))
    run = write_run(path, Slab(n_samples, None, features, samples, values), None)
    return run, sp.coo_array((values, (samples, features)), (n_samples, n_features))


@many(60)
@given(kinds, sizes, st.sampled_from([1, 7, 1000]), st.sampled_from([0, 50_000, 1 << 30]), seeds)
def test_blocks_are_those_of_the_whole_matrix(
    kinds: list[str], n_samples: int, n_features: int, most_bytes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        made = [make_run(Path(folder) / str(k), kind, n_samples, n_features, rng) for k, kind in enumerate(kinds)]
        runs = [run for run, _ in made]
        expected = sp.vstack([matrix for _, matrix in made]).T.tocsr()
        counts = feature_counts(runs, n_features)
        np.testing.assert_array_equal(counts, np.diff(expected.indptr))
        bounds = [0, *sorted(rng.integers(0, n_features, 2).tolist()), n_features]
        first_samples = [k * n_samples for k in range(len(runs))]
        value_type = widest([run.value_type for run in runs])
        parts = Partition(
            "sparse", runs, first_samples, len(runs) * n_samples, n_features, value_type, None, None, n_features,
            value_type,
        )  # fmt: skip
        for slices, (start, stop) in zip(find_slices(runs, bounds), itertools.pairwise(bounds), strict=True):
            block = assemble_sparse(parts, slices, start, counts[start:stop], most_bytes).as_numbers()
            assert block.indptr is not None
            part = expected[start:stop]
            np.testing.assert_array_equal(block.indptr, part.indptr)
            np.testing.assert_array_equal(block.indices, part.indices)
            if block.values is not None:
                np.testing.assert_array_equal(block.values, part.data)


def test_alike_runs_are_held_together_as_far_as_they_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = ["decimals", "decimals", "decimals", "ones", "decimals"]
    runs = [make_run(tmp_path / str(k), kind, 50, 20, rng)[0] for k, kind in enumerate(kinds)]
    (slices,) = find_slices(runs, [0, 20])
    assert list(groups(runs, slices, 1 << 20)) == [[0, 1, 2], [3], [4]]
    assert list(groups(runs, slices, 80_000)) == [[0, 1], [2], [3], [4]]
    assert list(groups(runs, slices, 0)) == [[0], [1], [2], [3], [4]]
    (nothing,) = find_slices(runs, [20, 20])
    assert list(groups(runs, nothing, 1 << 20)) == []
