"""Methods and data sets, found by the names of their files."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from gdm_dask.errors import BadInput

from . import datasets, methods
from .problem import data_file, is_there
from .wide.sets import SETS, WideSet


def method_names() -> list[str]:
    """List all methods; a suite uses some of them."""
    return _names(methods)


def dataset_names() -> list[str]:
    """List all data sets that have a file."""
    return _names(datasets)


def method(name: str) -> ModuleType:
    """Import a method: `select(X, y, k)`, `NAME`, `NESTED`; see the package `methods`."""
    return _load(methods, name)


def dataset(name: str) -> ModuleType | WideSet:
    """Import a data set: `load(seed)`, `NAME`, `RANDOM`; see the package `datasets`."""
    return SETS[name] if name in SETS else _load(datasets, name)


def serves_all(name: str) -> bool:
    """Whether one run of a method serves all numbers of features."""
    return method(name).NESTED or hasattr(method(name), "path")


def missing(name: str) -> str:
    """Tell why a data set cannot be loaded; empty if its files exist."""
    try:
        for path in dataset(name).FILES:
            data_file(path, dataset(name).PAGE)
    except BadInput as error:
        return str(error)
    return ""


def is_lookalike(name: str) -> bool:
    """Whether a data set is generated in place of one whose files are not there."""
    return any(is_there(path) is None for path in getattr(dataset(name), "REAL_FILES", ()))


def _names(package: ModuleType) -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


def preloaded(name: str) -> str:
    """Name the module to import before the cells of a method run."""
    return str(getattr(method(name), "PRELOAD", method(name).__name__))


def _load(package: ModuleType, name: str) -> ModuleType:
    if name not in _names(package):
        raise BadInput(f"{name} is not in {package.__name__}; choose from {', '.join(_names(package))}")
    return import_module(f"{package.__name__}.{name}")
