"""The one module that knows Dask: runs the same small functions on any of its schedulers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Any

import dask
from dask.callbacks import Callback

from gdm_dask.errors import BadInput
from gdm_dask.resources import n_cores

logger = logging.getLogger(__name__)

LOCAL_SCHEDULERS = ("synchronous", "threads", "processes")


class Engine:
    """Maps functions over items on a Dask scheduler, in the order of the items.

    Parameters
    ----------
    scheduler : str or distributed.Client
        ``"synchronous"``, ``"threads"``, ``"processes"`` (a pool that is kept until `close`), the address of a
        running scheduler (``tcp://...``, ``tls://...``), or a Client.
    n_workers : int, optional
        Threads or processes of a local scheduler; one per core by default.
    """

    def __init__(self, scheduler: Any = "threads", n_workers: int | None = None) -> None:
        self.n_workers = n_workers or n_cores()
        self._pool: Executor | None = None
        self._client: Any = None
        self._owns_client = False
        if isinstance(scheduler, str) and scheduler in LOCAL_SCHEDULERS:
            self.name = scheduler
            if scheduler == "threads":
                self._pool = ThreadPoolExecutor(self.n_workers)
            elif scheduler == "processes":
                self._pool = ProcessPoolExecutor(self.n_workers, mp_context=get_context("spawn"))
            else:
                self.n_workers = 1
        else:
            self._connect(scheduler)

    def _connect(self, scheduler: Any) -> None:
        from distributed import Client

        if isinstance(scheduler, str):
            if "://" not in scheduler:
                raise BadInput(
                    f"unknown scheduler {scheduler!r}: choose {', '.join(LOCAL_SCHEDULERS)}, "
                    "or give the address of a running one (tcp://host:8786)"
                )
            scheduler = Client(scheduler)
            self._owns_client = True
        elif not isinstance(scheduler, Client):
            raise BadInput(
                f"scheduler is a name, an address or a dask.distributed.Client, not {type(scheduler).__name__}"
            )
        self.name = "distributed"
        self._client = scheduler
        self.n_workers = max(1, len(scheduler.scheduler_info(n_workers=-1)["workers"]))

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

        Parameters
        ----------
        function : callable
            Importable by name; it and its results travel between processes.
        items : sequence
            One task each.
        *common
            Arguments that every task gets.
        on_done : callable, optional
            Called in this process with each result as it comes.
        """
        if not items:
            return []
        if self._client is not None:
            return self._map_distributed(function, items, common, on_done)
        tasks = [dask.delayed(function, pure=False, traverse=False)(item, *common) for item in items]
        options: dict[str, Any] = {"scheduler": self.name, "optimize_graph": False}
        if self._pool is not None:
            options |= {"pool": self._pool, "num_workers": self.n_workers}
        keys = {task.key for task in tasks}

        def finished(key: Any, result: Any, *_: Any) -> None:
            if on_done is not None and key in keys:
                on_done(result)

        with Callback(posttask=finished):
            return list(dask.compute(*tasks, **options))

    def _map_distributed(
        self, function: Callable[..., Any], items: Sequence[Any], common: tuple, on_done: Callable[[Any], None] | None
    ) -> list[Any]:
        from distributed import as_completed

        # hash=False: scattering equal content again after its future was dropped fails in distributed
        shared = [self._client.scatter(value, broadcast=True, hash=False) for value in common]
        futures = [self._client.submit(function, item, *shared, pure=False) for item in items]
        if on_done is not None:
            for future in as_completed(futures):
                on_done(future.result())
        return self._client.gather(futures)

    def close(self) -> None:
        """End the pool, and the client if it was opened here."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
