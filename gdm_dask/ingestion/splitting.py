"""Split a source into a training and a test part, sample by sample, without knowing the number of samples."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.source import ChangedPart, Source
from gdm_dask.ingestion.sources.lookalikes.rows import mix
from gdm_dask.system.jit import allocating


def split_source(source: Source, test_fraction: float, seed: int, part: str) -> Source:
    """Return the training or test part of a source whose slabs carry labels (svmlight text, lookalikes).

    The side of a sample depends on its content and the seed, not on its place in the source or how the source is cut.
    Copies of a sample are on the same side.
    """
    facts = source.facts
    if facts.labels is not None or facts.kind != "sparse":
        raise BadInput("only sparse sources with labels in the text can be split while they are read")

    side = partial(one_side, test_fraction=test_fraction, seed=seed, part=part)
    description = {**facts.description, "part": part, "test_fraction": test_fraction, "split_seed": seed}
    return Source(
        replace(facts, description=description, n_samples=None),
        lambda max_bytes: [ChangedPart(whole, side) for whole in source.parts(max_bytes)],
    )


def one_side(slab: Slab, test_fraction: float, seed: int, part: str) -> Slab:
    """Return the samples of a slab that belong to the training or test part."""
    is_test = chances(slab, seed) < test_fraction
    return slab.some(is_test if part == "test" else ~is_test)


def chances(slab: Slab, seed: int) -> np.ndarray:
    """Return a number in [0, 1) for each sample of a slab, computed from its label and its nonzeros."""
    assert slab.values is not None
    values = np.ascontiguousarray(slab.values, np.float64).view(np.uint64)
    labels = np.ascontiguousarray(slab.labels, np.float64).view(np.uint64)
    drawn: np.ndarray = _chances(labels, slab.features, slab.samples, values, np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
    return drawn


@allocating
def _chances(labels, features, samples, values, seed):  # type: ignore[no-untyped-def]
    totals = np.empty(len(labels), np.uint64)
    for i in range(len(labels)):
        totals[i] = mix(labels[i] + np.uint64(0x9E3779B97F4A7C15))
    for k in range(len(features)):
        totals[samples[k]] += mix(mix(np.uint64(features[k]) + np.uint64(1)) ^ values[k])
    out = np.empty(len(labels))
    for i in range(len(labels)):
        out[i] = np.float64(mix(totals[i] ^ mix(seed + np.uint64(1))) >> np.uint64(11)) / 9007199254740992.0
    return out
