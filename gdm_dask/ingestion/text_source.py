"""svmlight / libsvm text as a source: byte ranges of plain files, streams of compressed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.files import compression_of, count_lines, file_info, read_lines, unpacked_lines
from gdm_dask.ingestion.options import IngestOptions
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import Source
from gdm_dask.svmlight import MalformedLine, parse
from gdm_dask.work_space import work_space

#: What compressed text may take unpacked and sorted, per byte of the file.
_PACKED_SCRATCH = 6


def text_source(paths: list[str], options: IngestOptions) -> Source:
    """One or several svmlight files as one set."""
    infos = [file_info(path) for path in paths]

    def jobs(run_bytes: int) -> list[Any]:
        found: list[Any] = []
        for path, info in zip(paths, infos, strict=True):
            if compression_of(path):
                found.append(CompressedText(path, info["size"], run_bytes, options))
            else:
                ranges = byte_ranges(info["size"], run_bytes)
                found += [TextRange(path, start, stop, run_bytes, options) for start, stop in ranges]
        return found

    return Source(
        kind="sparse",
        jobs=jobs,
        nbytes=sum(info["size"] for info in infos),
        description={"format": "svmlight", "files": paths},
        identity={"files": infos},
        scratch_factor=_PACKED_SCRATCH if any(map(compression_of, paths)) else 1,
    )


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
        """One slab."""

        def load() -> Slab:
            lines = read_lines(self.path, self.start, self.stop, self.longest_line)
            return parse_slab(lines, self.path, partial(count_lines, self.path, self.start), self.options)

        yield load


@dataclass(frozen=True)
class CompressedText:
    """A compressed file: read from its beginning, one slab after the other."""

    path: str
    nbytes: int
    run_bytes: int
    options: IngestOptions

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """As many slabs as the unpacked text has `run_bytes`."""
        line = 0
        for buffer in unpacked_lines(self.path, self.run_bytes):
            yield partial(parse_slab, buffer, self.path, partial(int, line), self.options)
            line += buffer.count(b"\n")


def _room(name: str, length: int, dtype: np.dtype) -> np.ndarray:
    return work_space(f"parsed {name}", length, dtype)


def parse_slab(buffer: bytes | np.ndarray, path: str, lines_before: Callable[[], int], options: IngestOptions) -> Slab:
    """Parse whole lines; an error names the file and the line in it. The slab is work space of this thread."""
    try:
        lines = parse(
            buffer,
            index_base=options.index_base,
            on_error=options.on_error,  # type: ignore[arg-type]
            n_features=options.n_features,
            unseen="error" if options.n_features is None else "drop",
            room=_room,
        )
    except MalformedLine as error:
        number = lines_before() + error.line + 1
        raise BadInput(f"{path}, line {number}: {error.reason} (in: {error.text})") from None
    return Slab(
        len(lines.labels), lines.labels, lines.features, samples_of(lines.indptr), lines.values,
        skipped=lines.skipped, unseen=lines.unseen,
    )  # fmt: skip
