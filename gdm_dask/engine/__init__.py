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
    security : distributed.Security, optional
        Certificates for ``tls://``; Dask's own configuration otherwise.

    Attributes
    ----------
    n_workers : int
    description : str
        One line about it.
    shares_memory : bool
        Whether tasks run in this process.
    """

    def __init__(self, scheduler: Any = "threads", n_workers: int | None = None, security: Any = None) -> None:
        self._backend = _open_backend(scheduler, n_workers or n_cores(), security)
        self.name = self._backend.name
        self.n_workers = self._backend.n_workers
        self.description = self._backend.description

    @property
    def memory_limit(self) -> int | None:
        """Memory of all workers together, where the scheduler knows it."""
        return self._backend.memory_limit

    @property
    def shares_memory(self) -> bool:
        """Whether tasks run in this process."""
        return self.name in ("synchronous", "threads")

    def map(
        self,
        function: Callable[..., Any],
        items: Sequence[Any],
        *common: Any,
        on_done: Callable[[Any], None] | None = None,
    ) -> list[Any]:
        """``[function(item, *common) for item in items]``, in parallel.

        Item i goes to worker i modulo the number of workers where the scheduler lets us choose, so that repeated maps
        over the same items find what the workers kept.

        Parameters
        ----------
        function : callable
            Importable by name; it, its arguments and its results travel between processes.
        items : sequence
            One task each.
        *common
            Arguments that every task gets.
        on_done : callable, optional
            Called in this process with each result as it comes.
        """
        return self._backend.map(function, items, common, on_done) if items else []

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


def _open_backend(scheduler: Any, n_workers: int, security: Any) -> LocalBackend | ClusterBackend:
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
    return connect(scheduler, n_workers, security)
