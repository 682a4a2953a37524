"""Documents become stores: every form of corpus and analyzer, with names, without the headers of mails."""

import csv
import gzip
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from gdm_dask import ingest, open_store
from gdm_dask.cli import store_commands  # noqa: F401 (registers its commands)
from gdm_dask.cli.app import app
from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.ingestion.sources import documents as module
from gdm_dask.ingestion.sources.documents import document_source
from gdm_dask.ingestion.sources.documents.corpus import open_corpus, strip_headers
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, Vocabulary, count_vocabulary
from gdm_dask.ingestion.staging import Staging

TEXTS = [
    'Buy now, "cheap"\nand fast',
    "see you at lunch",
    "naïve café, buy",
    "lunch at noon?\n\nyes",
    "cheap cheap now",
]
LABELS = ["spam", "ham", "ham", "ham", "spam"]


def as_folders(place):
    for number, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True)):
        (place / label).mkdir(parents=True, exist_ok=True)
        (place / label / f"{number}.txt").write_text(text)
    return place


def as_table(place):
    place.mkdir()
    with (place / "mails.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", "text"])
        writer.writerows((number, *pair) for number, pair in enumerate(zip(LABELS, TEXTS, strict=True)))
    return place / "mails.csv"


def as_lines(place):
    place.mkdir()
    records = [json.dumps({"text": text, "label": label}) for text, label in zip(TEXTS, LABELS, strict=True)]
    (place / "mails.jsonl").write_text("\n".join(records) + "\n\n")
    return place / "mails.jsonl"


def as_packed(place):
    place.mkdir()
    data = [text.encode() for text in TEXTS]
    with gzip.open(place / "text.bin.gz", "wb") as file:
        file.write(b"".join(data))
    np.savez(place / "index.npz", offset=np.cumsum([0, *map(len, data)]), label=np.array(LABELS))
    return place


FORMS = {"folders": as_folders, "table": as_table, "lines": as_lines, "packed": as_packed}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_documents(tmp_path, form):
    corpus = open_corpus(FORMS[form](tmp_path / form))
    found = sorted(zip(corpus.labels.tolist(), corpus.read(np.arange(len(corpus))), strict=True))
    assert found == sorted(zip(LABELS, (text.encode() for text in TEXTS), strict=True))
    assert [k for batch in corpus.batches(20) for k in batch] == list(range(5))


@pytest.mark.parametrize("form", FORMS)
def test_one_document_is_read_as_it_is_among_others(tmp_path, form):
    corpus = open_corpus(FORMS[form](tmp_path / form))
    for number in range(5):
        alone = corpus.take(np.array([number]))
        assert alone.read(np.arange(1)) == corpus.read(np.array([number]))


def test_a_table_of_one_document(tmp_path):
    (tmp_path / "one.csv").write_text("text,label\nhello,ham\n")
    assert open_corpus(tmp_path / "one.csv").read(np.arange(1)) == [b"hello"]


def test_only_line_breaks_end_a_record_of_a_table(tmp_path):
    texts = ["hel\u2028lo", "form\x0cfeed", "next\x85line"]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"{text},ham\n" for text in texts))
    assert open_corpus(tmp_path / "a.csv").read(np.arange(3)) == [text.encode() for text in texts]


def test_half_a_pair_of_surrogates_is_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"text": "\ud83d!", "label": "ham"}' + "\n")
    assert open_corpus(tmp_path / "a.jsonl").read(np.arange(1)) == ["\ud83d!".encode(errors="surrogatepass")]


def test_a_damaged_packed_corpus_is_named(tmp_path):
    file = as_packed(tmp_path / "packed") / "text.bin.gz"
    data = bytearray(file.read_bytes())
    data[10:40] = bytes(value ^ 255 for value in data[10:40])
    file.write_bytes(data)
    with pytest.raises(BadInput, match=r"text\.bin\.gz: the file is damaged"):
        open_corpus(tmp_path / "packed")


@pytest.mark.parametrize("analyzer", ["byte", "char", "word"])
def test_counts_are_those_of_scikit_learn(tmp_path, analyzer, monkeypatch):
    monkeypatch.setattr(module, "BATCH_BYTES", 30)
    corpus = open_corpus(as_lines(tmp_path / "a"))
    settings = TextSettings(analyzer, (1, 2), min_df=2, unit_rows=False)
    store = ingest(document_source(corpus, settings), tmp_path / "a.zarr")
    texts = [settings.decode(text).replace("\n", "\x00") for text in corpus.read(np.arange(5))]  # it merges white space
    if analyzer == "word":
        texts = TEXTS
    kind = "word" if analyzer == "word" else "char"
    peer = CountVectorizer(analyzer=kind, ngram_range=(1, 2), lowercase=kind == "word", min_df=2)
    expected = peer.fit_transform(texts).toarray().T
    found = store.read_rows(np.arange(store.shape[0])).toarray()
    order, peer_order = np.lexsort(found.T), np.lexsort(expected.T)
    np.testing.assert_array_equal(found[order], expected[peer_order])
    assert store.classes == ["ham", "spam"]
    assert store.codes.tolist() == [1, 0, 0, 0, 1]
    if analyzer == "word":
        assert store.feature_names == sorted(peer.vocabulary_)


def test_hashed_rows_are_scikit_learns_and_names_can_be_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH_BYTES", 30)
    corpus = open_corpus(as_lines(tmp_path / "a"))
    settings = TextSettings("word", (1, 1), hashed=4096)
    store = ingest(document_source(corpus, settings, named=True), tmp_path / "a.zarr")
    peer = HashingVectorizer(n_features=4096, alternate_sign=False).transform(TEXTS).toarray().T
    np.testing.assert_allclose(store.read_rows(np.arange(4096)).toarray(), peer, atol=1e-7)
    used = np.flatnonzero(peer.any(axis=1))
    words = CountVectorizer().fit(TEXTS).vocabulary_
    assert set(store.names_of(used)) == set(words)


def test_a_test_set_has_the_columns_of_the_training_set(tmp_path):
    corpus = open_corpus(as_folders(tmp_path / "a"))
    settings = TextSettings("byte", (2, 3))
    vocabulary = count_vocabulary([corpus.read(np.arange(2))], settings)
    train = ingest(document_source(corpus, settings, vocabulary), tmp_path / "a.zarr")
    again = Vocabulary.load(tmp_path / "a.zarr")
    assert (again.settings, again.names) == (settings, train.feature_names)
    assert (again.rows([b"Buy"]) != vocabulary.rows([b"Buy"])).nnz == 0
    words = ingest(document_source(corpus, TextSettings("word", (1, 1))), tmp_path / "w.zarr")
    assert Vocabulary.load(tmp_path / "w.zarr").terms == words.feature_names


def test_copies_of_a_text_are_on_one_side_of_a_split(tmp_path):
    with (tmp_path / "a.jsonl").open("w") as file:
        for number in range(400):
            file.write(json.dumps({"text": f"text {number % 200}", "label": number % 2}) + "\n")
    train, test = open_corpus(tmp_path / "a.jsonl").split(0.25, seed=1)
    texts = [set(part.read(np.arange(len(part)))) for part in (train, test)]
    assert not texts[0] & texts[1]
    assert len(train) + len(test) == 400
    assert 60 < len(test) < 140
    other = open_corpus(tmp_path / "a.jsonl").split(0.25, seed=2)[1]
    assert set(other.read(np.arange(len(other)))) != texts[1]


@pytest.mark.parametrize(
    ("mail", "text"),
    [
        (b"Subject: hi\r\nX-Spam: yes\r\n\r\nbody\r\n", b"hi\nbody\n"),
        (b"no headers: at all\nhere\n\nbody", b"no headers: at all\nhere\n\nbody"),
        (b"From x\nReceived: a\n\tb\n\nbody", b"\nbody"),
        (b"", b""),
    ],
)
def test_headers_are_stripped(mail, text):
    assert strip_headers(mail) == text


@given(st.binary(max_size=200))
def test_stripping_never_fails(document):
    assert isinstance(strip_headers(document), bytes)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "id,words\n1,b\n", "no column 'text'; there are id, words"),
        ("a.csv", "text,label\nonly one\n", "line 2: 1 fields"),
        ("a.csv", "text,label\nlone\rreturn,ham\n", "line 2: "),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 1', "line 2: not a JSON object with the key 'label'"),
        ("a.jsonl", '{"text": "a", "label": null}', "line 1: 'label' is null"),
        ("a.jsonl", '{"text": null, "label": 1}', "line 1: 'text' is null"),
        ("a.jsonl", "", r"a\.jsonl: there are no documents"),
        ("a.csv", "text,label\na,b\nc,\n", "line 3: 'label' is empty"),
        ("a.txt", "words", "a folder per class"),
    ],
)
def test_bad_documents_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(BadInput, match=message):
        open_corpus(tmp_path / name)


def test_other_labels_for_documents_are_refused(tmp_path):
    source = document_source(open_corpus(as_table(tmp_path / "table")), TextSettings())
    with pytest.raises(BadInput, match="has its own labels"):
        ingest(source, tmp_path / "a.zarr", LABELS)


def test_bad_folders_are_named(tmp_path):
    (tmp_path / "one").mkdir()
    with pytest.raises(BadInput, match="expected at least two folders of documents"):
        open_corpus(tmp_path)
    place = as_packed(tmp_path / "packed")
    (place / "text.bin.gz").write_bytes((place / "text.bin.gz").read_bytes()[:-20])
    with pytest.raises(BadInput, match="damaged or cut off"):
        open_corpus(place)
    os.unlink(place / "text.bin.gz")
    with pytest.raises(BadInput, match=r"no text\.bin"):
        open_corpus(place)
    place = as_packed(tmp_path / "again")
    (place / "index.npz").write_bytes((place / "index.npz").read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"index\.npz: the file is damaged"):
        open_corpus(place)


@pytest.mark.parametrize(
    "settings",
    [{"analyzer": "line"}, {"ngrams": (3, 2)}, {"ngrams": (1, 9)}, {"min_df": 0}, {"hashed": 0}, {"hashed": 2**31}],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(BadInput):
        TextSettings(**settings)


def gdm(*words):
    app(list(words), standalone_mode=False)


def test_the_command_line_makes_training_and_test_stores(tmp_path):
    folder = as_folders(tmp_path / "mails")
    options = ["--text", "--analyzer", "word", "--ngrams", "1-2", "--counts", "--scheduler", "synchronous"]
    gdm("ingest", str(folder), str(tmp_path / "a.zarr"), *options)
    train = open_store(tmp_path / "a.zarr")
    assert "buy now" in train.feature_names
    gdm("ingest", str(as_table(tmp_path / "t")), str(tmp_path / "b.zarr"), "--text", "--like", str(tmp_path / "a.zarr"))
    test = open_store(tmp_path / "b.zarr")
    assert (test.feature_names, test.classes) == (train.feature_names, train.classes)
    assert test.nnz == train.nnz
    hashed = ["--hashed", "512", "--hashed-names", "--analyzer", "byte"]
    gdm("ingest", str(folder), str(tmp_path / "h.zarr"), "--text", *hashed)
    gdm("ingest", str(folder), str(tmp_path / "g.zarr"), "--text", "--like", str(tmp_path / "h.zarr"))
    assert open_store(tmp_path / "h.zarr").shape[0] == 512
    assert open_store(tmp_path / "g.zarr").nnz == open_store(tmp_path / "h.zarr").nnz


class Killed(BaseException):
    pass


def kill(*_):
    raise Killed


@pytest.mark.parametrize("moment", ["begin", "mark_finished", "publish"])
def test_a_killed_ingest_leaves_the_vocabulary_of_the_store_that_is_there(tmp_path, monkeypatch, moment):
    folder, target = as_folders(tmp_path / "mails"), str(tmp_path / "a.zarr")
    command = ["ingest", str(folder), target, "--text", "--ngrams"]
    gdm(*command, "3")
    with monkeypatch.context() as patch:
        patch.setattr("gdm_dask.ingestion.sources.documents.count_vocabulary", kill)
        with pytest.raises(BadInput, match="exists: choose another name"):  # early: counting may take long
            gdm(*command, "2")
    with monkeypatch.context() as patch:
        patch.setattr(Staging, moment, kill)
        with pytest.raises(Killed):
            gdm(*command, "2", "--overwrite")
    assert Vocabulary.load(target).names == open_store(target).feature_names
    assert Vocabulary.load(target).settings.ngrams == (3, 3)
    gdm(*command, "2", "--overwrite")
    assert Vocabulary.load(target).names == open_store(target).feature_names
    assert Vocabulary.load(target).settings.ngrams == (2, 2)


def test_a_vocabulary_is_part_of_its_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = TextSettings("word", (1, 1))
    corpus = open_corpus(as_lines(tmp_path / "a"))
    for place in ("memory://bucket/mails.zarr", tmp_path / "mails.zarr"):
        store = ingest(document_source(corpus, settings), place)
        assert Vocabulary.load(place).terms == store.feature_names
        store.verify()
    chunk = tmp_path / "mails.zarr/vocabulary/c/0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(DamagedStore, match="vocabulary"):
        Vocabulary.load(tmp_path / "mails.zarr")
    ingest(np.eye(2), tmp_path / "plain.zarr", [0, 1])
    with pytest.raises(BadInput, match="the store has no vocabulary"):
        Vocabulary.load(tmp_path / "plain.zarr")


@pytest.mark.parametrize(
    ("ngrams", "message"), [("a", "must be a length"), ("1-", None), ("2-9", "must be two lengths")]
)
def test_lengths_of_ngrams_are_checked(tmp_path, ngrams, message):
    folder = as_folders(tmp_path / "mails")
    if message is None:
        gdm("ingest", str(folder), str(tmp_path / "a.zarr"), "--text", "--ngrams", ngrams)
        return
    with pytest.raises(BadInput, match=message):
        gdm("ingest", str(folder), str(tmp_path / "a.zarr"), "--text", "--ngrams", ngrams)
