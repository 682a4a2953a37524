"""Sealed tasks: Dask carries bytes, and a worker unpickles them only if it runs the same code as the driver.

A worker with other code could fail anywhere: at a missing name, in a call with other arguments, or silently, with other
bits. So the function that opens a sealed task travels by value and compares versions first. The scheduler opens
nothing: it needs neither this package nor a matching version.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import cloudpickle
import numpy as np

from gdm_dask.system.version import fingerprint

#: A pickle, and the out-of-band buffers of its arrays.
Sealed: TypeAlias = list[Any]


def seal(value: Any) -> Sealed:
    """Pickle a value without copying its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [pickled, *(np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)]


def unseal(sealed: Sealed) -> Any:
    """Return the sealed value."""
    return pickle.loads(sealed[0], buffers=sealed[1:])


def sealed_call(functions: Sequence[Callable[..., Any]], args: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the arguments of a `partial` that calls ``call(n, item) = functions[n](item, *args)``, sealed.

    The item is sealed, too, or a list of values that are sealed one by one; so is the result.
    """
    return ByValue(_run), fingerprint(), seal(functions), seal(args)


def sealed_task(function: Callable[[Any], Any]) -> Callable[[Sealed], Sealed]:
    """Turn ``function(item)`` into a Dask task."""
    call, *shared = sealed_call([function])
    return partial(call, *shared, 0)


def refusal(error: BaseException) -> str | None:
    """Return why a worker refused to open a task, or None if the error has another cause."""
    return str(error) if isinstance(error, ImportError) and error.name == REFUSED else None


#: Name of the "module" reported missing. The error must be a built-in one: other code may not know our classes.
REFUSED = "gdm_dask as on the driver"


def _run(driver: dict[str, str], functions: Sealed, args: Sealed, number: int, item: Any) -> Sealed:
    import importlib

    import distributed

    running = distributed.get_worker()
    key, worker = running.get_current_task(), running.address
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
    from gdm_dask.errors import EngineError

    try:
        call, others = unseal(functions)[number], unseal(args)
        value = unseal(item) if isinstance(item[0], bytes) else [unseal(one) for one in item]
    except ModuleNotFoundError as error:
        text = f"worker {worker} cannot open a task: {error}. Install the same modules on all workers."
        raise ImportError(text, name=REFUSED) from error
    except EngineError as error:
        raise EngineError(f"worker {worker}: {error}") from error

    def is_cancelled() -> bool:
        task = running.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    interrupts = importlib.import_module("gdm_dask.system.interrupts")
    try:
        return seal(interrupts.Hold(is_cancelled).run(call, value, *others))
    except interrupts.Interrupted:
        raise distributed.Reschedule from None  # Dask forgets a task that it has cancelled


#: Held while a module is registered with cloudpickle: another thread may pickle functions of the same module.
_by_value = threading.Lock()


class ByValue:
    """A function of a module, pickled with its code: it needs no import where it arrives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.__name__ = function, "sealed"

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self._function(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (_pickled(self._function),)


@cache
def _pickled(function: Callable[..., Any]) -> bytes:
    module = sys.modules[function.__module__]
    with _by_value:
        cloudpickle.register_pickle_by_value(module)
        try:
            return bytes(cloudpickle.dumps(function))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
