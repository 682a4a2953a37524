"""The code that the result of a stage depends on: the modules where it begins, and all that they import in turn."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import gdm_dask

_PACKAGE = Path(gdm_dask.__file__).parent
#: Where the code of a stage begins.
_ENTRIES = {
    "ingest": ("gdm_dask.pipeline.readers", "gdm_dask.ingestion"),
    "fit": ("gdm_dask.run_directory", "gdm_dask.estimator", "gdm_dask.tuning"),
    "evaluate": ("gdm_dask.pipeline.prediction",),
    "report": ("gdm_dask.report", "gdm_dask.estimator"),
}
#: How a machine is shown: of no use to the stages before the report.
_SHOWN = ("gdm_dask.report", "gdm_dask.notebook")


@lru_cache
def code_version(stage: str) -> str:
    """The version of the package, and a checksum of the code behind a stage."""
    digest = hashlib.sha256()
    for file in code_behind(stage):
        digest.update(file.read_bytes())
    return f"{gdm_dask.__version__} {digest.hexdigest()[:16]}"


def code_behind(stage: str) -> list[Path]:
    """Files of the package that the result of a stage may depend on."""
    found = {"gdm_dask.pipeline.stages": _PACKAGE / "pipeline" / "stages.py"}  # calls it, but imports all stages
    left = list(_ENTRIES.get(stage, ()))
    while left:
        name = left.pop()
        file = _file_of(name)
        if file is not None and name not in found and (stage == "report" or name not in _SHOWN):
            found[name] = file
            left += _imported(file)
    return sorted(found.values())


def _file_of(name: str) -> Path | None:
    """File of a module of the package; None for all other names."""
    first, *rest = name.split(".")
    if first != _PACKAGE.name or not rest:
        return None
    place = _PACKAGE.joinpath(*rest)
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in candidates if file.exists()), None)


def _imported(file: Path) -> Iterator[str]:
    """Names that a file imports, anywhere in it; some are those of modules."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
