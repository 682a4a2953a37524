"""Supported file formats, one module each, and the choice of the format of a file.

To add a format, put a module with a subclass of `Source` into this folder. In another package, register the class as an
entry point::

    [project.entry-points."gdm_dask.sources"]
    arff = "my_package.arff:ArffFile"
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.source import IngestOptions, Source
from gdm_dask.ingestion.sources.cell_ranger import MATRIX, lists_beside
from gdm_dask.ingestion.sources.svmlight import SvmlightText
from gdm_dask.store.folder import COMPRESSIONS

#: Entry points of formats provided by other packages.
GROUP = "gdm_dask.sources"

logger = logging.getLogger(__name__)


def open_source(source: Any, y: Any, options: IngestOptions) -> Source:
    """Open files, or wrap a matrix, a Dask array or a DataFrame; return a `Source` unchanged."""
    if isinstance(source, Source):
        if y is not None:
            raise BadInput(f"{source.facts.where}: this source has its own labels: do not pass others")
        return source
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(p, (str, os.PathLike)) for p in source):
        paths = [_matrix_in(os.fspath(path)) for path in source]
        return format_of(paths[0]).open(paths, y, options)
    from gdm_dask.ingestion.objects import from_object

    return from_object(source, y)


def _matrix_in(path: str) -> str:
    """Return the matrix in a folder of Cell Ranger; any other path unchanged."""
    matrices = [os.path.join(path, MATRIX + suffix) for suffix in ("", ".gz")] if os.path.isdir(path) else []
    matrix = next(filter(os.path.isfile, matrices), None)
    if matrix is not None and lists_beside(matrix) is None:
        raise BadInput(f"{path}: the lists of cells and features (barcodes.tsv, features.tsv) are missing")
    return matrix or path


def format_of(path: str) -> type[Source]:
    """Return the format with the longest matching suffix; svmlight text, often without a suffix, if none matches.

    >>> format_of("train.npz").__name__, format_of("train.MTX.gz").__name__, format_of("a9a").__name__
    ('NpzMatrix', 'MatrixMarket', 'SvmlightText')
    """
    name = path.rstrip("/").lower()
    stem, ending = os.path.splitext(name)
    names = (name, stem) if ending in COMPRESSIONS else (name,)
    for known in (built_in_formats, installed_formats):
        found = {suffix: kind for kind in known() for suffix in kind.suffixes if any(n.endswith(suffix) for n in names)}
        if found:
            return found[max(found, key=len)]
    return SvmlightText


@cache
def built_in_formats() -> list[type[Source]]:
    """Return the formats in the modules of this folder."""
    modules = [
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
        if not found.ispkg
    ]
    return [
        item
        for module in modules
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, Source) and item.__module__ == module.__name__
    ]


def installed_formats() -> Iterator[type[Source]]:
    """Yield formats provided by other packages; warn about one that cannot be loaded."""
    for entry in entry_points(group=GROUP):
        try:
            yield entry.load()
        except Exception as error:
            logger.warning("the file format %s (%s) cannot be loaded: %s", entry.name, entry.value, error)
