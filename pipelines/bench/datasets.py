"""Data sets of the speed benchmarks, each built once as a training and a test store."""

from __future__ import annotations

import itertools
import lzma
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gdm_dask.ingestion import run_ingest
from gdm_dask.ingestion.sources.documents.ngrams import byte_ngrams
from gdm_dask.ingestion.sources.lookalikes import lookalike_source, scaled_lookalike
from gdm_dask.store import FeatureStore, open_store

#: Lookalikes of the size of the paper's experiments: like, samples, features. Test sets are a quarter as large.
LOOKALIKES = {"webspam": ("webspam", 80_000, 8_400_000), "kdd2010": ("kdd2010", 100_000, 3_000_000)}
#: Number of training mails.
ENRON_TRAIN = 25_000
MEMORY_LIMIT = "6GB"


@dataclass(frozen=True)
class Dataset:
    """A data set in a folder."""

    name: str
    folder: Path

    @property
    def train(self) -> FeatureStore:
        """The training set."""
        return open_store(self.folder / f"{self.name}-train.zarr")

    @property
    def test(self) -> FeatureStore:
        """The test set, with the same features."""
        return open_store(self.folder / f"{self.name}-test.zarr")

    def matrix(self) -> tuple[sp.csr_array, np.ndarray]:
        """Load the training set in the form that scikit-learn's linear models use without a copy, and its labels."""
        train = self.train
        matrix = train.to_scipy(memory_limit=1 << 62).T.tocsr()
        return matrix.astype(np.float64, copy=False), train.outputs()[0]

    @property
    def is_available(self) -> bool:
        """Whether the stores exist or can be built."""
        return self.is_ready or self.name in LOOKALIKES or _enron_folder().is_dir()

    @property
    def is_ready(self) -> bool:
        """Whether the stores exist; the test store is built last."""
        return (self.folder / f"{self.name}-test.zarr").exists()

    def prepare(self) -> None:
        """Build both stores."""
        shutil.rmtree(self.folder / f"{self.name}-train.zarr", ignore_errors=True)
        parts = _lookalike(self.name) if self.name in LOOKALIKES else _enron()
        train = None
        for part, source, labels in zip(("train", "test"), *parts, strict=True):
            path = self.folder / f"{self.name}-{part}.zarr"
            train = run_ingest(source, path, labels, like=train, memory_limit=MEMORY_LIMIT).store


def _lookalike(name: str) -> tuple:
    like, n_samples, n_features = LOOKALIKES[name]
    lookalike = scaled_lookalike(like, n_samples=n_samples, n_features=n_features)
    bounds = ((0, n_samples), (n_samples, n_samples + n_samples // 4))
    return [lookalike_source(like, lookalike, 0, *bound) for bound in bounds], [None, None]


def _enron_folder() -> Path:
    return Path(os.environ.get("GDM_DATA", "")) / "enron_spam"


def _enron() -> tuple:
    """Read the Enron mails below GDM_DATA, spam or not, as byte 5-grams with rows of unit length."""
    folder = _enron_folder()
    index = np.load(folder / "index.npz")
    with lzma.open(folder / "text.bin.xz") as file:
        text = file.read()
    X, _ = byte_ngrams([text[a:b] for a, b in itertools.pairwise(index["offset"].tolist())], 5)
    order = np.random.default_rng(0).permutation(X.shape[0])
    parts = order[:ENRON_TRAIN], order[ENRON_TRAIN:]
    return [X[part] for part in parts], [index["label"][part] for part in parts]
