"""Raw documents as a source: batches of documents become rows of n-grams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import from_object, matrix_slab
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.source import OneSlab, Source, SourceFacts
from gdm_dask.ingestion.sources.documents.corpus import Corpus
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, Vocabulary, count_vocabulary, hashed_names

#: Bytes of text vectorised at a time.
BATCH_BYTES = 2 << 20


def document_source(corpus: Corpus, settings: TextSettings, vocabulary: Vocabulary | None = None) -> Source:
    """Return documents as a source.

    Parameters
    ----------
    corpus : Corpus
    settings : TextSettings
        With `hashed`, dask-ml's HashingVectorizer makes the rows.
    vocabulary : Vocabulary, optional
        Vocabulary of the training set; by default that of the documents. It is kept in the store.
    """
    if len(corpus) == 0:
        raise BadInput("there are no documents")
    description = {"format": "documents", "files": sorted(set(corpus.paths))[:3], "text": asdict(settings)}
    identity = {"documents": corpus.identity, "mail": corpus.mail}
    if settings.hashed is not None:
        source = _hashed_source(corpus, settings)
        empty = Vocabulary(settings, [], [])
        source.facts = replace(source.facts, description=description, identity=identity, vocabulary=empty)
        return source
    known = count_vocabulary(read_batches(corpus), settings) if vocabulary is None else vocabulary
    if len(known) == 0:
        raise BadInput(f"no n-gram occurs in {settings.min_df} documents; lower `min_df`")

    def load(batch: np.ndarray) -> Slab:
        return matrix_slab(known.rows(corpus.read(batch)), int(batch[0]))

    def cut(max_bytes: int) -> list[OneSlab]:
        del max_bytes  # batches have a fixed size
        batches = corpus.batches(BATCH_BYTES)
        return [OneSlab(int(corpus.lengths[batch].sum()), partial(load, batch)) for batch in batches]

    facts = SourceFacts(
        "sparse", description, identity, int(corpus.lengths.sum()), in_memory=True, n_samples=len(corpus),
        n_features=len(known), labels=corpus.labels, feature_names=known.names, vocabulary=known, scratch_factor=8,
    )  # fmt: skip
    return Source(facts, cut)


def training_documents(corpus: Corpus, settings: TextSettings, named: bool = False) -> tuple[Source, dict[str, Any]]:
    """Return a training set as a source, with options of `run_ingest`.

    Parameters
    ----------
    corpus : Corpus
    settings : TextSettings
    named : bool
        Name hashed features, at the cost of one more pass over the documents.
    """
    source = document_source(corpus, settings)
    named = named and settings.hashed is not None
    return source, {"feature_names": name_hashed(corpus, settings)} if named else {}


def further_documents(corpus: Corpus, train_store: str | os.PathLike[str]) -> Source:
    """Return other documents as a source with the columns of a training store."""
    vocabulary = Vocabulary.load(train_store)
    return document_source(corpus, vocabulary.settings, vocabulary)


def read_batches(corpus: Corpus) -> Iterator[list[bytes]]:
    """Yield the texts, batch by batch."""
    for batch in corpus.batches(BATCH_BYTES):
        yield corpus.read(batch)


def name_hashed(corpus: Corpus, settings: TextSettings) -> list[str]:
    """Name hashed features, in one more pass over the documents."""
    return hashed_names(read_batches(corpus), settings)


def _hashed_source(corpus: Corpus, settings: TextSettings) -> Source:
    import dask
    import dask.array as da
    from dask_ml.feature_extraction.text import HashingVectorizer

    def texts(numbers: np.ndarray) -> np.ndarray:
        return np.array([settings.decode(text) for text in corpus.read(numbers)], dtype=object)

    batches = corpus.batches(BATCH_BYTES)
    parts = [da.from_delayed(dask.delayed(texts)(batch), (len(batch),), dtype=object) for batch in batches]
    vectorizer = HashingVectorizer(
        **settings.analysis(), n_features=settings.hashed, alternate_sign=False,
        norm="l2" if settings.unit_rows else None, dtype=np.float32,
    )  # fmt: skip
    rows = vectorizer.transform(da.concatenate(parts))
    rows._chunks = (tuple(map(len, batches)), (settings.hashed,))  # dask-ml does not know the number of rows
    return from_object(rows, corpus.labels)
