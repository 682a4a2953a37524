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
    """All methods; a suite has some of them."""
    return _names(methods)


def dataset_names() -> list[str]:
    """All data sets that have a file."""
    return _names(datasets)


def method(name: str) -> ModuleType:
    """A method: `select(X, y, k)`, `NAME`, and `NESTED`, see the package `methods`."""
    return _load(methods, name)


def dataset(name: str) -> ModuleType | WideSet:
    """A data set: `load(seed)`, `NAME`, and `RANDOM`, see the package `datasets`."""
    return SETS[name] if name in SETS else _load(datasets, name)


def serves_all(name: str) -> bool:
    """Whether one run of a method serves all numbers of features."""
    return method(name).NESTED or hasattr(method(name), "path")


def missing(name: str) -> str:
    """Why a data set cannot be loaded; empty where its files are there."""
    try:
        for path in dataset(name).FILES:
            data_file(path, dataset(name).PAGE)
    except BadInput as error:
        return str(error)
    return ""


def is_twin(name: str) -> bool:
    """Whether a data set is generated in place of one whose files are not there."""
    return any(is_there(path) is None for path in getattr(dataset(name), "REAL_FILES", ()))


def _names(package: ModuleType) -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


def preloaded(name: str) -> str:
    """The module to import before the cells of a method are run."""
    return str(getattr(method(name), "PRELOAD", method(name).__name__))


def _load(package: ModuleType, name: str) -> ModuleType:
    if name not in _names(package):
        raise BadInput(f"there is no {name} in {package.__name__}; there are: {', '.join(_names(package))}")
    return import_module(f"{package.__name__}.{name}")
