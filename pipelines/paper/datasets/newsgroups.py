"""20 Newsgroups, computers, science and sales against the rest: words and pairs of words, split by date.

11,314 + 7,532 articles without their headers. An addition to the paper's data.
"""

from __future__ import annotations

import numpy as np

from gdm_dask.ingestion.sources.documents.corpus import open_corpus
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, count_vocabulary

from ..problem import Problem, data_file
from ._cache import kept

NAME = "20 Newsgroups"
RANDOM = False
FILES = ("newsgroups20/index.npz", "newsgroups20/text.bin.xz")
PAGE = "http://qwone.com/~jason/20Newsgroups (packed: one file of text, and where each article begins)"
POSITIVE = ("comp.", "sci.", "misc.forsale")


def load(seed: int) -> Problem:
    """Read newsgroups20/text.bin.xz and index.npz: offset, group, split (train, test)."""
    del seed
    index = data_file(FILES[0], PAGE)

    def make() -> Problem:
        corpus = open_corpus(index.parent, label="group", mail=True)
        y = np.where([name.startswith(POSITIVE) for name in corpus.labels], 1, -1)
        with np.load(index) as arrays:
            train, test = (np.flatnonzero(arrays["split"] == part) for part in ("train", "test"))
        texts = corpus.read(train)
        vocabulary = count_vocabulary([texts], TextSettings("word", (1, 2), min_df=2))
        return Problem(vocabulary.rows(texts), y[train], vocabulary.rows(corpus.read(test)), y[test])

    return kept("newsgroups-words", make)
