"""Sets that are too large to ship: their files where they are there, else generated twins of them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gdm_dask.ingestion.sources.lookalikes import Lookalike, generate, plant, scaled_lookalike

from ..problem import Problem
from ._cache import kept


def load_twin(name: str, n_train: int, n_test: int, n_features: int, seed: int) -> Problem:
    """A twin (see `gdm synth`) of so many samples and features; its planted groups are the truth."""
    twin = scaled_lookalike(name, n_samples=n_train, n_features=n_features)

    def make() -> Problem:
        parts = (*_rows(twin, seed, 0, n_train), *_rows(twin, seed, n_train, n_train + n_test))
        return Problem(*parts, groups=[group.astype(np.int64) for group in plant(twin, seed).groups])

    return kept(f"{name}-twin-{n_train}+{n_test}x{n_features}-s{seed}", make)


def _rows(twin: Lookalike, seed: int, start: int, stop: int) -> tuple[sp.csr_array, np.ndarray]:
    slab = generate(twin, seed, start, stop)
    assert slab.labels is not None
    indptr = np.concatenate([[0], np.cumsum(np.bincount(slab.samples, minlength=slab.n_samples))])  # type: ignore[arg-type]
    index = np.int32 if indptr[-1] < 2**31 else np.int64
    parts = (slab.values.astype(np.float32), slab.features.astype(index), indptr.astype(index))  # type: ignore[union-attr]
    return sp.csr_array(parts, shape=(slab.n_samples, twin.n_features)), slab.labels.astype(np.int64)
