"""Dask collections passed by users: recognise them, and convert them to arrays of known shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from gdm_dask.errors import BadInput


def is_dask(X: Any) -> bool:
    """Return whether `X` is a Dask collection."""
    return hasattr(X, "dask") and hasattr(X, "compute")


def as_dask_array(X: Any) -> Any:
    """Return a Dask array or DataFrame as an array of known shape."""
    array = X.to_dask_array(lengths=True) if hasattr(X, "to_dask_array") else X
    return array.copy().compute_chunk_sizes() if any(np.isnan(size) for size in array.shape) else array


def as_dask_matrix(X: Any) -> Any:
    """Return a samples x features collection as an array of known shape."""
    X = as_dask_array(X)
    if X.ndim != 2:
        raise BadInput(f"expected a matrix of samples x features, got a Dask array of shape {X.shape}")
    return X
