"""Read some samples of a large svmlight text, compressed or not."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gdm_dask.ingestion.sources.svmlight_parser import parse

_OPEN: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}


def read_every(path: Path, step: int, n_features: int, first: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Read every `step`-th sample from number `first` on; features beyond `n_features` are ignored.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), float32
    y : ndarray of shape (n_samples,)
        -1 for the smaller label, +1 for the larger one.
    """
    with _OPEN.get(path.suffix, open)(path, "rb") as file:
        lines = parse(b"".join(islice(file, first, None, step)), n_features=n_features)
    index = np.int32 if lines.indptr[-1] < 2**31 else np.int64
    parts = (lines.values.astype(np.float32), lines.features.astype(index), lines.indptr.astype(index))
    X = sp.csr_array(parts, shape=(len(lines.labels), n_features))
    return X, np.where(lines.labels == lines.labels.max(), 1, -1)
