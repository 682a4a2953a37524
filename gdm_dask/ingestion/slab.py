"""A slab: some samples of the source in memory, sample-major, on their way into a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    entries : int
        Entries of the source that were read, zeros too, where the source says how many there should be.
    """

    n_samples: int
    labels: np.ndarray | None = None
    features: np.ndarray | None = None
    samples: np.ndarray | None = None
    values: np.ndarray | None = None
    dense: np.ndarray | None = None
    skipped: int = 0
    unseen: int = 0
    entries: int = 0

    def within(self, n_features: int) -> Slab:
        """The slab in a space of `n_features`: what lies beyond is left out and counted, what is missing is zero.

        Examples
        --------
        >>> slab = Slab(1, dense=np.array([[1.0, 0.0, 3.0]]))
        >>> slab.within(2).dense, slab.within(2).unseen, slab.within(4).dense
        (array([[1., 0.]]), 1, array([[1., 0., 3., 0.]]))
        """
        if self.dense is not None:
            missing = n_features - self.dense.shape[1]
            if missing >= 0:
                return replace(self, dense=np.pad(self.dense, ((0, 0), (0, missing)))) if missing else self
            unseen = int(np.count_nonzero(self.dense[:, n_features:]))
            return replace(self, dense=self.dense[:, :n_features], unseen=self.unseen + unseen)
        assert self.features is not None
        return self.only(self.features < n_features, unseen=True)

    def only(self, kept: np.ndarray, unseen: bool = False) -> Slab:
        """The slab with only some of its nonzeros; the others can be counted as unseen."""
        if kept.all():
            return self
        parts = {name: getattr(self, name)[kept] for name in ("features", "samples", "values")}
        dropped = len(kept) - int(np.count_nonzero(kept))
        return replace(self, unseen=self.unseen + (dropped if unseen else 0), **parts)
