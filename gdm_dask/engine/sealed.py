"""Sealed tasks: Dask carries bytes, and a worker unpickles them only if it runs the same code as the driver.

A worker with other code could fail anywhere: at a missing name, in a call with other arguments, or silently, with other
bits. So the function that opens a sealed task travels by value and compares versions first. The scheduler opens
nothing: it needs neither this package nor a matching version.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import cloudpickle
import distributed
import numpy as np

from gdm_dask.errors import EngineError
from gdm_dask.system import interrupts
from gdm_dask.system.version import fingerprint

#: A pickle, and the out-of-band buffers of its arrays.
Sealed: TypeAlias = list[Any]
#: Name of the "module" reported missing. The error must be a built-in one: other code may not know our classes.
REFUSED = "gdm_dask as on the driver"


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
    return _Opener(), fingerprint(), seal(functions), seal(args)


def sealed_task(function: Callable[[Any], Any]) -> Callable[[Sealed], Sealed]:
    """Turn ``function(item)`` into a Dask task."""
    call, *shared = sealed_call([function])
    return partial(call, *shared, 0)


def refusal(error: BaseException) -> str | None:
    """Return why a worker refused to open a task, or None if the error has another cause."""
    return str(error) if isinstance(error, ImportError) and error.name == REFUSED else None


def _run(functions: Sealed, args: Sealed, number: int, item: Any) -> Sealed:
    """Open a task and run it, on a worker with the driver's code."""
    worker = distributed.get_worker()
    key = worker.get_current_task()
    try:
        call, others = unseal(functions)[number], unseal(args)
        value = unseal(item) if isinstance(item[0], bytes) else [unseal(one) for one in item]
    except ModuleNotFoundError as error:
        text = f"worker {worker.address} cannot open a task: {error}. Install the same modules on all workers."
        raise ImportError(text, name=REFUSED) from error
    except EngineError as error:
        raise EngineError(f"worker {worker.address}: {error}") from error

    def is_cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    try:
        return seal(interrupts.Hold(is_cancelled).run(call, value, *others))
    except interrupts.Interrupted:
        raise distributed.Reschedule from None  # Dask forgets a task that it has cancelled


def _opener() -> Callable[..., Sealed]:
    """Return the function that compares versions on a worker. Pickles of a local function hold its code."""

    def open_task(driver: dict[str, str], *sealed: Any) -> Sealed:
        import importlib

        import distributed

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
            where = f"worker {distributed.get_worker().address} differs from the driver"
            raise ImportError(f"{where}: {', '.join(differences)}. Install the same on both sides.", name=REFUSED)
        found: Sealed = importlib.import_module("gdm_dask.engine.sealed")._run(*sealed)
        return found

    return open_task


class _Opener:
    """Is pickled as this function: it needs no import where it arrives."""

    __name__, pickled = "sealed", cloudpickle.dumps(_opener())

    def __call__(self, *args: Any) -> Sealed:
        """Call the function."""
        return _opener()(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.pickled,)
