"""File formats that can be ingested, one module each, and how the format of a file is found.

To add a format, put a module with a subclass of `Source` into this folder; or, in another package, name the class in an
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

from gdm_dask.ingestion.source import IngestOptions, Source
from gdm_dask.ingestion.sources.lines import COMPRESSIONS
from gdm_dask.ingestion.sources.svmlight import SvmlightText

#: Entry points of formats that other packages bring.
GROUP = "gdm_dask.sources"

logger = logging.getLogger(__name__)


def open_source(source: Any, y: Any, options: IngestOptions) -> Source:
    """Open files, or wrap a matrix, a Dask array or a DataFrame; return a `Source` unchanged."""
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(p, (str, os.PathLike)) for p in source):
        paths = [os.fspath(path) for path in source]
        return format_of(paths[0]).open(paths, y, options)
    from gdm_dask.ingestion.objects import from_object

    return from_object(source, y)


def format_of(path: str) -> type[Source]:
    """The format with the longest suffix that fits; svmlight text, whose files often have none, if there is no other.

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
    """Formats in the modules of this folder."""
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
    """Formats that other packages bring; one that cannot be loaded is named and left out."""
    for entry in entry_points(group=GROUP):
        try:
            yield entry.load()
        except Exception as error:
            logger.warning("the file format %s (%s) cannot be loaded: %s", entry.name, entry.value, error)
