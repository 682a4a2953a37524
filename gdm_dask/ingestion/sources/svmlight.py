"""svmlight / libsvm text as a source: byte ranges of plain files, streams of compressed files."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sorting import samples_of
from gdm_dask.ingestion.source import IngestOptions, Source, SourceFacts
from gdm_dask.ingestion.sources.lines import Pieces, TextPart, text_parts
from gdm_dask.ingestion.sources.svmlight_parser import MalformedLine, Room, parse
from gdm_dask.store.folder import COMPRESSIONS, compression_of, file_info
from gdm_dask.system.scratch import work_space

#: Scratch bytes for compressed text, unpacked and sorted, per byte of the file.
_PACKED_SCRATCH = 6
#: Compressed files that are refused by name: they are no text.
_PACKED = (".zst", ".zip", ".7z", ".tar", ".tgz", ".lz4")


class SvmlightText(Source):
    """One or several svmlight files as one set."""

    suffixes = (".svm", ".svmlight", ".libsvm")

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> SvmlightText:
        """Open files."""
        for path in paths:
            if path.lower().endswith(_PACKED):
                raise BadInput(f"{path}: unpack it first; files may be compressed as {', '.join(COMPRESSIONS)}")
        if y is not None:
            raise BadInput(f"{paths[0]}: svmlight text has its own labels: do not pass others{_hint(paths[0])}")
        infos = [file_info(path) for path in paths]
        facts = SourceFacts(
            "sparse", {"format": "svmlight", "files": paths}, {"files": infos}, sum(info["size"] for info in infos),
            scratch_factor=_PACKED_SCRATCH if any(map(compression_of, paths)) else 1,
        )  # fmt: skip

        def cut(max_bytes: int) -> list[TextPart]:
            files = zip(paths, infos, strict=True)
            parts = [text_parts(p, info["size"], max_bytes, partial(parse_slab, p, options)) for p, info in files]
            return list(itertools.chain.from_iterable(parts))

        return cls(facts, cut)


def _hint(path: str) -> str:
    """Return what to add to an error about a file of unknown format, any of which comes here."""
    if path.lower().removesuffix(compression_of(path) or "").endswith(SvmlightText.suffixes):
        return ""
    return ". Read as svmlight text: other formats are known by the end of their names"


def parse_slab(path: str, options: IngestOptions, pieces: Pieces, nbytes: int) -> Slab:
    """Parse consecutive pieces of text.

    The arrays of the slab are work space of this thread. A malformed line raises `BadInput` with the file and the line.
    """
    room = Room(nbytes, lambda name, length, dtype: work_space(f"parsed {name}", length, dtype))
    for lines_before, buffer in pieces:
        try:
            parse(
                buffer,
                index_base=options.index_base,
                on_error=options.on_error,  # type: ignore[arg-type]
                n_features=options.n_features,
                room=room,
            )
        except MalformedLine as error:
            number = lines_before() + error.line + 1
            hint = _hint(path) if number == 1 else ""  # the first line tells that the file has another format
            raise BadInput(f"{path}, line {number}: {error.reason} (in: {error.text}){hint}") from None
    lines = room.lines()
    samples = samples_of(lines.indptr, work_space("parsed samples", len(lines.features), np.uint32))
    return Slab(
        len(lines.labels), lines.labels, lines.features, samples, lines.values, skipped=lines.skipped,
        unseen=lines.unseen,
    )  # fmt: skip
