"""Raw documents with one class each: a folder per class, CSV, JSON lines, or one packed file with an index.

A corpus knows the places of its documents and reads them on demand, so it can be larger than memory (a compressed
packed corpus is unpacked in memory).
"""

from __future__ import annotations

import csv
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.store.folder import local_folder, open_text
from gdm_dask.system.resources import BAD_ARRAYS

_TABLES = {".csv": ",", ".tsv": "\t"}
_LINES = (".jsonl", ".ndjson")
_HEADER = re.compile(rb"[!-9;-~]+:|>?From ")
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Corpus:
    """Documents and their classes."""

    paths: list[str]  # one for all documents, or one per document
    numbers: np.ndarray  # of the documents, for `records`
    lengths: np.ndarray  # bytes of each document in its file
    labels: np.ndarray
    identity: list[Any]  # sizes and times of the files
    records: Callable[[np.ndarray], Iterable[bytes]]  # texts of the documents with these numbers
    mail: bool = False  # strip the headers of mails

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, numbers: np.ndarray) -> list[bytes]:
        """Return the texts of some documents."""
        texts = self.records(self.numbers[numbers])
        return [strip_headers(text) for text in texts] if self.mail else list(texts)

    def batches(self, n_bytes: int) -> list[np.ndarray]:
        """Cut the numbers of the documents into batches of about `n_bytes` bytes."""
        behind = np.cumsum(self.lengths)
        cuts = np.searchsorted(behind, np.arange(n_bytes, behind[-1] if len(behind) else 0, n_bytes)) + 1
        return [part for part in np.split(np.arange(len(self)), np.unique(cuts)) if len(part)]

    def take(self, numbers: np.ndarray) -> Corpus:
        """Return some of the documents."""
        return replace(
            self,
            paths=[self.paths[k] for k in numbers] if len(self.paths) == len(self) else self.paths,
            numbers=self.numbers[numbers],
            lengths=self.lengths[numbers],
            labels=self.labels[numbers],
            identity=[self.identity, zlib.crc32(numbers.astype(np.int64).tobytes())],
        )

    def split(self, test_fraction: float, seed: int = 0) -> tuple[Corpus, Corpus]:
        """Split into a training and a test part by a checksum of the texts: copies of a text stay on one side."""
        chance = np.empty(len(self))
        for batch in self.batches(1 << 24):
            chance[batch] = [zlib.crc32(text, zlib.crc32(b"%d" % seed)) / 2**32 for text in self.read(batch)]
        return self.take(np.flatnonzero(chance >= test_fraction)), self.take(np.flatnonzero(chance < test_fraction))


def open_corpus(path: str | os.PathLike[str], text: str = "text", label: str = "label", mail: bool = False) -> Corpus:
    """Find the documents at a path; `text` and `label` are the columns or keys of the text and the class.

    The path is a folder with a folder of text files for each class; a ``.csv`` or ``.tsv`` file with a header;
    ``.jsonl``; or a packed corpus: a folder with ``index.npz`` (arrays ``offset`` and `label`) and ``text.bin``, which
    may end in ``.xz``, ``.gz`` or ``.bz2``. With `mail`, headers of mails are stripped except the subject: they reveal
    the class.
    """
    place = local_folder(path, "the place of raw documents")
    if not place.exists():
        raise BadInput(f"{place}: no such file or folder")
    if (place / "index.npz").exists():
        found = _packed(place, label)
    elif place.is_dir():
        found = _folders(place)
    elif place.suffix.lower() in _TABLES:
        found = _table(place, text, label)
    elif place.suffix.lower() in _LINES:
        found = _json_lines(place, text, label)
    else:
        raise BadInput(f"{place}: documents come as a folder per class, .csv, .tsv, .jsonl or a packed corpus")
    if len(found) == 0:
        raise BadInput(f"{place}: there are no documents")
    return replace(found, mail=mail)


def _stat(path: Path) -> list[Any]:
    stat = path.stat()
    return [path.name, stat.st_size, stat.st_mtime_ns]


def _folders(place: Path) -> Corpus:
    classes = sorted(item for item in place.iterdir() if item.is_dir() and not item.name.startswith("."))
    if len(classes) < 2:
        names = ", ".join(item.name for item in classes) or "none"
        raise BadInput(f"{place}: expected at least two folders of documents, one per class, got: {names}")
    files = [(file, group.name) for group in classes for file in sorted(group.rglob("*")) if file.is_file()]
    identity = [_stat(file) for file, _ in files]
    lengths = np.array([entry[1] for entry in identity], np.int64)
    labels = np.array([name for _, name in files])

    def records(numbers: np.ndarray) -> Iterator[bytes]:
        return (files[k][0].read_bytes() for k in numbers)

    return Corpus([str(file) for file, _ in files], np.arange(len(files)), lengths, labels, identity, records)


def _packed(place: Path, label: str) -> Corpus:
    candidates = [place / f"text.bin{suffix}" for suffix in ("", ".xz", ".gz", ".bz2")]
    file = next((candidate for candidate in candidates if candidate.exists()), None)
    if file is None:
        raise BadInput(f"{place}: there is an index.npz, but no text.bin beside it")
    try:
        with (place / "index.npz").open("rb") as raw, np.load(raw, allow_pickle=False) as index:
            missing = {"offset", label} - set(index.files)
            if missing:
                raise BadInput(f"{place / 'index.npz'}: there is no array {missing.pop()!r}; it has {index.files}")
            offsets, labels = index["offset"].astype(np.int64), index[label].astype(str)
    except (*BAD_ARRAYS, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{place / 'index.npz'}: the file is damaged: {error}. Fetch it again.") from error
    with open_text(str(file)) as stream:
        packed = stream.read()
    if len(offsets) != len(labels) + 1 or offsets[-1] != len(packed):
        raise BadInput(f"{place}: index.npz and {file.name} do not match: fetch both again")

    def records(numbers: np.ndarray) -> Iterator[bytes]:
        return (packed[offsets[k] : offsets[k + 1]] for k in numbers)

    identity = [_stat(file), _stat(place / "index.npz")]
    return Corpus([str(file)], np.arange(len(labels)), np.diff(offsets), labels, identity, records)


def _json_lines(path: Path, text: str, label: str) -> Corpus:
    def field(record: bytes, name: str, where: str) -> Any:
        try:
            found = json.loads(record)[name]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise BadInput(f"{path}, {where}: not a JSON object with the key {name!r}") from error
        if found is None:
            raise BadInput(f"{path}, {where}: {name!r} is null: fill it in, or leave the line out")
        return found

    offsets, lengths, labels = [], [], []
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                offsets.append(place)
                lengths.append(len(line))
                labels.append(str(field(line, label, f"line {number}")))
                field(line, text, f"line {number}")
            place += len(line)
    return _records(
        path, offsets, lengths, labels, lambda record: str(field(record, text, "")).encode(errors="surrogatepass")
    )


def _table(path: Path, text: str, label: str) -> Corpus:
    delimiter = _TABLES[path.suffix.lower()]
    offsets, lengths, labels = [], [], []
    with path.open("rb") as file:
        counted = _CountedLines(file)
        reader = csv.reader(counted, delimiter=delimiter)
        header = next(reader, [])
        for name in (text, label):
            if name not in header:
                raise BadInput(f"{path}: there is no column {name!r}; there are {', '.join(header)}")
        at, where = header.index(text), header.index(label)
        begin = counted.position
        try:
            for row in reader:
                if row:
                    if len(row) <= max(at, where):
                        raise BadInput(f"{path}, line {reader.line_num}: {len(row)} fields, but {len(header)} columns")
                    if not row[where].strip():
                        raise BadInput(f"{path}, line {reader.line_num}: {label!r} is empty: fill it in")
                    offsets.append(begin)
                    lengths.append(counted.position - begin)
                    labels.append(row[where])
                begin = counted.position
        except csv.Error as error:
            raise BadInput(f"{path}, line {reader.line_num}: {error}") from error

    def extract(record: bytes) -> bytes:
        line = record.decode("utf-8", "surrogateescape")
        return next(csv.reader([line], delimiter=delimiter))[at].encode("utf-8", "surrogateescape")

    return _records(path, offsets, lengths, labels, extract)


class _CountedLines:
    """Lines of a file as text, with a count of their bytes: a CSV record may span several lines."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.position = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.position += len(line)
            yield line.decode("utf-8-sig" if self.position == len(line) else "utf-8", "surrogateescape")


def _records(
    path: Path, offsets: list[int], lengths: list[int], labels: list[str], extract: Callable[[bytes], bytes]
) -> Corpus:
    """Return documents whose texts are to be extracted from records at these places of a file."""

    def records(numbers: np.ndarray) -> Iterator[bytes]:
        with path.open("rb") as file:
            for k in numbers:
                file.seek(offsets[k])
                yield extract(file.read(lengths[k]))

    sizes = np.array(lengths, np.int64)
    return Corpus([str(path)], np.arange(len(sizes)), sizes, np.array(labels, dtype=str), [_stat(path)], records)


def strip_headers(document: bytes) -> bytes:
    r"""Return subject and body of a mail; text that does not begin with headers is returned unchanged.

    >>> strip_headers(b"From a@b\nX-Spam: yes\nSubject: two\n words\n\nHello\n")
    b'two words\nHello\n'
    """
    document = document.replace(b"\r\n", b"\n")
    head, blank, body = document.partition(b"\n\n")
    lines = head.split(b"\n")
    if not blank or not all(_HEADER.match(line) or line[:1] in (b" ", b"\t") for line in lines):
        return document
    subject, is_subject = [], False
    for line in lines:
        if line[:1] not in (b" ", b"\t"):
            is_subject = line[:8].lower() == b"subject:"
            line = line[8:] if is_subject else line
        if is_subject:
            subject.append(line.strip())
    return b" ".join(subject) + b"\n" + body
