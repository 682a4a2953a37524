"""Enron mails, spam or not: byte 5-grams, 25,000 + 8,715 mails, 1,080,222 features. An addition to the paper's data."""

from __future__ import annotations

import numpy as np

from gdm_dask.ingestion.sources.documents.corpus import open_corpus
from gdm_dask.ingestion.sources.documents.ngrams import byte_ngrams

from ..problem import Problem, data_file
from ._cache import kept

NAME = "Enron mails"
RANDOM = False
FILES = ("enron_spam/index.npz", "enron_spam/text.bin.xz")
PAGE = "https://www2.aueb.gr/users/ion/data/enron-spam (packed: one file of text, and where each mail begins)"
N_TRAIN = 25_000


def load(seed: int) -> Problem:
    """Read enron_spam/text.bin.xz and index.npz: offset, label."""
    del seed
    folder = data_file(FILES[0], PAGE).parent

    def make() -> Problem:
        corpus = open_corpus(folder)
        X, _ = byte_ngrams(corpus.read(np.arange(len(corpus))), 5)
        y = np.where(corpus.labels == "1", 1, -1)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[:N_TRAIN], order[N_TRAIN:]
        return Problem(X[train], y[train], X[test], y[test])

    return kept("enron-5-grams", make)
