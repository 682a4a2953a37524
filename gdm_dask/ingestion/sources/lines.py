"""Read files of lines, local or remote, plain or compressed: byte ranges and streams of whole lines."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, TypeAlias

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab
from gdm_dask.store.folder import COMPRESSIONS, DAMAGED, Folder, compression_of, open_file
from gdm_dask.system.resources import format_bytes
from gdm_dask.system.scratch import work_space

#: Consecutive pieces of text: a function that counts the lines of the file before the piece, and whole lines.
Pieces: TypeAlias = Iterable[tuple[Callable[[], int], bytes | np.ndarray]]
#: Parses pieces with at most so many bytes in all.
Parser: TypeAlias = Callable[[Pieces, int], Slab]

#: A line of this many bytes is never too long, however little is read at a time.
LONG_LINE = 64 << 10
#: Bytes read at a time.
_PIECE = 1 << 20


def text_parts(path: str, size: int, max_bytes: int, parse: Parser, begin: int = 0) -> list[TextPart]:
    """Cut a file of `size` bytes, behind a header of `begin` bytes, into byte ranges; a compressed one is one part."""
    if compression_of(path):
        return [TextPart(path, begin, size, max_bytes, parse)]
    ranges = byte_ranges(size - begin, max_bytes)
    return [TextPart(path, begin + start, begin + stop, max_bytes, parse) for start, stop in ranges]


@dataclass(frozen=True)
class TextPart:
    """The lines of a plain file that begin in a byte range; of a compressed one, all from unpacked byte `start` on.

    They are parsed about `run_bytes` at a time.
    """

    path: str
    start: int
    stop: int
    run_bytes: int
    parse: Parser

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.stop - (0 if compression_of(self.path) else self.start)

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab of a plain file, several of a compressed one."""
        if not compression_of(self.path):
            yield self._load
            return
        skip, number = self.start, 0
        for text in unpacked_lines(self.path, self.run_bytes):
            lines = text[skip:]
            number += text.count(b"\n", 0, skip)
            yield partial(self.parse, [(partial(int, number), lines)], len(lines))
            number += lines.count(b"\n")
            skip = 0

    def _load(self) -> Slab:
        first, last = line_range(self.path, self.start, self.stop, max(self.run_bytes, LONG_LINE))
        pieces = read_lines(self.path, first, last)
        return self.parse(((partial(count_lines, self.path, place), lines) for place, lines in pieces), last - first)


def joined(pieces: Pieces) -> tuple[Callable[[], int], bytes]:
    """Return the text of all pieces, and a function that counts the lines before it."""
    found = [(lines_before, bytes(lines)) for lines_before, lines in pieces] or [(int, b"")]
    return found[0][0], b"".join(lines for _, lines in found)


def line_range(path: str, start: int, stop: int, longest_line: int) -> tuple[int, int]:
    """Return start and end of the lines of a plain file that begin in ``[start, stop)``.

    Refuses a last line that extends more than `longest_line` bytes beyond `stop`.
    """
    with open_file(path) as file:
        first = _line_start(file, start, stop)
        if first is None or first >= stop:
            return stop, stop
        last = _line_start(file, stop, stop + longest_line)
    if last is None:
        raise BadInput(
            f"{path}, line {count_lines(path, stop)}: the line is longer than {format_bytes(longest_line)}: "
            "is this svmlight text? If so, raise --memory-limit."
        )
    return first, last


def _line_start(file: IO[bytes], at: int, most: int) -> int | None:
    """Return the place of the first line that begins at `at` or later, or the end of the file; None beyond `most`."""
    if at == 0:
        return 0
    file.seek(at - 1)  # a line begins at `at` if the byte before ends one
    place = at - 1 + len(file.readline(most - at + 2))
    return place if place <= most else None


def read_lines(path: str, place: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the lines of a plain file from `place` to `last`, in pieces small enough for the caches.

    Yields the place of each piece in the file, and its lines in work space of this thread, valid until the next piece.
    The lines of a remote file come in one piece.
    """
    buffer = work_space("text", last - place, np.uint8)  # unused pages take no memory
    filled = 0
    with open_file(path) as file:
        file.seek(place)
        most = _PIECE if isinstance(file.raw, io.FileIO) else last - place
        while place + filled < last:
            part = buffer[filled : min(filled + most, last - place)]
            count = file.readinto(part.data)
            if not count:
                raise _shorter(path)
            end = filled + (count if place + filled + count == last else part[:count].tobytes().rfind(b"\n") + 1)
            filled += count
            if end > filled - count:
                yield place, buffer[:end]
                buffer[: filled - end] = buffer[end:filled]
                place, filled = place + end, filled - end


def read_into(path: str, offset: int, out: np.ndarray) -> None:
    """Fill a contiguous array from a file."""
    target = out.reshape(-1).view(np.uint8)
    folder = Folder(path)
    if not folder.is_local:
        target[:] = np.frombuffer(folder.read_range(offset, offset + len(target)), np.uint8)
        return
    with open_file(path) as file:
        file.seek(offset)
        if file.readinto(target.data) < len(target):
            raise _shorter(path)


def _shorter(path: str) -> BadInput:
    return BadInput(f"{path}: the file changed while it was read: it is shorter now. Run the same command again.")


def count_lines(path: str, start: int) -> int:
    """Count the lines before the first one that begins at `start` or later."""
    count, last = 0, b"\n"
    with open_file(path) as file:
        while part := file.read(min(_PIECE, start - file.tell())):
            count, last = count + part.count(b"\n"), part[-1:]
    return count if last == b"\n" else count + 1


def unpacked_lines(path: str, run_bytes: int) -> Iterator[bytes]:
    """Yield whole lines of a compressed file, about `run_bytes` at a time."""
    done, number = 0, 1
    with open_file(path) as raw, COMPRESSIONS[compression_of(path) or ""](raw) as file:
        while True:
            try:
                text = file.read(run_bytes)
                rest = file.readline(2 * run_bytes) if text[-1:] not in (b"", b"\n") else b""
            except DAMAGED as error:
                raise BadInput(
                    f"{path}: the compressed data is damaged or cut off after {done:,} unpacked bytes, in line "
                    f"{number} ({error}). Fetch the file again."
                ) from error
            if not text:
                return
            done += len(text) + len(rest)
            number += text.count(b"\n")
            if len(rest) == 2 * run_bytes:
                raise BadInput(
                    f"{path}, line {number}: the line is longer than {format_bytes(len(rest))}: "
                    "is this svmlight text? If so, raise --memory-limit."
                )
            number += rest.count(b"\n")
            yield text + rest
