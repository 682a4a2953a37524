"""The lists beside a ``matrix.mtx`` of 10x Genomics' Cell Ranger, which holds features x cells.

Names may begin with anything, as in ``GSM5687481_matrix.mtx.gz``; the lists then begin likewise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gdm_dask.errors import BadInput
from gdm_dask.store.folder import Folder, Url, compression_of, open_text, options_of

MATRIX, CELLS = "matrix.mtx", "barcodes.tsv"
#: Lists of features: genes or mixed features, genes in old versions, and peaks.
FEATURES = ("features.tsv", "genes.tsv", "peaks.bed")


@dataclass(frozen=True)
class CellLists:
    """Names of the features and cells of a matrix, and the paths of the two lists."""

    features: list[str]
    cells: list[str]
    files: list[str]


def lists_beside(path: str) -> CellLists | None:
    """Return the lists that belong to a Matrix Market file; None if it is not one of Cell Ranger's."""
    folder, slash, name = path.rpartition("/")
    compression = compression_of(name) or ""
    if not name.removesuffix(compression).endswith(MATRIX):
        return None
    begin = name.removesuffix(compression).removesuffix(MATRIX)
    options = options_of(path)
    there = Folder(Url(folder or ".", options)).names()

    def find(*names: str) -> str | None:
        wanted = (f"{begin}{one}{suffix}" for one in names for suffix in ("", ".gz"))
        return next((Url(f"{folder}{slash}{one}", options) for one in wanted if one in there), None)

    cells, features = find(CELLS), find(*FEATURES)
    if cells is None or features is None:
        return None
    return CellLists(_named(features), [row[0] for row in _rows(cells)], [features, cells])


def _named(path: str) -> list[str]:
    """Return the names of features: peaks as ``chr1:100-200``, genes by symbol and, if it is not unique, their id."""
    rows = _rows(path)
    if ".bed" in path.rpartition("/")[2]:
        if any(len(row) < 3 for row in rows):
            raise BadInput(f"{path}: each line must hold the chromosome, start and end of a peak, separated by tabs")
        return [f"{row[0]}:{row[1]}-{row[2]}" for row in rows]
    symbols = [row[min(1, len(row) - 1)] for row in rows]
    counts = Counter(symbols)
    return [
        symbol if counts[symbol] == 1 else f"{symbol} ({row[0]})" for symbol, row in zip(symbols, rows, strict=True)
    ]


def _rows(path: str) -> list[list[str]]:
    """Return the words of each line, except for comments."""
    with open_text(path) as lines:
        content = lines.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: this is not text: {error}") from error
    found = [line.rstrip("\r") for line in text.split("\n")]
    return [line.split("\t") for line in found if line and not line.startswith("#")]
