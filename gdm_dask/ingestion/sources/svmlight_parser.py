"""Parse svmlight / libsvm text: bytes in, arrays out.

A compiled kernel makes one pass over the bytes, without a Python object per token and without the GIL. Every value is
bit-equal to ``float(text)``; `gdm_dask.ingestion.sources.decimal_text` explains how.
"""

# numba types the kernels:
# mypy: allow-untyped-defs
from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.sources.decimal_text import (
    GIVEN_UP,
    INDEX_LIMIT,
    LONGEST_SHORT,
    PLACE,
    index_at,
    number,
    short_number,
)
from gdm_dask.ingestion.sources.words import WORD, U, leading_digits, leading_token, word_at
from gdm_dask.system.jit import inlined, inner, kernel

_0, _1 = U(0), U(1)
_NEWLINE, _SPACE, _HASH, _COLON, _Q, _I, _D = (np.uint8(ord(c)) for c in "\n #:qid")
_LONGEST_USUAL = _1 + WORD + LONGEST_SHORT  # bytes inspected for a usual entry

_TOKEN, _SOME_OF_LINE = re.compile(rb"[^\s#]*"), re.compile(rb"[^\n]{0,256}")

_BLANK, _DONE, _BAD_LABEL, _BAD_QID, _BAD_INDEX, _NOT_INCREASING, _TOO_LARGE, _BAD_VALUE, _GENERAL = range(9)
_ROWS, _NONZEROS, _LINES, _SKIPPED, _DROPPED, _LEFT_TO_PYTHON = range(6)  # the slots of `counts`


@dataclass(frozen=True)
class ParsedLines:
    """Samples of svmlight text, as compressed sparse rows; explicit zeros are dropped."""

    labels: np.ndarray  # (s,) float64, as written
    indptr: np.ndarray  # (s + 1,) int64: sample i owns the entries indptr[i]:indptr[i + 1]
    features: np.ndarray  # (k,) uint32, zero-based, increasing within a sample
    values: np.ndarray  # (k,) float64, none of them zero
    n_lines: int  # lines in the text, including blank and comment lines
    skipped: int  # malformed lines that were skipped (on_error="skip")
    unseen: int  # nonzeros dropped because their feature is not below n_features


class Room:
    """Room for the samples of consecutive pieces of text, of `nbytes` in all.

    `make` takes the name, length and type of an array and returns a writable array: callers can reuse memory.
    """

    def __init__(self, nbytes: int, make: Callable[[str, int, Any], np.ndarray] | None = None) -> None:
        make = make or (lambda _, length, dtype: np.empty(length, dtype))
        # Enough for the shortest possible lines and entries; pages that are never written take no memory.
        most_lines, most_entries = nbytes // len("1\n") + 1, nbytes // len(" 1:1") + 1
        self.labels, self.indptr = make("labels", most_lines, np.float64), make("indptr", most_lines + 1, np.int64)
        self.features, self.values = make("features", most_entries, np.uint32), make("values", most_entries, np.float64)
        self.indptr[0] = 0
        self.counts = np.zeros(6, np.int64)

    def lines(self, before: Any = (0, 0)) -> ParsedLines:
        """Return the lines parsed so far; of their samples and entries, those behind the numbers `before`."""
        (first, start), (rows, k, *counts) = before[:2], self.counts.tolist()
        arrays = self.labels[first:rows], self.indptr[first : rows + 1], self.features[start:k], self.values[start:k]
        return ParsedLines(*arrays, *counts[:3])


class MalformedLine(BadInput):
    """A line that is not svmlight text: its zero-based `line` in the buffer, the `reason`, and its `text`."""

    def __init__(self, line: int, reason: str, text: str) -> None:
        super().__init__(line, reason, text)  # unformatted: the error is pickled between processes
        self.line, self.reason, self.text = line, reason, text

    def __str__(self) -> str:
        """Format the error with a line number that counts from 1, as in editors."""
        return f"line {self.line + 1}: {self.reason} (in: {self.text})"


@inner
def _skip_blanks(text, p):
    """Return the place of the first byte that is not white space within the line."""
    while text[p] == np.uint8(32) or (np.uint8(9) <= text[p] <= np.uint8(13) and text[p] != _NEWLINE):
        p += _1
    return p


@inner
def _inside(c):
    """Return whether byte c continues a token."""
    return (c > np.uint8(32) and c != _HASH) or c < np.uint8(9) or np.uint8(13) < c < np.uint8(32)


@inlined
def _usual_entry(text, p):
    """Parse a usual entry after a blank at p; return index, value and the place after it, or p itself.

    A usual entry is an index of up to 7 digits and a short number, followed by a blank or the end of the line. Its end
    is found independently of its numbers, so that the processor can start the next entry before they are computed.
    """
    word = word_at(text, p + _1)
    length = leading_token(word)
    if length == WORD:
        length += leading_token(word_at(text, p + _1 + WORD))
    end = p + _1 + length
    if text[end] != _SPACE and text[end] != _NEWLINE:
        return _0, 0.0, p
    n_digits, index = leading_digits(word)
    colon = p + _1 + n_digits
    if n_digits == _0 or text[colon] != _COLON:
        return _0, 0.0, p
    value, behind = short_number(text, colon + _1)
    return index, value, (end if behind == end else p)


@inner
def _usual_entries(text, p, base, beyond, k, least, features, values):
    """Parse entries from p while they are usual, nonzero, valid and not to be dropped."""
    while text[p] == _SPACE and p + _LONGEST_USUAL <= U(text.size):
        index, value, end = _usual_entry(text, p)
        if end == p or index < least or index >= beyond or value == 0.0:
            break
        features[k] = index - base
        values[k] = value
        k += _1
        least = index + _1
        p = end
    return p, k, least


@inner
def _line(text, p, origin, base, n_features, k, features, values, general):
    """Parse one line; return (code, place, entries so far, label, dropped, left to Python, least index)."""
    label, dropped, later, least = 0.0, 0, 0, base
    p = _skip_blanks(text, p)
    if text[p] == _NEWLINE or text[p] == _HASH:
        return _BLANK, p, k, label, dropped, later, least
    start = p
    label, p = number(text, p, origin, general)
    if p == GIVEN_UP:
        return _GENERAL, start, k, label, dropped, later, least
    if p == start or _inside(text[p]):
        return _BAD_LABEL, start, k, label, dropped, later, least
    later += label != label
    p = start = _skip_blanks(text, p)
    if text[p] == _Q and text[p + _1] == _I and text[p + U(2)] == _D and text[p + U(3)] == _COLON:
        _, p = number(text, start + U(4), origin, general)
        if p == GIVEN_UP:
            return _GENERAL, start, k, label, dropped, later, least
        if p == start + U(4) or _inside(text[p]):
            return _BAD_QID, start, k, label, dropped, later, least
    beyond = min(n_features + base, INDEX_LIMIT)
    while True:
        p, k, least = _usual_entries(text, p, base, beyond, k, least, features, values)
        p = start = _skip_blanks(text, p)
        if text[p] == _NEWLINE or text[p] == _HASH:
            return _DONE, p, k, label, dropped, later, least
        index, p = index_at(text, p)
        if text[p] != _COLON or p == start:
            return _BAD_INDEX, start, k, label, dropped, later, least
        if index < least:
            return _NOT_INCREASING, start, k, label, dropped, later, least
        if index >= INDEX_LIMIT:
            return _TOO_LARGE, start, k, label, dropped, later, least
        least = index + _1
        p += _1
        behind_colon = p
        value, p = number(text, p, origin, general)
        if p == GIVEN_UP:
            return _GENERAL, start, k, label, dropped, later, least
        if p == behind_colon or _inside(text[p]):
            return _BAD_VALUE, start, k, label, dropped, later, least
        if value == 0.0:
            continue
        later += value != value
        if index - base >= n_features and value == value:
            dropped += 1
            continue
        features[k] = index - base
        values[k] = value
        k += _1


@kernel
def _lines(text, origin, base, n_features, skip, labels, indptr, features, values, counts, general):
    """Parse lines that all end with a newline, up to an error unless `skip`; return (code, place, least).

    If `general` is None, the code is _GENERAL at the first number with an exponent or many digits.
    """
    p, row, k = _0, U(counts[_ROWS]), U(counts[_NONZEROS])
    while p < U(text.size):
        code, p, after, label, dropped, later, least = _line(
            text, p, origin, base, n_features, k, features, values, general
        )
        if code == _DONE:
            labels[row] = label
            row += _1
            k = after
            indptr[row] = k
            counts[_ROWS], counts[_NONZEROS] = row, k
            counts[_DROPPED] += dropped
            counts[_LEFT_TO_PYTHON] += later
        elif code != _BLANK:
            if not skip or code == _GENERAL:
                return code, origin + p, least
            counts[_SKIPPED] += 1
        while text[p] != _NEWLINE:
            p += _1
        p += _1
        counts[_LINES] += 1
    return _DONE, origin + p, base


@kernel
def _line_start(text, place):
    """Return the place of the first byte of the line that contains `place`."""
    while place > 0 and text[place - 1] != _NEWLINE:
        place -= 1
    return place


class _Numbers:
    """Whether this process has seen numbers with an exponent or many digits: their kernel is compiled on demand."""

    general: bool | None = None


def _as_text(buffer: np.ndarray | bytes) -> np.ndarray:
    """View the bytes as a read-only array: with a single type, numba compiles each kernel once."""
    if not isinstance(buffer, np.ndarray):
        buffer = np.frombuffer(buffer, dtype=np.uint8)
    elif buffer.dtype != np.uint8 or buffer.ndim != 1:
        raise TypeError(f"expected bytes or a 1-d array of uint8, got {buffer.ndim}-d {buffer.dtype}")
    text = np.ascontiguousarray(buffer).view(np.ndarray)
    text.flags.writeable = False
    return text


def _match(pattern: re.Pattern[bytes], text: np.ndarray, place: int) -> bytes:
    """Return the match of the pattern at `place`, without copying the text."""
    return pattern.match(text.data, place).group()  # type: ignore[union-attr]  # both match an empty text, too


def _show(raw: bytes, limit: int = 40) -> str:
    """Quote bytes as printable text, shortened to about `limit` characters."""
    shown = raw[: limit + 1].decode("latin-1").encode("unicode_escape").decode()
    return f"'{shown}'" if len(shown) <= limit else f"'{shown[:limit]}...'"


def _reason(code: int, token: bytes, least: int, base: int) -> str:
    """Explain why the kernel refused `token`."""
    index, colon, value = token.partition(b":")
    number = token if code == _BAD_LABEL else value
    kind = "finite number" if re.fullmatch(rb"(?i)[+-]?(nan|inf|infinity)", number) else "number"
    if code == _BAD_LABEL:
        if b"," in token:
            return f"several labels {_show(token)}: multi-label files are not supported; give one label per line"
        if colon:
            return f"the label is missing: the line begins with {_show(token)}"
        return f"label {_show(token)} is not a {kind}"
    if code == _BAD_QID:
        return f"{_show(token)}: qid must be a number"
    if code == _BAD_VALUE:
        return f"value {_show(value)} of index {_show(index)} is {f'not a {kind}' if value else 'missing'}"
    if code == _TOO_LARGE:
        return f"index {_show(index)} is too large: the largest possible is {int(INDEX_LIMIT) - 1}"
    if code == _BAD_INDEX:
        if not colon:
            return f"{_show(token)} has no colon: expected index:value"
        fault = "negative" if re.fullmatch(rb"-[0-9]+", index) else "not an integer"
        return f"index {_show(index)} is {fault}"
    at, before = int(index.lstrip(b"0") or b"0"), least - 1
    if at < base:
        return "index 0 in a file that should count from 1: pass --index-base 0 if the file counts from 0"
    if at == before:
        return f"index {at} twice in a line"
    return f"index {at} after index {before}: indices must increase"


def _refuse(text: np.ndarray, place: int, reason: str) -> NoReturn:
    """Raise the error about the token at `place`, with the surrounding part of the line."""
    start = _line_start(text, place)
    begin = start if place - start <= 40 else place - 20
    raw = _match(_SOME_OF_LINE, text, begin).rstrip(b"\r")
    if re.search(rb"[\x00-\x08\x0e-\x1f]", raw):
        reason += "; the line holds binary data: is this svmlight text, and unpacked?"
    shown = ("" if begin == start else "...") + _show(raw, 60)
    raise MalformedLine(int(np.count_nonzero(text[:start] == _NEWLINE)), reason, shown)


def _settle(text: np.ndarray, lines: ParsedLines, n_features: int, skip: bool) -> tuple[Any, int]:
    """Convert the numbers that the kernel left to Python, in place.

    A number that turns out to be infinite, zero or of an unseen feature changes which lines or entries there are. This
    is rare, so in that case the result is a text to parse instead (bad lines made comments, those numbers made plain),
    and the number of lines made comments.
    """
    infinite: list[tuple[int, bytes]] = []
    plain: list[tuple[int, bytes]] = []
    for numbers in (lines.labels, lines.values):
        marked = np.flatnonzero(np.isnan(numbers))
        places = numbers[marked].view(np.uint64) & PLACE
        for i, place in zip(marked.tolist(), places.tolist(), strict=True):
            token = _match(_TOKEN, text, place)
            numbers[i] = number = float(token)
            if math.isinf(number):
                infinite.append((place, token))
            elif numbers is lines.values and (number == 0.0 or lines.features[i] >= n_features):
                plain.append((place, (b"1" if number else b"0").ljust(len(token))))
    if infinite and not skip:
        place, token = min(infinite)  # the first in the text, label or value
        _refuse(text, place, f"{_show(token)} is not a finite number: too large for a float64")
    if not infinite and not plain:
        return None, 0
    bad_lines = {_line_start(text, place) for place, _ in infinite}
    instead = text.copy()
    for place, token in plain:
        instead[place : place + len(token)] = np.frombuffer(token, dtype=np.uint8)
    instead[list(bad_lines)] = _HASH
    return instead, len(bad_lines)


def parse(
    buffer: np.ndarray | bytes,
    *,
    index_base: int = 1,
    on_error: Literal["raise", "skip"] = "raise",
    n_features: int | None = None,
    room: Room | None = None,
) -> ParsedLines:
    r"""Parse whole lines of svmlight text: ``label [qid:number] index:value ... [# comment]``.

    The last line may lack its newline. `index_base` is the number of the first feature in the file. A malformed line
    raises `MalformedLine` or, with ``on_error="skip"``, is counted; features beyond the `n_features` known ones are
    dropped and counted. Samples are appended to those in the `room`; all of them are returned, as views of its arrays.

    Examples
    --------
    >>> lines = parse(b"+1 1:0.5 7:2  # spam\n-1 qid:3 2:1e-3\n")
    >>> lines.labels.tolist(), lines.indptr.tolist()
    ([1.0, -1.0], [0, 2, 3])
    >>> lines.features.tolist(), lines.values.tolist()
    ([0, 6, 1], [0.5, 2.0, 0.001])
    >>> try:
    ...     parse(b"+1 1:1\n+1 9:1 7:2\n")
    ... except MalformedLine as error:
    ...     print(error)
    line 2: index 7 after index 9: indices must increase (in: '+1 9:1 7:2')
    """
    if index_base not in (0, 1) or on_error not in ("raise", "skip"):
        raise ValueError("expected index_base 0 or 1, on_error 'raise' or 'skip'")
    text = _as_text(buffer)
    limit = 2**32 if n_features is None else n_features
    skip = on_error == "skip"
    room = room or Room(text.size)
    before = room.counts.copy()
    # The kernel relies on a final newline instead of checking for the end at every byte.
    cut = _line_start(text, text.size)
    pieces = [(0, text[:cut])]
    if cut < text.size:
        pieces.append((cut, _as_text(np.append(text[cut:], _NEWLINE))))
    arrays = room.labels, room.indptr, room.features, room.values
    for general in (_Numbers.general, True):
        room.counts[:] = before
        for origin, piece in pieces:
            code, place, least = _lines(piece, U(origin), U(index_base), U(limit), skip, *arrays, room.counts, general)
            if code != _DONE:
                break
        if code != _GENERAL:
            break
        _Numbers.general = True
    later = room.counts[_LEFT_TO_PYTHON] > before[_LEFT_TO_PYTHON]
    instead, left_out = _settle(text, room.lines(before), limit, skip) if later else (None, 0)
    if code != _DONE:
        token = _match(_TOKEN, text, int(place))
        _refuse(text, int(place), _reason(code, token, int(least), index_base))
    if instead is not None:
        room.counts[:] = before
        parse(instead, index_base=index_base, on_error=on_error, n_features=n_features, room=room)
        room.counts[_SKIPPED] += left_out
    return room.lines()
