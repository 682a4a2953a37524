"""Tasks under seal: Dask carries bytes, which a worker opens only if its code is the driver's.

A worker with other code would fail anywhere: at a name that it lacks, in a call with other arguments, or silently, with
other bits. So the one function that opens a seal travels by value, and compares before it opens. The scheduler opens
nothing: it needs neither this package nor its version.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeAlias

import cloudpickle
import numpy as np

from gdm_dask.system.version import fingerprint

#: A pickle, and the buffers of its arrays.
Sealed: TypeAlias = list[Any]


def seal(value: Any) -> Sealed:
    """Pickle a value; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [pickled, *(np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)]


def unseal(sealed: Sealed) -> Any:
    """The value."""
    return pickle.loads(sealed[0], buffers=sealed[1:])


def sealed_task(function: Callable[..., Any], of_many: bool = False) -> Callable[..., Sealed]:
    """``function(item, *args)`` as a task of Dask, whose arguments and result are sealed.

    With `of_many`, the item is a list of values that are sealed one by one.
    """
    return partial(_ByValue(), fingerprint(), seal(function), of_many)


def refusal(error: BaseException) -> str | None:
    """Why a worker did not open a task, if that is what the error is about."""
    return str(error) if isinstance(error, ImportError) and error.name == REFUSED else None


#: Name of the "module" that a worker lacks. The error must be one of Python's: other code may not know ours.
REFUSED = "gdm_dask as on the driver"


def _run(driver: dict[str, str], function: Sealed, of_many: bool, item: Any, args: Sealed | None = None) -> Sealed:
    import importlib

    import distributed

    worker = distributed.get_worker().address
    try:
        here = importlib.import_module("gdm_dask.system.version").fingerprint()
    except (ImportError, AttributeError):
        here = {}
    differences = [
        f"{name} {here.get(name, 'unknown')} (driver: {value})"
        for name, value in driver.items()
        if here.get(name) != value
    ]
    if differences:
        text = f"worker {worker} differs from the driver: {', '.join(differences)}. Install the same on both sides."
        raise ImportError(text, name=REFUSED)
    try:
        call = unseal(function)
        value = [unseal(one) for one in item] if of_many else unseal(item)
        others = () if args is None else unseal(args)
    except ModuleNotFoundError as error:
        text = f"worker {worker} cannot open a task: {error}. Install the same modules on all workers."
        raise ImportError(text, name=REFUSED) from error
    return seal(call(value, *others))


class _ByValue:
    """`_run`, with its code."""

    __name__ = "sealed"

    def __call__(self, *args: Any) -> Sealed:
        return _run(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (_pickled_run(),)


@cache
def _pickled_run() -> bytes:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(_run))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
