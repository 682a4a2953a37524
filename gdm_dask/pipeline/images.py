"""Images as a source: each in a larger frame, at every place in it, as the paper's extended USPS has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.ingestion.object_sources import from_object
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.slabs import row_slab
from gdm_dask.ingestion.source import Source


def shifted_source(images: np.ndarray, labels: np.ndarray, shift: int) -> Source:
    """Images of shape (n, rows, columns), each (2 * shift + 1)^2 times; the background is 0."""
    n, rows, columns = images.shape
    shifts = list(itertools.product(range(2 * shift + 1), repeat=2))
    flat = from_object(images.reshape(n, -1), labels)  # checks, and the checksum
    n_features = (rows + 2 * shift) * (columns + 2 * shift)

    def jobs(run_bytes: int) -> list[Any]:
        del run_bytes
        return [ShiftedImages(images, shift, down, right, k * n) for k, (down, right) in enumerate(shifts)]

    return Source(
        "sparse", jobs, images.nbytes * len(shifts), {"format": "shifted images", "shift": shift}, flat.identity,
        in_memory=True, n_samples=n * len(shifts), n_features=n_features, labels=np.tile(labels, len(shifts)),
    )  # fmt: skip


@dataclass(frozen=True)
class ShiftedImages:
    """All images, moved by so many pixels within their frame."""

    images: np.ndarray
    shift: int
    down: int
    right: int
    first_sample: int

    @property
    def nbytes(self) -> int:
        """Bytes of the images."""
        return self.images.nbytes

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""
        yield self._load

    def _load(self) -> Slab:
        samples, rows, columns = np.nonzero(self.images)
        width = self.images.shape[2] + 2 * self.shift
        features = (rows + self.down) * width + columns + self.right
        values = self.images[samples, rows, columns]
        return row_slab(len(self.images), features, samples, values, self.first_sample)
