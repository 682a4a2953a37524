"""Matrix Market files as sources (samples x features), parsed by scipy one byte range at a time.

Files of Cell Ranger hold features x samples, and have their names in lists beside them.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, sparse_slab
from gdm_dask.ingestion.source import IngestOptions, Source, SourceFacts, as_labels, only_file
from gdm_dask.ingestion.sources.cell_ranger import lists_beside
from gdm_dask.ingestion.sources.lines import Pieces, joined, text_parts
from gdm_dask.store.folder import compression_of, file_info, open_text

_BLANK_LINE = re.compile(rb"(?:^|\n)[ \t\r]*\n")
#: Bytes of a line that are read to find the header.
_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class _Header:
    is_pattern: bool
    sizes: tuple[int, int, int]  # rows, columns, entries
    nbytes: int


class MatrixMarket(Source):
    """A Matrix Market coordinate file (``.mtx``, ``.mtx.gz``, ...): samples x features, or Cell Ranger's transpose."""

    suffixes = (".mtx",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> MatrixMarket:
        """Open a file."""
        path = only_file(paths)
        info = file_info(path)
        header = _read_header(path)
        lists = lists_beside(path)
        (n_samples, n_features, n_entries), names, ids, infos = header.sizes, None, None, [info]
        if lists is not None:
            n_samples, n_features, names, ids = n_features, n_samples, lists.features, lists.cells
            infos += map(file_info, lists.files)
            for file, found, size in zip(lists.files, (names, ids), (n_features, n_samples), strict=True):
                if len(found) != size:
                    raise BadInput(f"{file}: {len(found)} lines, but {path} has {size}: do they belong together?")
        facts = SourceFacts(
            "sparse", {"format": "matrix market", "files": [path]}, {"files": infos}, info["size"],
            n_samples=n_samples, n_features=n_features, n_entries=n_entries, feature_names=names, sample_ids=ids,
            labels=as_labels(y, n_samples, path, ids), scratch_factor=6 if compression_of(path) else 1,
        )  # fmt: skip
        parse = partial(_parse, path, header, lists is not None)
        return cls(facts, lambda max_bytes: text_parts(path, info["size"], max_bytes, parse, header.nbytes))


def _read_header(path: str) -> _Header:
    with open_text(path) as lines:
        banner = lines.readline(_LINE_BYTES).decode("latin-1").lower().split()
        if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
            raise BadInput(f"{path}, line 1: not a Matrix Market file")
        _, _, layout, field, symmetry = banner
        if layout != "coordinate" or field not in ("real", "integer", "pattern") or symmetry != "general":
            raise BadInput(
                f"{path}, line 1: must be 'coordinate real|integer|pattern general', got "
                f"{' '.join(banner[2:])!r}. Convert it with scipy.io.mmwrite(..., symmetry='general'), or save a dense "
                "matrix as .npy."
            )
        line, number = lines.readline(_LINE_BYTES), 2
        while line.startswith(b"%") or (line and not line.strip()):
            line, number = lines.readline(_LINE_BYTES), number + 1
        try:
            n_rows, n_columns, n_entries = (int(word) for word in line.split())
        except ValueError:
            raise BadInput(f"{path}, line {number}: the sizes (rows columns entries) are missing") from None
        return _Header(field == "pattern", (n_rows, n_columns, n_entries), lines.tell())


def _parse(path: str, header: _Header, is_transposed: bool, pieces: Pieces, nbytes: int) -> Slab:
    from scipy.io import mmread

    lines_before, text = joined(pieces)
    if text and not text.endswith(b"\n"):
        text += b"\n"
    if b"\0" in text:  # scipy's parser takes it for the end of the text and reads beyond the buffer
        number = text.count(b"\n", 0, text.index(b"\0"))
        raise BadInput(f"{path}, line {lines_before() + number + 1}: there is a zero byte")
    count = text.count(b"\n")
    if _BLANK_LINE.search(text):
        count = sum(1 for line in text.splitlines() if line.strip())
    n_rows, n_columns, _ = header.sizes
    # Parse as real numbers: as integers, scipy would truncate 2.5 to 2.
    field = "pattern" if header.is_pattern else "real"
    begin = f"%%MatrixMarket matrix coordinate {field} general\n{n_rows} {n_columns} {count}\n".encode()
    try:
        entries = mmread(io.BytesIO(begin + text), spmatrix=False)
    except (ValueError, OverflowError) as error:
        found = re.match(r"Line (\d+): (.*)", str(error))
        if found is None:
            raise BadInput(f"{path}: an entry cannot be read: {error}") from None
        number = int(found[1]) - 3  # our two lines before the text
        line = text.split(b"\n", number + 1)[number][:60].decode("latin-1")
        raise BadInput(f"{path}, line {lines_before() + number + 1}: {found[2].rstrip('.')} (in: {line!r})") from None
    samples, features = entries.coords[::-1] if is_transposed else entries.coords
    return sparse_slab(features, samples, np.asarray(entries.data, np.float64), entries=len(entries.data))
