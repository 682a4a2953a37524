"""Byte n-grams of documents, as in the webspam data: counts of every sequence of n consecutive bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gdm_dask.errors import BadInput
from gdm_dask.system.names import printable

MAX_N = 8


def byte_ngrams(
    documents: Sequence[bytes], n: int, vocabulary: np.ndarray | None = None, unit_rows: bool = True
) -> tuple[sp.csr_array, np.ndarray]:
    """Count the byte n-grams of documents, n from 1 to 8, as rows of float32; scaled to unit length, as in webspam.

    The `vocabulary`, for example from a training set, holds the codes of the n-grams to count, increasing; by default,
    all n-grams count. It is returned, too: a code is the bytes as a big-endian number, see `ngram_names`.

    Examples
    --------
    >>> counts, codes = byte_ngrams([b"abab", b"ba"], 2, unit_rows=False)
    >>> counts.toarray().tolist(), ngram_names(codes, 2)
    ([[2.0, 1.0], [0.0, 1.0]], ['ab', 'ba'])
    """
    if not 1 <= n <= MAX_N:
        raise BadInput(f"`n` must be in [1, {MAX_N}], got {n}")
    codes, counts, pointers = _count(documents, n)
    if vocabulary is None:
        vocabulary = np.unique(codes)
    columns = np.searchsorted(vocabulary, codes)
    known = columns < len(vocabulary)
    known[known] = vocabulary[columns[known]] == codes[known]
    if not known.all():
        pointers = np.concatenate([[0], np.cumsum(known)])[pointers]
        columns, counts = columns[known], counts[known]
    index = np.int32 if max(len(vocabulary), len(columns)) < 2**31 else np.int64  # scikit-learn requires 32 bits
    shape = (len(documents), len(vocabulary))
    matrix = sp.csr_array((counts, columns.astype(index), pointers.astype(index)), shape=shape)
    if unit_rows:
        scale_rows(matrix)
    return matrix, vocabulary


def scale_rows(counts: sp.csr_array) -> None:
    """Scale rows to unit length, in place; empty rows stay empty."""
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    counts.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(counts.indptr)).astype(np.float32)


def ngram_names(codes: np.ndarray, n: int) -> list[str]:
    r"""Return n-grams as text; bytes that are not UTF-8 or not printable are escaped.

    >>> ngram_names(np.array([0x610A]), 2)
    ['a\\n']
    """
    return [printable(code.to_bytes(n, "big").decode("utf-8", "backslashreplace")) for code in codes.tolist()]


def _count(documents: Sequence[bytes], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct codes of each document, increasing, their counts, and the start of each document."""
    found = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
    for document in documents:
        text = np.frombuffer(document, np.uint8).astype(np.uint64)
        length = max(0, len(text) - n + 1)
        codes = np.zeros(length, np.uint64)
        for k in range(n):
            codes = codes << np.uint64(8) | text[k : k + length]
        found.append(np.unique(codes, return_counts=True))
    pointers = np.cumsum([len(codes) for codes, _ in found])
    codes, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    return codes, counts.astype(np.float32), pointers
