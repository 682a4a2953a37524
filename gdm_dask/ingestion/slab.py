"""A slab: some samples of the source in memory, sample-major, before they are written as a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gdm_dask.errors import BadInput, BadValue
from gdm_dask.features.values import as_floats


@dataclass(frozen=True)
class Slab:
    """Consecutive samples with all of their features, or loose nonzeros of any samples."""

    n_samples: int  # 0 if `samples` are numbers within the whole set
    labels: np.ndarray | None = None  # if the source carries them
    features: np.ndarray | None = None  # of the nonzeros, uint32
    samples: np.ndarray | None = None  # of the nonzeros, uint32; within the slab, or within the whole set
    values: np.ndarray | None = None
    dense: np.ndarray | None = None  # all values, (n_samples, n_features), instead of the nonzeros
    skipped: int = 0  # malformed lines
    unseen: int = 0  # nonzeros that were dropped because their feature is beyond the known ones
    entries: int = 0  # read from the source, zeros included, if it declares their number
    first_sample: int | None = None  # number of the first one within the whole set, if the source knows it

    def within(self, n_features: int) -> Slab:
        """Return the slab in a space of `n_features`: later features are dropped and counted, missing ones are zero.

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
        """Return the slab with only some of its nonzeros; the others can be counted as unseen."""
        if kept.all():
            return self
        parts = {name: getattr(self, name)[kept] for name in ("features", "samples", "values")}
        dropped = len(kept) - int(np.count_nonzero(kept))
        return replace(self, unseen=self.unseen + (dropped if unseen else 0), **parts)

    def some(self, kept: np.ndarray) -> Slab:
        """Return the slab with only some samples; `kept` is a mask of its own, or of all, samples.

        >>> slab = sparse_slab(np.array([7, 2, 7]), np.array([0, 1, 2]), np.array([1.0, 2.0, 3.0]), n_samples=3)
        >>> some = slab.some(np.array([True, False, True]))
        >>> some.n_samples, some.features.tolist(), some.samples.tolist()
        (2, [7, 7], [0, 1])
        """
        n_samples = int(kept.sum()) if self.n_samples else 0
        labels = None if self.labels is None else self.labels[kept]
        if self.dense is not None:
            return replace(self, n_samples=n_samples, labels=labels, dense=self.dense[kept])
        assert self.samples is not None
        numbers = (np.cumsum(kept) - 1).astype(np.uint32)
        only = self.only(kept[self.samples])
        assert only.samples is not None
        return replace(only, n_samples=n_samples, labels=labels, samples=numbers[only.samples])

    def of_samples(self, values: np.ndarray) -> np.ndarray:
        """Return the entries of the slab's samples, of an array with an entry for each sample of the whole set."""
        if self.n_samples == 0 and self.dense is None:
            return values
        if self.first_sample is None:
            raise BadInput("samples of this source cannot be dropped or given covariates: their numbers are not known")
        return values[self.first_sample : self.first_sample + self.n_samples]


def dense_slab(rows: np.ndarray, first_sample: int) -> Slab:
    """Make a slab of dense rows of samples."""
    check_finite(rows, first_sample)
    return Slab(rows.shape[0], dense=rows, first_sample=first_sample)


def sparse_slab(
    features: np.ndarray, samples: np.ndarray, values: np.ndarray, n_samples: int = 0, first_sample: int = 0,
    entries: int = 0,
) -> Slab:  # fmt: skip
    """Make a slab of nonzeros of `n_samples` samples, numbered from `first_sample`, or of any samples."""
    check_finite(values, first_sample, samples, features)
    values = as_floats(values)
    features, samples = features.astype(np.uint32, copy=False), samples.astype(np.uint32, copy=False)
    slab = Slab(n_samples, None, features, samples, values, entries=entries, first_sample=first_sample)
    return slab.only(values != 0)


def check_finite(
    values: np.ndarray, first_sample: int, samples: np.ndarray | None = None, features: np.ndarray | None = None
) -> None:
    """Raise `BadValue` with the sample and the feature of the first NaN or infinity."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    place = np.argwhere(~np.isfinite(values))[0]
    if samples is None or features is None:
        sample, feature = place
    else:
        sample, feature = samples[place[0]], features[place[0]]
    raise BadValue(
        f"sample {first_sample + int(sample)}, feature {int(feature)} (counted from 0) is NaN or infinity: "
        "replace or remove such values first",
        int(feature),
    )
