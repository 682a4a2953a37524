"""The only package that uses Dask: runs the same small functions on any Dask scheduler."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dask
from dask.utils import funcname

from gdm_dask.errors import BadInput
from gdm_dask.system import interrupts
from gdm_dask.system.resources import n_cores

LOCAL_SCHEDULERS = ("synchronous", "threads", "processes")

#: Dask's configuration, namespace ``gdm_dask``; for example, ``DASK_GDM_DASK__STALL=60`` in the environment.
DEFAULTS = {
    "wait-for-workers": 30,  # seconds to wait for the scheduler to answer, and for a first worker
    "silence": 60,  # seconds without a heartbeat until a worker's tasks go to others
    "stall": 3600,  # seconds without any finished task until tasks are sent again, once
    "jobs-at-once": 1,  # jobs whose fits run concurrently; read from the workers' configuration
    "read-attempts": 3,  # attempts to read a block before giving up
    "scratch": None,  # folder for copies of the chunks of object stores; by default where temporary files go
    "scratch-limit": "20 GB",  # fits of larger stores copy nothing; 0 for no copies at all
}
dask.config.update_defaults({"gdm_dask": DEFAULTS})

#: Must be importable by name: the function, its arguments and its result travel between processes.
Task: TypeAlias = Callable[..., Any]
#: Parts that one task merges on a cluster.
FAN_IN = 16


@dataclass(frozen=True)
class Worker:
    """A process that runs tasks."""

    name: str  # its address
    threads: int  # number of tasks that it runs at the same time
    memory: int | None = None  # its own limit; None if it has none
    beat: float = field(default=0.0, compare=False)  # time of its last heartbeat
    drivers: int = 0  # number of jobs whose drivers may run in it, beside the tasks


class Engine(ABC):
    """Runs functions on items on a Dask scheduler."""

    name: str  # name of the local scheduler, or "distributed"
    description: str  # one line
    n_workers: int  # number of tasks that run at the same time
    shares_memory: bool  # whether tasks run in this process

    @abstractmethod
    def workers(self) -> list[Worker]:
        """Return the processes that currently run tasks."""

    def map(
        self,
        function: Task,
        items: Sequence[Any],
        *args: Any,
        at_once: int | None = None,
        on_done: Task | None = None,
        name: str = "",
    ) -> list[Any]:
        """Return ``[function(item, *args) for item in items]``, computed in parallel.

        At most `at_once` tasks run at the same time. `on_done` is called in this process with each result as it
        arrives. Dask's dashboard shows the tasks under `name`.
        """
        left, results = dict(enumerate(items)), list(items)

        def keep(position: int, result: Any) -> None:
            results[position] = result
            del left[position]
            interrupts.check()
            if on_done is not None:
                on_done(result)

        self._map(name or funcname(function), function, left, args, at_once or len(items), keep)
        return results

    @abstractmethod
    def _map(
        self, name: str, function: Task, left: dict[int, Any], args: tuple[Any, ...], at_once: int, keep: Task
    ) -> None:
        """Call `keep` with the position and the result of each item that is `left`; it removes the item."""

    def reduce(self, function: Task, merge: Task, items: Sequence[Any], *args: Any, name: str = "") -> Any:
        """Return ``merge([function(item, *args) for item in items], *args)``; the order of parts must not matter."""
        return merge(self.map(function, items, *args, name=name), *args)

    def leave_out(self, worker: Worker, why: str) -> None:
        """Give no more tasks to a worker."""
        raise NotImplementedError

    @abstractmethod
    def close(self, wait: bool = True) -> None:
        """Close everything that was started for this engine."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.close(wait=kind is None)


def open_engine(scheduler: Any = "threads", n_workers: int | None = None) -> Engine:
    """Open an engine for a scheduler.

    Parameters
    ----------
    scheduler : str or distributed.Client
        - ``"synchronous"``, ``"threads"`` or ``"processes"``;
        - ``"local"``, a distributed cluster on this machine;
        - the address of a running scheduler (``tcp://...``, ``tls://...``) or its scheduler file (``.json``);
        - a Client.
    n_workers : int, optional
        Workers of a local scheduler; one per core by default.
    """
    if n_workers is not None and n_workers < 1:
        raise BadInput(f"`n_workers` must be at least 1, got {n_workers}")
    n_workers = n_workers or n_cores()
    if isinstance(scheduler, str) and scheduler in LOCAL_SCHEDULERS:
        from gdm_dask.engine.local import LocalEngine

        return LocalEngine(scheduler, n_workers)
    from gdm_dask.engine.connect import connect

    return connect(scheduler, n_workers)


def active_client() -> Any:
    """Return the Client that is open in this process; None if there is none, or in a task of a worker.

    A task that waits for other tasks occupies the thread that they need: with one thread, they wait forever.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    with suppress(ValueError):
        distributed.get_worker()
        return None
    with suppress(ValueError):
        return distributed.default_client()
    return None
