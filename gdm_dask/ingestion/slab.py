"""A slab: some samples of the source in memory, sample-major, on their way into a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Slab:
    """Consecutive samples with all of their features, or loose nonzeros of any samples.

    Attributes
    ----------
    n_samples : int
        Samples of the slab; 0 where `samples` are numbers in the whole set.
    labels : ndarray or None
        Their labels, where the source carries them.
    features, samples, values : ndarray
        The nonzeros: feature (uint32), sample (uint32; within the slab, or in the whole set), value.
    dense : ndarray of shape (n_samples, n_features), or None
        All values, in place of the nonzeros.
    skipped, unseen : int
        Malformed lines left out, and nonzeros of features beyond the known ones left out.
    """

    n_samples: int
    labels: np.ndarray | None = None
    features: np.ndarray | None = None
    samples: np.ndarray | None = None
    values: np.ndarray | None = None
    dense: np.ndarray | None = None
    skipped: int = 0
    unseen: int = 0
