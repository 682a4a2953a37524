"""Slabs from matrices: checks that every value is a finite number, and drops stored zeros."""

from __future__ import annotations

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.values import as_floats


def dense_slab(rows: np.ndarray, first_sample: int) -> Slab:
    """A slab of dense rows of samples."""
    check_finite(rows, first_sample)
    return Slab(rows.shape[0], dense=rows)


def row_slab(n_samples: int, features: np.ndarray, samples: np.ndarray, values: np.ndarray, first_sample: int) -> Slab:
    """A slab of nonzeros of consecutive samples, numbered within the slab."""
    return _nonzero_slab(n_samples, features, samples, values, first_sample, 0)


def loose_slab(features: np.ndarray, samples: np.ndarray, values: np.ndarray, entries: int = 0) -> Slab:
    """A slab of nonzeros of any samples, numbered in the whole set."""
    return _nonzero_slab(0, features, samples, values, 0, entries)


def _nonzero_slab(
    n_samples: int, features: np.ndarray, samples: np.ndarray, values: np.ndarray, first_sample: int, entries: int
) -> Slab:
    check_finite(values, first_sample, samples, features)
    values = as_floats(values)
    features, samples = features.astype(np.uint32, copy=False), samples.astype(np.uint32, copy=False)
    return Slab(n_samples, None, features, samples, values, entries=entries).only(values != 0)


def check_finite(
    values: np.ndarray, first_sample: int, samples: np.ndarray | None = None, features: np.ndarray | None = None
) -> None:
    """Raise `BadInput` that names the sample and the feature of the first NaN or infinity."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    place = np.argwhere(~np.isfinite(values))[0]
    if samples is None or features is None:
        sample, feature = place
    else:
        sample, feature = samples[place[0]], features[place[0]]
    raise BadInput(
        f"sample {first_sample + int(sample)}, feature {int(feature)} (counted from 0) is NaN or infinity: "
        "replace or remove such values first"
    )
