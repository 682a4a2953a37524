"""Convert documents to rows: n-grams of bytes, characters or words, counted with a vocabulary or hashed."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.utils import murmurhash3_32

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.ingestion.sources.documents.ngrams import byte_ngrams, ngram_names, scale_rows
from gdm_dask.store import open_store
from gdm_dask.store.arrays import REMEDY
from gdm_dask.store.texts import pack_text, unpack_text
from gdm_dask.system.names import printable
from gdm_dask.system.resources import BAD_ARRAYS, check_archive


@dataclass(frozen=True)
class TextSettings:
    """Settings for converting documents to rows."""

    analyzer: str = "byte"  # "byte", "char" or "word"
    ngrams: tuple[int, int] = (4, 4)  # shortest and longest
    min_df: int = 1  # fewest documents that contain an n-gram
    unit_rows: bool = True  # scale rows to unit length; otherwise keep counts
    hashed: int | None = None  # hash the n-grams into this many features, without a vocabulary

    def __post_init__(self) -> None:
        if self.analyzer not in ("byte", "char", "word"):
            raise BadInput(f"`analyzer` must be 'byte', 'char' or 'word', got {self.analyzer!r}")
        low, high = self.ngrams
        if not 1 <= low <= high <= 8:
            raise BadInput(f"`ngrams` must be two lengths in [1, 8], the shortest first, got {low} and {high}")
        if self.min_df < 1:
            raise BadInput(f"`min_df` must be an integer >= 1, got {self.min_df}")
        if self.hashed is not None and not 2 <= self.hashed < 2**31:
            raise BadInput(f"`hashed` must be in [2, {2**31 - 1}], got {self.hashed}")

    @property
    def sizes(self) -> range:
        """Return the lengths of n-grams."""
        return range(self.ngrams[0], self.ngrams[1] + 1)

    def decode(self, document: bytes) -> str:
        """Decode a document for the analyzer; as Latin-1, each byte becomes a character."""
        return document.decode("latin-1") if self.analyzer == "byte" else document.decode("utf-8", "replace")

    def analysis(self) -> dict[str, Any]:
        """Return arguments for scikit-learn's vectorizers, whose character n-grams merge white space."""
        if self.analyzer == "word":
            return {"analyzer": "word", "ngram_range": self.ngrams}
        return {"analyzer": partial(character_ngrams, sizes=self.sizes)}


def character_ngrams(text: str, sizes: range) -> list[str]:
    """Return every sequence of characters of these lengths.

    >>> character_ngrams("abc", range(2, 4))
    ['ab', 'bc', 'abc']
    """
    return [text[k : k + n] for n in sizes for k in range(len(text) - n + 1)]


class Vocabulary:
    """N-grams and their columns: increasing codes of bytes for each length, or sorted terms of characters or words."""

    def __init__(self, settings: TextSettings, codes: list[np.ndarray], terms: list[str]) -> None:
        self.settings, self.codes, self.terms = settings, codes, terms
        self._columns = {term: column for column, term in enumerate(terms)}

    def __len__(self) -> int:
        return sum(map(len, self.codes)) + len(self.terms)

    @property
    def n_columns(self) -> int:
        """Number of columns of the rows."""
        return self.settings.hashed or len(self)

    @property
    def names(self) -> list[str]:
        """A readable name for each column."""
        if self.settings.analyzer != "byte":
            return self.terms
        pairs = zip(self.settings.sizes, self.codes, strict=True)
        return [name for n, codes in pairs for name in ngram_names(codes, n)]

    def rows(self, documents: list[bytes]) -> sp.csr_array:
        """Return rows of documents; n-grams missing from the vocabulary are dropped."""
        if self.settings.hashed is not None:
            hashing = HashingVectorizer(
                **self.settings.analysis(), n_features=self.settings.hashed, alternate_sign=False,
                norm="l2" if self.settings.unit_rows else None, dtype=np.float32,
            )  # fmt: skip
            return sp.csr_array(hashing.transform([self.settings.decode(document) for document in documents]))
        if self.settings.analyzer == "byte":
            pairs = zip(self.settings.sizes, self.codes, strict=True)
            parts = [byte_ngrams(documents, n, codes, unit_rows=False)[0] for n, codes in pairs]
            counts = sp.csr_array(sp.hstack(parts, format="csr")) if len(parts) > 1 else parts[0]
        else:
            vectorizer = CountVectorizer(**self.settings.analysis(), vocabulary=self._columns, dtype=np.float32)
            counts = sp.csr_array(vectorizer.transform([self.settings.decode(document) for document in documents]))
        counts.sort_indices()
        if self.settings.unit_rows:
            scale_rows(counts)
        return counts

    def packed(self) -> np.ndarray:
        """Return the vocabulary as bytes, equal for equal vocabularies: a store keeps them for test sets."""
        buffer = io.BytesIO()
        arrays = {f"codes{n}": codes for n, codes in zip(self.settings.sizes, self.codes, strict=False)}
        arrays |= {f"terms.{key}": value for key, value in pack_text(self.terms).items()}
        np.savez(buffer, allow_pickle=False, settings=json.dumps(asdict(self.settings)), **arrays)
        return np.frombuffer(buffer.getbuffer(), np.uint8)

    @classmethod
    def load(cls, store: str | os.PathLike[str]) -> Vocabulary:
        """Load the vocabulary of a store of documents."""
        opened = open_store(store)
        packed = opened.packed_vocabulary
        if packed is None:
            raise BadInput(f"{os.fspath(store)}: the store has no vocabulary: make it with gdm ingest --text")
        try:
            vocabulary = cls._unpacked(packed.tobytes())
            if vocabulary.n_columns != opened.shape[0]:
                raise ValueError(f"it has {vocabulary.n_columns} columns for {opened.shape[0]} features")
        except (ValueError, AttributeError, RecursionError, BadInput, *BAD_ARRAYS) as error:
            raise DamagedStore(f"{opened.url}: the vocabulary of the store is malformed: {error}. {REMEDY}") from error
        return vocabulary

    @classmethod
    def _unpacked(cls, content: bytes) -> Vocabulary:
        """Undo `packed`; the bytes come from a file that anybody may have written."""
        check_archive(io.BytesIO(content), len(content))  # its arrays are not compressed
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            stored = json.loads(str(arrays["settings"]))
            settings = TextSettings(**stored | {"ngrams": tuple(stored["ngrams"])})
            is_bytes = settings.analyzer == "byte" and settings.hashed is None
            codes = [arrays[f"codes{n}"] for n in settings.sizes] if is_bytes else []
            terms = unpack_text(arrays["terms.offsets"], arrays["terms.text"])
        if (is_bytes and terms) or len(set(terms)) != len(terms):
            raise ValueError("its terms are repeated")
        for n, some in zip(settings.sizes, codes, strict=False):
            is_sorted = some.dtype == np.uint64 and some.ndim == 1 and bool((some[1:] > some[:-1]).all())
            if not is_sorted or (some.size and int(some[-1]) >= 256**n):
                raise ValueError(f"its n-grams of {n} bytes do not increase")
        return cls(settings, codes, terms)


def count_vocabulary(batches: Iterable[list[bytes]], settings: TextSettings) -> Vocabulary:
    """Collect the n-grams that occur in at least `min_df` documents, with one batch in memory at a time.

    Examples
    --------
    >>> words = TextSettings("word", (1, 2), min_df=2)
    >>> count_vocabulary([[b"Buy now", b"buy now and"], [b"now or never"]], words).names
    ['buy', 'buy now', 'now']
    """
    if settings.analyzer == "byte":
        return Vocabulary(settings, _count_bytes(batches, settings), [])
    found = _count_terms(batches, settings)
    return Vocabulary(settings, [], sorted(term for term, count in found.items() if count >= settings.min_df))


def _count_terms(batches: Iterable[list[bytes]], settings: TextSettings) -> Counter[str]:
    analyse = CountVectorizer(**settings.analysis()).build_analyzer()
    found: Counter[str] = Counter()
    for documents in batches:
        for document in documents:
            found.update(set(analyse(settings.decode(document))))
    return found


def _count_bytes(batches: Iterable[list[bytes]], settings: TextSettings) -> list[np.ndarray]:
    found = [(np.zeros(0, np.uint64), np.zeros(0, np.int64)) for _ in settings.sizes]
    for documents in batches:
        for position, n in enumerate(settings.sizes):
            counts, codes = byte_ngrams(documents, n, unit_rows=False)
            new = np.bincount(counts.indices, minlength=len(codes))
            known, frequencies = found[position]
            merged, places = np.unique(np.concatenate([known, codes]), return_inverse=True)
            total = np.bincount(places, np.concatenate([frequencies, new]), len(merged)).astype(np.int64)
            found[position] = merged, total
    return [codes[frequencies >= settings.min_df] for codes, frequencies in found]


def hashed_names(batches: Iterable[list[bytes]], settings: TextSettings) -> list[str]:
    """Name each hashed feature after its most frequent n-gram, with the number of other n-grams that share it.

    Examples
    --------
    >>> names = hashed_names([[b"hello hello world"]], TextSettings("word", (1, 1), hashed=16))
    >>> sorted(name for name in names if not name.startswith("#"))
    ['hello', 'world']
    """
    assert settings.hashed is not None
    best: dict[int, tuple[int, str]] = {}
    others: Counter[int] = Counter()
    for term, count in _count_terms(batches, settings).items():
        place = abs(int(murmurhash3_32(term, seed=0))) % settings.hashed
        others[place] += 1
        best[place] = min(best.get(place, (0, "")), (-count, term))
    names = [f"#{place}" for place in range(settings.hashed)]
    for place, (_, term) in best.items():
        names[place] = printable(term) + ("" if others[place] == 1 else f" (+{others[place] - 1})")
    return names
