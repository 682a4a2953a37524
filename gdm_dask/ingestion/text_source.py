"""svmlight / libsvm text as a source: byte ranges of plain files, streams of compressed ones."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import fsspec
import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import Source, TextOptions
from gdm_dask.svmlight import MalformedLine, parse

COMPRESSIONS: dict[str, Callable[[IO[bytes]], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]

_READ_AHEAD = 1 << 20


def text_source(paths: list[str], options: TextOptions) -> Source:
    """One or several svmlight files as one set."""
    infos = [file_info(path) for path in paths]

    def jobs(run_bytes: int) -> list[Any]:
        found: list[Any] = []
        for path, info in zip(paths, infos, strict=True):
            if compression_of(path):
                found.append(CompressedText(path, info["size"], run_bytes, options))
            else:
                found += [TextRange(path, start, stop, options) for start, stop in byte_ranges(info["size"], run_bytes)]
        return found

    return Source(
        kind="sparse",
        jobs=jobs,
        nbytes=sum(info["size"] for info in infos),
        description={"format": "svmlight", "files": paths},
        identity={"files": infos},
        n_features=options.n_features,
    )


def file_info(path: str) -> dict[str, Any]:
    """Size and time of a file, local or remote; a clear error where it cannot be read."""
    try:
        fs, name = fsspec.core.url_to_fs(path)
        info = fs.info(name)
        if info["type"] != "file":
            raise BadInput(f"{path}: this is a folder, not a file that can be ingested")
        return {"size": int(info["size"]), "changed": str(info.get("mtime") or info.get("ETag"))}
    except (OSError, ImportError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def compression_of(path: str) -> str | None:
    """The compression suffix of a file name, or None."""
    suffix = os.path.splitext(path)[1].lower()
    return suffix if suffix in COMPRESSIONS else None


def read_lines(path: str, start: int, stop: int) -> bytes:
    """The lines of a plain file that begin in ``[start, stop)``."""
    with fsspec.open(path, "rb") as file:
        if start:
            file.seek(start - 1)  # a line begins at `start` if the byte before ends one
            start += len(file.readline()) - 1
        else:
            file.seek(0)
        if start >= stop:
            return b""
        body = file.read(stop - start)
        return body if body.endswith(b"\n") else body + file.readline()


@dataclass(frozen=True)
class TextRange:
    """The lines of a plain file that begin within a byte range."""

    path: str
    start: int
    stop: int
    options: TextOptions

    @property
    def nbytes(self) -> int:
        """Bytes of the range."""
        return self.stop - self.start

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """One slab."""

        def load() -> Slab:
            buffer = read_lines(self.path, self.start, self.stop)
            return parse_slab(buffer, self.path, partial(_count_lines, self.path, self.start), self.options)

        yield load


@dataclass(frozen=True)
class CompressedText:
    """A compressed file: read from its beginning, one slab after the other."""

    path: str
    nbytes: int
    run_bytes: int
    options: TextOptions

    def slabs(self) -> Iterator[Callable[[], Slab]]:
        """As many slabs as the unpacked text has `run_bytes`."""
        line = 0
        for buffer in unpacked_buffers(self.path, self.run_bytes):
            yield partial(parse_slab, buffer, self.path, partial(int, line), self.options)
            line += buffer.count(b"\n")


def unpacked_buffers(path: str, run_bytes: int) -> Iterator[bytes]:
    """Whole lines of a compressed file, about `run_bytes` at a time."""
    suffix = compression_of(path)
    assert suffix is not None
    done = 0
    try:
        with fsspec.open(path, "rb") as raw, COMPRESSIONS[suffix](raw) as file:
            while buffer := file.read(run_bytes):
                if not buffer.endswith(b"\n"):
                    buffer += file.readline()
                done += len(buffer)
                yield buffer
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise BadInput(
            f"{path}: the compressed data is damaged or cut off after {done:,} unpacked bytes ({error}). "
            "Fetch the file again."
        ) from error


def parse_slab(buffer: bytes, path: str, lines_before: Callable[[], int], options: TextOptions) -> Slab:
    """Parse whole lines; an error names the file and the line in it."""
    try:
        lines = parse(
            buffer,
            index_base=options.index_base,
            on_error=options.on_error,  # type: ignore[arg-type]
            n_features=options.n_features,
            unseen="error" if options.n_features is None else "drop",
        )
    except MalformedLine as error:
        number = lines_before() + error.line + 1
        raise BadInput(f"{path}, line {number}: {error.reason}: {error.text!r}") from None
    samples = samples_of(lines.indptr)
    return Slab(
        len(lines.labels), lines.labels, lines.features, samples, lines.values,
        skipped=lines.skipped, unseen=lines.unseen,
    )  # fmt: skip


def _count_lines(path: str, start: int) -> int:
    """Lines that begin before the first one that begins at `start` or later."""
    if start == 0:
        return 0
    count, position = 0, 0
    with fsspec.open(path, "rb") as file:
        while position < start:
            part = file.read(min(_READ_AHEAD, start - position))
            count += int(np.count_nonzero(np.frombuffer(part, np.uint8) == ord("\n")))
            position += len(part)
        file.seek(start - 1)
        ends_line = file.read(1) == b"\n"
    return count if ends_line else count + 1
