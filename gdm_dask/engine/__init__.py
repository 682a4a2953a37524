"""The one package that knows Dask: runs the same small functions on any of its schedulers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gdm_dask.engine.local import LocalBackend
from gdm_dask.errors import BadInput
from gdm_dask.resources import n_cores

if TYPE_CHECKING:
    from gdm_dask.engine.cluster import ClusterBackend

LOCAL_SCHEDULERS = ("synchronous", "threads", "processes")


class Engine:
    """Maps functions over items on a Dask scheduler, in the order of the items.

    Parameters
    ----------
    scheduler : str or distributed.Client
        - ``"synchronous"``, ``"threads"``, or ``"processes"``, which are kept until `close`;
        - ``"local"``, a distributed cluster on this machine;
        - the address of a running scheduler (``tcp://...``, ``tls://...``) or its scheduler file (``.json``);
        - a Client.
    n_workers : int, optional
        Workers of a local scheduler; one per core by default.

    Attributes
    ----------
    name : str
        The local scheduler's name, or ``"distributed"``.
    n_workers : int
        Tasks that run at the same time.
    n_processes : int
        Worker processes beside this one; 0 where tasks run in this process.
    worker_memory : int or None
        Memory that each worker process may use, where the cluster has set a limit.
    description : str
        One line about it.
    """

    def __init__(self, scheduler: Any = "threads", n_workers: int | None = None) -> None:
        if n_workers is not None and n_workers < 1:
            raise BadInput(f"a scheduler needs at least one worker, not {n_workers}")
        self._backend = _open_backend(scheduler, n_workers or n_cores())
        self.name = self._backend.name
        self.n_workers = self._backend.n_workers
        self.n_processes = self._backend.n_processes
        self.worker_memory = self._backend.worker_memory
        self.description = self._backend.description

    @property
    def shares_memory(self) -> bool:
        """Whether tasks run in this process."""
        return self.n_processes == 0

    def map(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        *common: Any,
        places: Sequence[int] | None = None,
        on_done: Callable[[Any], None] | None = None,
    ) -> list[Any]:
        """``[function(item, *common) for item in items]``, in parallel.

        Tasks with the same place run on the same worker in map after map, as long as it lives, and so find what it
        kept for them.

        Parameters
        ----------
        function : callable
            Importable by name; it, its arguments and its results travel between processes.
        items : sequence
            One task each.
        *common
            Arguments that every task gets.
        places : sequence of int, optional
            Where to run each item; wherever a worker is free by default.
        on_done : callable, optional
            Called in this process with each result as it comes.
        """
        return self._backend.map(function, items, common, places, on_done) if items else []

    def tell_all(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Have every process that keeps things call a function on `argument`, without waiting for it."""
        self._backend.tell_all(function, argument)

    def close(self) -> None:
        """End what was started for this engine."""
        self._backend.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def active_client() -> Any:
    """The Client that is open in this process, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def without_connection(scheduler: Any) -> Any:
    """A scheduler as it can be pickled: of a Client its address, all else as it is."""
    if scheduler is None or isinstance(scheduler, str):
        return scheduler
    return getattr(getattr(scheduler, "scheduler", None), "address", None)


def _open_backend(scheduler: Any, n_workers: int) -> LocalBackend | ClusterBackend:
    if isinstance(scheduler, str) and scheduler in LOCAL_SCHEDULERS:
        return LocalBackend(scheduler, n_workers)
    from distributed import Client

    from gdm_dask.engine.cluster import ClusterBackend, connect

    if isinstance(scheduler, Client):
        return ClusterBackend(scheduler, [])
    if not isinstance(scheduler, str):
        raise BadInput(f"scheduler is a name, an address or a Client, not {type(scheduler).__name__}")
    if scheduler != "local" and "://" not in scheduler and not scheduler.endswith(".json"):
        raise BadInput(
            f"unknown scheduler {scheduler!r}: choose {', '.join(LOCAL_SCHEDULERS)} or local, or give the address of a "
            "running one (tcp://host:8786) or its scheduler file (.json)"
        )
    return connect(scheduler, n_workers)
