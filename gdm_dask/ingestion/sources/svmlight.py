"""svmlight / libsvm text as a source: byte ranges of plain files, streams of compressed files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import IngestOptions, Source, SourceFacts
from gdm_dask.ingestion.sources.lines import (
    LONG_LINE,
    compression_of,
    count_lines,
    line_range,
    read_lines,
    unpacked_lines,
)
from gdm_dask.ingestion.sources.svmlight_parser import MalformedLine, parse
from gdm_dask.store.folder import file_info
from gdm_dask.system.scratch import work_space

#: Scratch bytes for compressed text, unpacked and sorted, per byte of the file.
_PACKED_SCRATCH = 6


@dataclass(frozen=True)
class SvmlightText(Source):
    """One or several svmlight files as one set."""

    suffixes = (".svm", ".svmlight", ".libsvm")
    facts: SourceFacts
    paths: list[str]
    options: IngestOptions

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> SvmlightText:
        """Open files."""
        if y is not None:
            raise BadInput(f"{paths[0]}: svmlight text has its own labels: do not pass others")
        infos = [file_info(path) for path in paths]
        facts = SourceFacts(
            "sparse", {"format": "svmlight", "files": paths}, {"files": infos}, sum(info["size"] for info in infos),
            scratch_factor=_PACKED_SCRATCH if any(map(compression_of, paths)) else 1,
        )  # fmt: skip
        return cls(facts, paths, options)

    def parts(self, max_bytes: int) -> list[TextRange | CompressedText]:
        """Return byte ranges of plain files; a compressed file is one part."""
        found: list[TextRange | CompressedText] = []
        longest = max(max_bytes, LONG_LINE)
        for path, info in zip(self.paths, self.facts.identity["files"], strict=True):
            if compression_of(path):
                found.append(CompressedText(path, info["size"], max_bytes, self.options))
            else:
                ranges = byte_ranges(info["size"], max_bytes)
                found += [TextRange(path, start, stop, longest, self.options) for start, stop in ranges]
        return found


@dataclass(frozen=True)
class TextRange:
    """The lines of a plain file that begin within a byte range."""

    path: str
    start: int
    stop: int
    longest_line: int
    options: IngestOptions

    @property
    def nbytes(self) -> int:
        """Bytes of the range."""
        return self.stop - self.start

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab."""

        def load() -> Slab:
            first, last = line_range(self.path, self.start, self.stop, self.longest_line)
            pieces = read_lines(self.path, first, last)
            numbered = ((partial(count_lines, self.path, place), lines) for place, lines in pieces)
            return parse_slab(numbered, last - first, self.path, self.options)

        yield load


@dataclass(frozen=True)
class CompressedText:
    """A compressed file, read from its beginning, one slab after the other."""

    path: str
    nbytes: int
    run_bytes: int
    options: IngestOptions

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """Yield one slab per `run_bytes` of unpacked text."""
        line = 0
        for buffer in unpacked_lines(self.path, self.run_bytes):
            yield partial(parse_slab, [(partial(int, line), buffer)], len(buffer), self.path, self.options)
            line += buffer.count(b"\n")


def parse_slab(
    pieces: Iterable[tuple[Callable[[], int], bytes | np.ndarray]], nbytes: int, path: str, options: IngestOptions
) -> Slab:
    """Parse consecutive pieces of text.

    Parameters
    ----------
    pieces : iterable of pairs
        A function that counts the lines of the file before the piece, and whole lines.
    nbytes : int
        Upper bound on the bytes of all pieces.

    Returns
    -------
    Slab
        Its arrays are work space of this thread.

    Raises
    ------
    BadInput
        If a line is malformed; names the file and the line.
    """
    rows, entries = nbytes // len("1\n") + 1, nbytes // len(" 1:1") + 1
    lengths = {"labels": rows, "indptr": rows + 1, "features": entries, "values": entries}
    types = {"labels": np.float64, "indptr": np.int64, "features": np.uint32, "values": np.float64}
    arrays = {name: work_space(f"parsed {name}", lengths[name], types[name]) for name in lengths}
    ends = dict.fromkeys(arrays, 0)
    arrays["indptr"][0] = skipped = unseen = 0

    def room(name: str, length: int, dtype: Any) -> np.ndarray:
        assert ends[name] + length <= lengths[name]
        return arrays[name][ends[name] : ends[name] + length]

    for lines_before, buffer in pieces:
        try:
            lines = parse(
                buffer,
                index_base=options.index_base,
                on_error=options.on_error,  # type: ignore[arg-type]
                n_features=options.n_features,
                unseen="error" if options.n_features is None else "drop",
                room=room,
            )
        except MalformedLine as error:
            number = lines_before() + error.line + 1
            raise BadInput(f"{path}, line {number}: {error.reason} (in: {error.text})") from None
        lines.indptr[:] += ends["features"]
        for name in ends:
            ends[name] += len(lines.labels if name in ("labels", "indptr") else lines.features)
        skipped, unseen = skipped + lines.skipped, unseen + lines.unseen
    labels, features, values = (arrays[name][: ends[name]] for name in ("labels", "features", "values"))
    indptr = arrays["indptr"][: len(labels) + 1]
    samples = samples_of(indptr, lambda length: work_space("parsed samples", length, np.uint32))
    return Slab(len(labels), labels, features, samples, values, skipped=skipped, unseen=unseen)
