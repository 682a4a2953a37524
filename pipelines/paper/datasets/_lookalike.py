"""Generated lookalikes, for sets whose files are too large to ship."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gdm_dask.ingestion.sources.lookalikes import Lookalike, generate, plant, scaled_lookalike

from ..problem import Problem
from ._cache import kept


def load_lookalike(name: str, n_train: int, n_test: int, n_features: int, seed: int) -> Problem:
    """Generate a lookalike (see `gdm synth`) of this size; its planted groups are the truth."""
    lookalike = scaled_lookalike(name, n_samples=n_train, n_features=n_features)

    def make() -> Problem:
        parts = (*_rows(lookalike, seed, 0, n_train), *_rows(lookalike, seed, n_train, n_train + n_test))
        return Problem(*parts, groups=[group.astype(np.int64) for group in plant(lookalike, seed).groups])

    return kept(f"{name}-lookalike-{n_train}+{n_test}x{n_features}-s{seed}", make)


def _rows(lookalike: Lookalike, seed: int, start: int, stop: int) -> tuple[sp.csr_array, np.ndarray]:
    slab = generate(lookalike, seed, start, stop)
    assert slab.labels is not None
    indptr = np.concatenate([[0], np.cumsum(np.bincount(slab.samples, minlength=slab.n_samples))])  # type: ignore[arg-type]
    index = np.int32 if indptr[-1] < 2**31 else np.int64
    parts = (slab.values.astype(np.float32), slab.features.astype(index), indptr.astype(index))  # type: ignore[union-attr]
    return sp.csr_array(parts, shape=(slab.n_samples, lookalike.n_features)), slab.labels.astype(np.int64)
