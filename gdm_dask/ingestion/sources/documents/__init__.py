"""Raw documents as a source: batches of documents become rows of n-grams."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import matrix_slab
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.source import OneSlab, Source, SourceFacts
from gdm_dask.ingestion.sources.documents.corpus import Corpus
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, Vocabulary, count_vocabulary, hashed_names

#: Bytes of text vectorised at a time.
BATCH_BYTES = 2 << 20


def document_source(
    corpus: Corpus, settings: TextSettings, vocabulary: Vocabulary | None = None, named: bool = False
) -> Source:
    """Return documents as a source, counted with the vocabulary of a training set or, by default, their own.

    The vocabulary is kept in the store. Hashed features are `named` at the cost of one more pass over the documents.
    """
    texts = (corpus.read(batch) for batch in corpus.batches(BATCH_BYTES))
    if settings.hashed is not None:
        known, names = Vocabulary(settings, [], []), hashed_names(texts, settings) if named else None
    else:
        known = count_vocabulary(texts, settings) if vocabulary is None else vocabulary
        names = known.names
    if known.n_columns == 0:
        raise BadInput(f"no n-gram occurs in {settings.min_df} documents; lower `min_df`")

    def load(batch: np.ndarray) -> Slab:
        return matrix_slab(known.rows(corpus.read(batch)), int(batch[0]))

    def cut(max_bytes: int) -> list[OneSlab]:
        del max_bytes  # batches have a fixed size
        batches = corpus.batches(BATCH_BYTES)
        return [OneSlab(int(corpus.lengths[batch].sum()), partial(load, batch)) for batch in batches]

    facts = SourceFacts(
        "sparse", {"format": "documents", "files": sorted(set(corpus.paths))[:3], "text": asdict(settings)},
        {"documents": corpus.identity, "mail": corpus.mail}, int(corpus.lengths.sum()), in_memory=True,
        n_samples=len(corpus), n_features=known.n_columns, labels=corpus.labels, feature_names=names,
        vocabulary=known, scratch_factor=8,
    )  # fmt: skip
    return Source(facts, cut)


def further_documents(corpus: Corpus, train_store: str | os.PathLike[str]) -> Source:
    """Return other documents as a source with the columns of a training store."""
    vocabulary = Vocabulary.load(train_store)
    return document_source(corpus, vocabulary.settings, vocabulary)
