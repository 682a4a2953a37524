"""Untrusted vocabularies in a store are used, or an error names the store."""

from __future__ import annotations

import io
import json
from unittest import mock

import numpy as np
import pytest
from helpers.fuzz import FUZZ, change_somewhere, changed_bytes
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.errors import DamagedStore
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, Vocabulary, count_vocabulary
from gdm_dask.store.texts import pack_text

DOCUMENTS = [b"Buy now", b"buy nothing now", b"now or never \xff\x00"]
WHOLE = {
    analyzer: count_vocabulary([DOCUMENTS], TextSettings(analyzer, ngrams))
    for analyzer, ngrams in {"byte": (2, 3), "char": (1, 2), "word": (1, 2)}.items()
}


def load(content: bytes, n_features: int) -> Vocabulary:
    """Load the bytes as the vocabulary of a store."""
    store = mock.Mock(url="s.zarr", shape=(n_features, 3), packed_vocabulary=np.frombuffer(content, np.uint8))
    with mock.patch("gdm_dask.ingestion.sources.documents.vocabulary.open_store", return_value=store):
        return Vocabulary.load("s.zarr")


def use(content: bytes, n_features: int) -> None:
    try:
        vocabulary = load(content, n_features)
    except DamagedStore as error:
        assert str(error).startswith("s.zarr: the vocabulary of the store is malformed: ")  # noqa: PT017
        return
    if vocabulary.settings.hashed is None:
        assert vocabulary.rows(DOCUMENTS).shape == (3, n_features)
        assert len(vocabulary.names) == n_features


def arrays_of(vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(vocabulary.packed().tobytes())) as arrays:
        return dict(arrays)


def packed(arrays: dict[str, np.ndarray], save=np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("analyzer", WHOLE)
def test_a_whole_one_is_used(analyzer) -> None:
    whole = WHOLE[analyzer]
    assert load(whole.packed().tobytes(), len(whole)).names == whole.names


@pytest.mark.parametrize(
    ("analyzer", "changes", "message"),
    [
        ("byte", {"codes2": np.array([5, 3], np.uint64)}, "n-grams of 2 bytes do not increase"),
        ("byte", {"codes2": np.array([2**63], np.uint64)}, "n-grams of 2 bytes do not increase"),
        ("byte", {"codes3": np.zeros((2, 2))}, "n-grams of 3 bytes do not increase"),
        ("byte", {"settings": np.array(json.dumps({"ngrams": [2, 9]}))}, "`ngrams` must be"),
        ("byte", {"settings": np.array(json.dumps({"ngrams": [2, 4]}))}, "codes4"),
        ("byte", {"settings": np.array("[" * 10_000)}, "recursion"),
        ("word", {f"terms.{key}": array for key, array in pack_text(["a", "a"]).items()}, "terms are repeated"),
        ("word", {"terms.text": np.full(60, 255, np.uint8)}, "not UTF-8"),
        ("word", {f"terms.{key}": array for key, array in pack_text(["a", "b"]).items()}, "it has 2 columns for"),
    ],
)
def test_malformed_ones_are_named(analyzer, changes, message) -> None:
    whole = WHOLE[analyzer]
    with pytest.raises(DamagedStore, match=rf"s\.zarr: the vocabulary of the store is malformed: .*{message}"):
        load(packed(arrays_of(whole) | changes), len(whole))


def test_a_small_one_of_large_arrays() -> None:
    """In a file, zeros take a thousandth of their memory."""
    content = packed(arrays_of(WHOLE["word"]) | {"zeros": np.zeros(1 << 22)}, np.savez_compressed)
    with pytest.raises(DamagedStore, match=r"its arrays take 33\.6 MB"):
        load(content, 3)


@FUZZ
@given(data=st.data(), analyzer=st.sampled_from(sorted(WHOLE)))
def test_any_bytes_are_a_vocabulary_or_refused(data, analyzer) -> None:
    whole = WHOLE[analyzer]
    use(changed_bytes(data, whole.packed().tobytes()), len(whole))


@FUZZ
@given(data=st.data(), analyzer=st.sampled_from(sorted(WHOLE)))
def test_any_arrays_are_a_vocabulary_or_refused(data, analyzer) -> None:
    arrays = arrays_of(WHOLE[analyzer])
    name = data.draw(st.sampled_from(sorted(arrays)))
    if name == "settings":
        settings = json.loads(str(arrays[name]))
        change_somewhere(data, settings)
        arrays[name] = np.array(json.dumps(settings))
    else:
        array = arrays[name]
        content = changed_bytes(data, array.tobytes())
        arrays[name] = np.frombuffer(content[: len(content) // array.itemsize * array.itemsize], array.dtype)
    use(packed(arrays), len(WHOLE[analyzer]))
