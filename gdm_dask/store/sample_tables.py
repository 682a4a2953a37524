"""Tables of text with a line per sample: its targets, its weight or its covariates, found by the id of the sample."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.store.folder import Url, compression_of, open_text, options_of
from gdm_dask.system.resources import BAD_ARRAYS

#: Words of a text that stand for a value that is not known.
MISSING = ("", "NA", "N/A", "<NA>", "NaN", "nan", ".")
#: Some columns of a table: ``cells.csv:cell_type``, ``people.cov:age,sex``.
_COLUMNS = re.compile(r"(.+\.\w+):([^:/]+)")
#: Names of PLINK's columns of ids, of the family and of the person.
_FAMILY, _PERSON = "FID", "IID"
#: What 10x Genomics adds to a barcode: the number of the sample's well.
_SUFFIX = re.compile(r"-\d+$")


def split_columns(path: str) -> tuple[str, str | None]:
    """Return a path without the names of columns, and these.

    >>> split_columns("cells.csv:cell_type"), split_columns("cells.csv")
    (('cells.csv', 'cell_type'), ('cells.csv', None))
    """
    found = _COLUMNS.fullmatch(path)
    return (Url(found[1], options_of(path)), found[2]) if found else (path, None)


@dataclass(frozen=True)
class Column:
    """Values of the samples that have one; `place` tells where the value of another sample, a number, is missing."""

    values: np.ndarray
    missing: np.ndarray  # (n_samples,) bool
    place: Callable[[int], str]

    def refuse(self) -> np.ndarray:
        """Return the values of all samples; raise `BadInput` if one is missing."""
        if self.missing.any():
            others = int(self.missing.sum()) - 1
            raise BadInput(
                f"{self.place(int(self.missing.argmax()))}{f' and {others:,} others' if others else ''}: fill it in, "
                "or drop such samples at ingest with --on-missing drop (on_missing='drop')"
            )
        return self.values


def samples_with(lacks: np.ndarray) -> np.ndarray:
    """Return the samples with a true entry in a mask of shape (n_samples,) or (n_samples, K)."""
    return np.array(lacks.any(axis=tuple(range(1, lacks.ndim))), bool)


def numbered(what: str) -> Callable[[int], str]:
    """Return the place of a missing value, for samples without ids."""
    return lambda sample: f"{what} for sample {sample} (counted from 0)"


@dataclass(frozen=True)
class Covariate:
    """A column beside the matrix: the features made from it, and the sorted values of a column of text."""

    name: str
    features: list[int]
    levels: list[str] | None = None

    def within(self, n_features: int) -> Covariate:
        """Return the covariate; raise ValueError if a store does not have its features."""
        if not self.features or not all(type(one) is int and 0 <= one < n_features for one in self.features):
            raise ValueError(f"the features of covariate {self.name!r} do not exist")
        return self


class SampleTable:
    """The words of a table, one row per sample in the order of the samples.

    A ``.csv`` has columns separated by commas, semicolons or tabs, a ``.tsv`` by tabs. Any other file has one value per
    line, unless it `has_names` or its first line begins with ``FID`` or ``IID``: it then has columns separated by white
    space. All may be compressed.

    If the table has a column IID, or its first column holds the `ids` of samples, its lines may be in any order, and
    lines of other samples are ignored. The words are those of the `columns`, by default of all but the ids. The first
    line names the columns if some are wanted by name, if the table `has_names`, or if there is one more line than
    samples. `what` names the content in messages.
    """

    def __init__(
        self, path: str, n_samples: int, ids: Sequence[str] | None = None, columns: Sequence[str] | None = None,
        what: str = "labels", has_names: bool = False,
    ) -> None:  # fmt: skip
        self.path, self._ids = path, ids
        has_names = has_names or columns is not None
        rows, lines = read_rows(path, what, has_names)
        head = rows[0] if rows else []
        for row, line in zip(rows, lines, strict=True):
            if len(row) != len(head):
                raise BadInput(
                    f"{path}, line {line}: lines have {len(head)} and {len(row)} values. Give every sample the same "
                    "number of values."
                )
        if has_names and any(map(_is_number, head)):
            raise BadInput(f"{path}, line 1: must name the columns, got {' '.join(head[:4])} ...")
        for name in columns or ():
            if name not in head:
                raise BadInput(f"{path}: there is no column {name!r}; the columns are {', '.join(head)}")
        found = _rows_of_samples(rows, ids, path)
        chosen = range(len(head)) if found is None else [k for k in range(len(head)) if k not in found.columns]
        if found is None:
            self._rows: np.ndarray = np.arange(len(rows))
            if has_names or len(rows) == n_samples + 1:
                self._rows = self._rows[1:]
        else:
            self._rows = found.rows
        if columns is not None:
            chosen = [head.index(name) for name in columns]
        self.names = [head[place] for place in chosen]
        blank = [""] * len(head)
        words = [[(rows[row] if row >= 0 else blank)[place] for place in chosen] for row in self._rows]
        #: (n_samples, columns)
        self.words = np.array(words, str).reshape(len(words), len(chosen))
        self._lines = lines

    def place(self, sample: int, column: str = "value") -> str:
        """Tell where a value of a sample is missing."""
        name = f"sample {sample} (counted from 0)" if self._ids is None else f"sample {self._ids[sample]!r}"
        if self._rows[sample] < 0:
            return f"{self.path}: there is no line for {name}"
        return f"{self.path}, line {self._lines[self._rows[sample]]}: there is no {column} for {name}"


def read_rows(path: str, what: str, has_columns: bool = False) -> tuple[list[list[str]], list[int]]:
    """Return the words of each line that is not empty, and its number; see `SampleTable` for the separators."""
    with readable(path, what), open_text(path) as file:
        text = file.read().decode("utf-8-sig")
    first = text.lstrip().partition("\n")[0]
    suffix = path.lower().removesuffix(compression_of(path) or "")[-4:]
    rows, lines = [], []
    with readable(path, what):
        for line, words in _words(text, first, suffix, has_columns):
            if any(words):
                rows.append([word.strip() for word in words])
                lines.append(line)
    return rows, lines


def separator_of(line: str) -> str:
    """Return the separator that occurs most often in the first line of a table, outside of quoted names.

    >>> separator_of('name;"height, in m";age')
    ';'
    """
    return max(",;\t", key=re.sub('"[^"]*"', "", line).count)


def _words(text: str, first: str, suffix: str, has_columns: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line."""
    if suffix in (".csv", ".tsv"):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if suffix == ".tsv" else separator_of(first))
        yield from ((reader.line_num, words) for words in reader)
        return
    has_columns = has_columns or _is_id(first.partition("\t")[0].partition(" ")[0])
    for number, line in enumerate(text.splitlines(), 1):
        yield number, line.split() if has_columns else [line]


def _is_number(word: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", word.lower()) is not None


def _is_id(name: str) -> bool:
    return name.lstrip("#").upper() in (_FAMILY, _PERSON)


@dataclass(frozen=True)
class _Found:
    rows: np.ndarray  # of each sample; -1 if there is none
    columns: list[int]  # that hold ids


def _rows_of_samples(rows: list[list[str]], ids: Sequence[str] | None, path: str) -> _Found | None:
    """Return the row of each sample; None if the table holds no ids, and the order of its lines counts."""
    if not rows or ids is None or len(rows[0]) < 2:
        return None
    named = {name.lstrip("#").upper(): place for place, name in enumerate(rows[0]) if _is_id(name)}
    place = named.get(_PERSON, 0)
    keys = [row[place] for row in rows]
    ways = [(keys, list(ids))]
    if len(named) == 2:
        ways.append(([f"{row[named[_FAMILY]]}_{row[place]}" for row in rows], list(ids)))
    short = [_SUFFIX.sub("", name) for name in ids]
    ways.append(([_SUFFIX.sub("", key) for key in keys], short))
    for keys, samples in ways:
        known = set(samples)
        row_of = {key: number for number, key in enumerate(keys)}
        differ = len(row_of) == len(rows)
        found = np.array([row_of.get(sample, -1) for sample in samples], np.int64)
        n_found = int((found >= 0).sum())
        # Are these ids, and not numbers of another meaning that happen to be equal?
        if 2 * n_found >= (min(len(ids), len(rows)) if differ else len(ids)) or (named and n_found):
            if len(known) < len(set(ids)):
                raise BadInput(
                    f"{path}: the ids lack the number of the well, such as -1, but samples of several wells then have "
                    "the same id: add it"
                )
            twice = [key for key, count in Counter(keys).items() if count > 1 and key in known]
            if twice:
                raise BadInput(f"{path}: sample {twice[0]!r} has more than one line. Give each sample one line.")
            return _Found(found, sorted(named.values()) or [0])
    if named or _look_like_ids(keys[1:]):
        raise BadInput(
            f"{path}: the ids are those of other samples: they begin with {rows[-1][place]!r}, the samples with "
            f"{ids[0]!r}"
        )
    return None


def _look_like_ids(words: list[str]) -> bool:
    """Return whether all words differ, and none is a number."""
    return len(set(words)) == len(words) > 2 and all(re.search(r"[A-Za-z]", word) for word in words)


@contextmanager
def readable(path: str, what: str) -> Iterator[None]:
    """Name the file whose content cannot be read."""
    try:
        yield
    except BadInput:
        raise
    except (ValueError, csv.Error, *BAD_ARRAYS) as error:
        raise BadInput(f"{path}: {what} cannot be read: {error}") from error
