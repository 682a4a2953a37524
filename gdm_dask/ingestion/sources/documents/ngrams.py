"""Byte n-grams of documents, as in the webspam data: counts of every sequence of n consecutive bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gdm_dask.errors import BadInput
from gdm_dask.system.jit import allocating

MAX_N = 8


def byte_ngrams(
    documents: Sequence[bytes], n: int, vocabulary: np.ndarray | None = None, unit_rows: bool = True
) -> tuple[sp.csr_array, np.ndarray]:
    """Count the byte n-grams of documents.

    Parameters
    ----------
    documents : sequence of bytes
    n : int
        Length of the n-grams, 1 to 8.
    vocabulary : ndarray of uint64, optional
        Codes of the n-grams to count, increasing, such as those of a training set. By default all that occur.
    unit_rows : bool
        Scale each row to unit length, as in webspam.

    Returns
    -------
    counts : csr_array of shape (n_documents, n_ngrams), float32
    vocabulary : ndarray of uint64
        Code of each column: its bytes as a big-endian number. `ngram_names` makes them readable.

    Examples
    --------
    >>> counts, codes = byte_ngrams([b"abab", b"ba"], 2, unit_rows=False)
    >>> counts.toarray().tolist(), ngram_names(codes, 2)
    ([[2.0, 1.0], [0.0, 1.0]], ['ab', 'ba'])
    """
    if not 1 <= n <= MAX_N:
        raise BadInput(f"`n` must be in [1, {MAX_N}], got {n}")
    text = np.frombuffer(b"".join(documents), np.uint8)
    bounds = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.int64)
    codes, counts, pointers = _count(text, bounds, n)
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
    names = []
    for code in codes.tolist():
        text = int(code).to_bytes(n, "big").decode("utf-8", "backslashreplace")
        names.append("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))
    return names


@allocating
def _count(text, bounds, n):  # type: ignore[no-untyped-def]
    """Return the distinct codes of each document, increasing, their counts, and the start of each document."""
    total = 0
    for document in range(len(bounds) - 1):
        total += max(0, bounds[document + 1] - bounds[document] - n + 1)
    codes = np.empty(total, np.uint64)
    counts = np.empty(total, np.float32)
    pointers = np.zeros(len(bounds), np.int64)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * n)
    place = 0
    for document in range(len(bounds) - 1):
        start, stop = bounds[document], bounds[document + 1]
        windows = np.empty(max(0, stop - start - n + 1), np.uint64)
        code = np.uint64(0)
        for position in range(start, stop):
            code = ((code << np.uint64(8)) | np.uint64(text[position])) & mask
            if position - start >= n - 1:
                windows[position - start - n + 1] = code
        windows.sort()
        for k in range(len(windows)):
            if k > 0 and windows[k] == windows[k - 1]:
                counts[place - 1] += 1
            else:
                codes[place] = windows[k]
                counts[place] = 1
                place += 1
        pointers[document + 1] = place
    return codes[:place].copy(), counts[:place].copy(), pointers
