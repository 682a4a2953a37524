"""The data sets of the speed benchmarks: made once, as a training and a test store, and read from there."""

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

#: Twins in the sizes of the paper's experiments: like, samples, features. The test part has a quarter of the samples.
LOOKALIKES = {"webspam": ("webspam", 80_000, 8_400_000), "kdd2010": ("kdd2010", 100_000, 3_000_000)}
#: Mails to train on.
ENRON_TRAIN = 25_000
MEMORY_LIMIT = "6GB"


@dataclass(frozen=True)
class Dataset:
    """A data set in a folder."""

    name: str
    folder: Path

    @property
    def train(self) -> FeatureStore:
        """The training part."""
        return open_store(self.folder / f"{self.name}-train.zarr")

    @property
    def test(self) -> FeatureStore:
        """The test part, with the same features."""
        return open_store(self.folder / f"{self.name}-test.zarr")

    def matrix(self) -> tuple[sp.csr_array, np.ndarray]:
        """The training part in memory as scikit-learn's linear machines take it without a copy, and its labels."""
        train = self.train
        matrix = train.to_scipy(memory_limit=1 << 62).T.tocsr()
        return matrix.astype(np.float64, copy=False), train.outputs()[0]

    @property
    def is_available(self) -> bool:
        """Whether the stores are there or can be made."""
        return self.is_ready or self.name in LOOKALIKES or _enron_folder().is_dir()

    @property
    def is_ready(self) -> bool:
        """Whether the stores are there; the test part is made last."""
        return (self.folder / f"{self.name}-test.zarr").exists()

    def prepare(self) -> None:
        """Make both stores."""
        shutil.rmtree(self.folder / f"{self.name}-train.zarr", ignore_errors=True)
        parts = _twin(self.name) if self.name in LOOKALIKES else _enron()
        train = None
        for part, source, labels in zip(("train", "test"), *parts, strict=True):
            path = self.folder / f"{self.name}-{part}.zarr"
            train = run_ingest(source, path, labels, like=train, memory_limit=MEMORY_LIMIT).store


def _twin(name: str) -> tuple:
    like, n_samples, n_features = LOOKALIKES[name]
    twin = scaled_lookalike(like, n_samples=n_samples, n_features=n_features)
    bounds = ((0, n_samples), (n_samples, n_samples + n_samples // 4))
    return [lookalike_source(like, twin, 0, *bound) for bound in bounds], [None, None]


def _enron_folder() -> Path:
    return Path(os.environ.get("GDM_DATA", "")) / "enron_spam"


def _enron() -> tuple:
    """The Enron mails below GDM_DATA, spam or not: byte 5-grams, rows of unit length."""
    folder = _enron_folder()
    index = np.load(folder / "index.npz")
    with lzma.open(folder / "text.bin.xz") as file:
        text = file.read()
    X, _ = byte_ngrams([text[a:b] for a, b in itertools.pairwise(index["offset"].tolist())], 5)
    order = np.random.default_rng(0).permutation(X.shape[0])
    parts = order[:ENRON_TRAIN], order[ENRON_TRAIN:]
    return [X[part] for part in parts], [index["label"][part] for part in parts]
