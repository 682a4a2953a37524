"""A store seen through some of its samples: for fits on subsamples, without a copy of the data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.block import Block
from gdm_dask.features.moments import with_samples
from gdm_dask.store.feature_store import FeatureStore
from gdm_dask.store.folder import Folder
from gdm_dask.system.scratch import Buffers


def draw_samples(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Numbers of a part of the samples of each class, drawn without replacement, increasing.

    Examples
    --------
    >>> labels = np.array([-1, -1, -1, -1, 1, 1])
    >>> labels[draw_samples(labels, 0.5, seed=0)].tolist()
    [-1, -1, 1]
    """
    if not 0 < fraction < 1:
        raise BadInput(f"fraction lies between 0 and 1, not {fraction!r}")
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen.append(rng.choice(members, max(1, round(fraction * len(members))), replace=False))
    return np.sort(np.concatenate(chosen))


class SampledStore(FeatureStore):
    """A store with a part of its samples; blocks are cut as they are read, with moments of their own.

    Workers draw the same samples from the same seed, so nothing but three numbers travels.

    Parameters
    ----------
    folder : Folder
        Of the whole store.
    fraction : float
        Part of the samples of each class.
    seed : int
    """

    def __init__(self, folder: Folder, fraction: float, seed: int) -> None:
        super().__init__(folder)
        self._whole = FeatureStore(folder)
        self.fraction, self.seed = fraction, seed
        strata = self._whole.codes if self._whole.classes else np.zeros(self.shape[1], np.uint8)
        self.samples = draw_samples(strata, fraction, seed)
        self.shape = (self.shape[0], len(self.samples))

    def __reduce__(self) -> tuple[Any, ...]:
        return sampled_store, (self.url, self.fraction, self.seed, self._folder.storage_options)

    @cached_property
    def packed_targets(self) -> np.ndarray:
        """Targets of the chosen samples."""
        chosen: np.ndarray = self._whole.packed_targets[self.samples]
        return chosen

    @property
    def fingerprint(self) -> str:
        """Of the store and the choice."""
        text = f"{self._whole.fingerprint} {self.fraction!r} {self.seed!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    def load_block(self, number: int, buffers: Buffers | None = None) -> Block:
        """Block `number`, chosen samples only."""
        return with_samples(self._whole.load_block(number, buffers), self.samples)

    def load_rows(self, features: np.ndarray, held: Callable[[int], Block | None] = lambda number: None) -> Block:
        """Some features, chosen samples only."""
        blocks = {number: held(number) for number in self._blocks_of(features)}
        if blocks and all(block is not None for block in blocks.values()):
            return super().load_rows(features, held)
        return with_samples(self._whole.load_rows(features), self.samples)

    def _blocks_of(self, features: np.ndarray) -> list[int]:
        return [number for number, _ in self._by_block(np.asarray(features, np.int64))]


def sampled_store(url: str, fraction: float, seed: int, storage_options: dict[str, Any] | None = None) -> SampledStore:
    """A part of the samples of a store, as a store.

    Parameters
    ----------
    url : str
    fraction : float
        Part of the samples of each class, between 0 and 1.
    seed : int
    storage_options : dict, optional
        Passed to fsspec.
    """
    return SampledStore(Folder(url, storage_options), fraction, seed)


class TakenStore(SampledStore):
    """A store with the samples of given numbers (increasing)."""

    def __init__(self, folder: Folder, samples: np.ndarray) -> None:
        FeatureStore.__init__(self, folder)
        self._whole = FeatureStore(folder)
        self.samples = samples
        self.shape = (self.shape[0], len(samples))

    def __reduce__(self) -> tuple[Any, ...]:
        return taken_store, (self.url, self.samples, self._folder.storage_options)

    @cached_property
    def _identity(self) -> str:
        digest = hashlib.sha256(self._whole.fingerprint.encode())
        digest.update(np.ascontiguousarray(self.samples, np.int64).tobytes())
        return digest.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Of the store and the samples."""
        return self._identity


def taken_store(url: str, samples: np.ndarray, storage_options: dict[str, Any] | None = None) -> TakenStore:
    """Some samples of a store, as a store."""
    return TakenStore(Folder(url, storage_options), samples)
