"""Dask distributed: a pass is one task per part of the data, and tasks that merge the results.

Dask places the tasks, recomputes results lost with a worker, and uses workers that join; nothing is kept on workers.
This module waits for workers, resends tasks that will not finish, and reports errors with their remedy.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import dask
import distributed
from dask.utils import apply, funcname
from distributed.client import ClosedClientError, FutureCancelledError
from distributed.scheduler import KilledWorker

from gdm_dask.engine import FAN_IN, Engine, Task, Worker
from gdm_dask.engine.sealed import refusal, seal, sealed_call, sealed_task, unseal
from gdm_dask.errors import EngineError
from gdm_dask.system import interrupts
from gdm_dask.system.metrics import SOURCES, Metric

logger = logging.getLogger(__name__)
Future: TypeAlias = "distributed.Future[Any]"
Result = TypeVar("Result")

#: Errors that Dask raises if tasks, workers or the scheduler are gone.
GONE = (KilledWorker, FutureCancelledError, ClosedClientError, asyncio.CancelledError, OSError, TimeoutError)
#: Vectors travel with the graph. All threads share the configuration, so only one changes it at a time.
_LARGE_GRAPHS = {"distributed.admin.large-graph-warning-threshold": "100GB"}
_quiet = threading.Lock()
#: Seconds between checks of the workers while no task ends, and between attempts to reach an absent scheduler.
TICK = 0.5
PAUSE = 0.1
#: Seconds to copy the arguments to the workers, and bytes that take a second more; a worker without a copy by then
#: fetches it from another one.
SPREAD = 5.0
SPREAD_BYTES = 20e6
#: Tasks per thread beyond which Dask gives them to all workers, whoever holds their arguments.
SPREAD_BY_DASK = 2
#: A worker that was silent or stalled gets no tasks for this many times that timeout, unless there are no others.
REST = 5.0

_n_resent = 0
SOURCES.append(
    lambda: [Metric("gdm_task_resends_total", "Times that lost tasks of a pass were sent again.", _n_resent)]
)


class Lost(Exception):
    """Tasks will not finish: their keys, some workers or the scheduler are gone."""

    most = 10  # consecutive times before giving up


class Stalled(Lost):
    """No task ends, although workers live."""

    most = 1


def seconds(name: str) -> float:
    """Return a timeout from Dask's configuration, such as ``gdm_dask.wait-for-workers``."""
    return float(dask.config.get(f"gdm_dask.{name}"))


class ClusterEngine(Engine):
    """Runs tasks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    owned : list
        Objects for `close` to close: the client and the cluster, if they were created for this engine.
    """

    name = "distributed"
    shares_memory = False

    def __init__(self, client: distributed.Client, owned: list[Any]) -> None:
        self.client = client
        self.left_out: set[str] = set()
        self._resting: dict[str, float] = {}  # workers that hung, and until when they get no tasks
        self._owned = owned
        self.n_workers = 0
        self._address = getattr(client.scheduler, "address", "an unknown address")  # known while it reconnects
        try:
            workers = self.workers()
        except BaseException:
            self.close()
            raise
        self.n_workers = sum(worker.threads for worker in workers)
        self.description = f"cluster {self._address}, {len(workers)} workers, {self.n_workers} threads"
        if client.dashboard_link:
            self.description += f", dashboard {client.dashboard_link}"

    def workers(self) -> list[Worker]:
        """Return the running workers, except those left out; wait for a first one."""
        patience = seconds("wait-for-workers")
        deadline = time.monotonic() + patience
        wanted: Future | None = None
        while self.client.status not in ("closing", "closed") and time.monotonic() < deadline:
            interrupts.check()
            with suppress(*GONE, RuntimeError, AttributeError):  # a client that reconnects has no scheduler
                if workers := self._ask(patience):
                    return workers
                if wanted is None:
                    logger.warning("cluster %s has no workers: waiting up to %g s for one", self._address, patience)
                    wanted = self.client.submit(time.time, pure=False)  # an elastic cluster starts workers for tasks
            time.sleep(PAUSE)
        if wanted is None:
            raise EngineError(
                f"the connection to the scheduler at {self._address} was lost. Restart it, and continue a started fit "
                "with --resume."
            )
        raise EngineError(
            f"the cluster at {self._address} has no workers that answer within {patience:g} s. Start some with 'dask "
            f"worker {self._address}'. A started fit continues with --resume. DASK_GDM_DASK__WAIT_FOR_WORKERS "
            "sets the seconds to wait."
        )

    def _ask(self, patience: float) -> list[Worker]:
        scheduler: Any = self.client.scheduler
        identity = self.client.sync(scheduler.identity, n_workers=-1, callback_timeout=patience)
        return [
            Worker(name, facts["nthreads"], facts["memory_limit"] or None, facts["last_seen"], _n_drivers(name))
            for name, facts in sorted(identity["workers"].items())
            if facts["status"] == "running" and name not in self.left_out
        ]

    def leave_out(self, worker: Worker, why: str) -> None:
        """Give no more tasks to a worker."""
        logger.warning("worker %s %s: it gets no tasks", worker.name, why)
        self.left_out.add(worker.name)

    def rest(self, workers: Collection[str], waited: float) -> None:
        """Give no tasks for a while to workers that hung for some seconds."""
        self._resting.update(dict.fromkeys(workers, time.monotonic() + REST * waited))

    def allowed(self) -> list[str] | None:
        """Return the workers that may get tasks, or None for all."""
        now = time.monotonic()
        resting = {name for name, until in self._resting.items() if until > now}
        if not resting and not self.left_out:
            return None
        names = [worker.name for worker in self.workers()]
        return [name for name in names if name not in resting] or names

    def _map(
        self, name: str, function: Task, left: dict[int, Any], args: tuple[Any, ...], at_once: int, keep: Task
    ) -> None:
        def attempt(tasks: _Tasks) -> None:
            shared = tasks.begin(name, [function], args, at_once)
            waiting = iter(list(left))
            running: dict[Future | None, int] = {}
            while left:
                if chosen := list(islice(waiting, at_once - len(running))):
                    futures = tasks.send(name, shared, 0, [seal(left[position]) for position in chosen])
                    tasks.watch(futures)
                    running.update(zip(futures, chosen, strict=True))
                if (future := tasks.next_ended()) is not None:
                    result = tasks.result(future)
                    tasks.gained = True
                    keep(running.pop(future), result)

        self._until_done(attempt)

    def reduce(self, function: Task, merge: Task, items: Sequence[Any], *args: Any, name: str = "") -> Any:
        """Return ``merge([function(item, *args) for item in items], *args)``; tasks merge the parts."""
        name = name or funcname(function)

        def attempt(tasks: _Tasks) -> Any:
            shared = tasks.begin(name, [function, merge], args, len(items))
            parts = tasks.send(name, shared, 0, [seal(item) for item in items])
            while len(parts) > 1:
                some = [parts[first : first + FAN_IN] for first in range(0, len(parts), FAN_IN)]
                parts = tasks.send(f"{name}-merge", shared, 1, some)
            tasks.wait(parts[0])
            return tasks.result(parts[0])

        return self._until_done(attempt)

    def _until_done(self, attempt: Callable[[_Tasks], Result]) -> Result:
        """Make an attempt, and repeat it if its tasks are lost."""
        losses = 0
        while True:
            tasks = _Tasks(self)
            try:
                with interrupts.held_back(tasks.wake):
                    try:
                        return attempt(tasks)
                    finally:
                        tasks.release()
            except Lost as loss:
                losses = 1 if tasks.gained else losses + 1
                if losses > loss.most:
                    raise EngineError(
                        f"tasks on the cluster at {self._address} were lost {losses} times in a row ({loss}). Look for "
                        "workers that hang or are out of memory, and continue a started fit with --resume."
                    ) from loss
                logger.warning("tasks were lost (%s): sending them again", loss)
                global _n_resent
                _n_resent += 1
                self.workers()  # raises if the scheduler or all workers are gone for good

    def close(self, wait: bool = True) -> None:
        """Have the workers give back memory, without waiting, and close everything that was opened for this engine."""
        if self.n_workers and len(self._owned) < 2:  # else the workers end, too
            with suppress(*GONE, RuntimeError, AttributeError):  # without a scheduler there is nothing to give back
                for worker in self._ask(SPREAD):
                    where = {"workers": [worker.name], "allow_other_workers": True}
                    key = f"gdm-release-{uuid.uuid4()}"
                    distributed.fire_and_forget(self.client.submit(sealed_task(release), seal(None), key=key, **where))
        for thing in self._owned:
            thing.close()


def release(_: None) -> None:
    """Give back the memory that this process keeps for its next read, as a task."""
    from gdm_dask.store.reader import drop_buffers  # here: commands about jobs would import numba with it

    drop_buffers()
    gc.collect()  # tasks that were interrupted leave cycles


class _Tasks:
    """Tasks of one attempt, with a watchdog."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine, self._client = engine, engine.client
        self._futures: list[Future] = []
        self._ended: queue.SimpleQueue[Future | None] = queue.SimpleQueue()
        self._since = time.monotonic()
        self._beats: dict[str, float] = {}  # heartbeats of the workers at that time
        self._n_ended = 0  # tasks that had ended at that time
        self._allowed: list[str] | None = None
        self.gained = False  # whether a result arrived that need not be computed again

    def begin(self, name: str, functions: Sequence[Task], args: tuple[Any, ...], n_tasks: int) -> Future:
        """Send functions and arguments once, as the result of a task: in each task they would slow the scheduler.

        Workers fetch it from each other. Dask gives few tasks, or tasks for some workers, to workers that hold it; only
        then it is copied beforehand, as Dask removes copies that no task waits for.
        """
        self._allowed = self._engine.allowed()
        call = sealed_call(functions, args)
        (shared,) = self._send(f"{name}-arguments", partial, *([part] for part in call))
        self.wait(shared)
        if self._allowed is not None or n_tasks <= SPREAD_BY_DASK * self._engine.n_workers:
            # The scheduler may raise any error if a worker leaves meanwhile; tasks then fetch the copy themselves.
            patience = SPREAD + sum(map(len, call[-1])) / SPREAD_BYTES
            with suppress(Exception):
                self._client.replicate([shared], workers=self._allowed, callback_timeout=patience)
        return shared

    def send(self, name: str, shared: Future, function: int, items: Sequence[Any]) -> list[Future]:
        """Submit a task for each item: a call of one of the functions, by its number."""
        return self._send(name, apply, [shared] * len(items), [[function, item] for item in items])

    def _send(self, name: str, call: Task, *items: Sequence[Any]) -> list[Future]:
        group = f"gdm-{name}-{uuid.uuid4().hex}"
        keys = [(group, number) for number in range(len(items[0]))]
        try:
            with _quiet, dask.config.set(_LARGE_GRAPHS):
                futures: list[Future] = self._client.map(call, *items, key=keys, workers=self._allowed)
        except GONE as error:
            raise Lost(type(error).__name__) from error
        self._futures += futures
        return futures

    def wait(self, future: Future) -> None:
        """Wait until a task has ended."""
        self.watch([future])
        while self.next_ended() is not future:
            pass

    def watch(self, futures: list[Future]) -> None:
        """Have `next_ended` return these tasks."""
        for future in futures:
            future.add_done_callback(self._ended.put)

    def next_ended(self) -> Future | None:
        """Return a watched task that has ended, or None after a while. Raise `Lost` if none will end."""
        with suppress(queue.Empty):
            if (future := self._ended.get(timeout=TICK)) is not None:
                return future
        interrupts.check()
        self._look()
        return None

    def _look(self) -> None:
        """Check for workers that are silent, stuck or gone."""
        allowed, workers = self._allowed, self._engine.workers()
        beats = {worker.name: worker.beat for worker in workers if allowed is None or worker.name in allowed}
        if not beats:
            raise Lost("no worker was left")
        n_ended = sum(future.done() for future in self._futures)
        if not self._beats or n_ended != self._n_ended:
            self._since, self._beats, self._n_ended = time.monotonic(), beats, n_ended
        waited, silence, stall = time.monotonic() - self._since, seconds("silence"), seconds("stall")
        silent = [name for name, beat in beats.items() if self._beats.get(name) == beat]
        if waited > silence and silent:
            logger.warning("worker %s has been silent for %g s: its tasks go to others", ", ".join(silent), silence)
            self._engine.rest(silent, silence)
            raise Lost("workers are silent")
        if waited > stall:
            with suppress(*GONE):
                self._engine.rest([name for name, keys in self._client.processing().items() if keys], stall)
            raise Stalled(f"no task has ended for {stall:g} s")

    def result(self, future: Future) -> Any:
        """Return the result of a task that has ended; raise the task's own errors, and `Lost` for all others."""
        try:
            return unseal(future.result(timeout=seconds("silence")))
        except (Exception, asyncio.CancelledError) as error:
            # the scheduler and the client may raise any error if a worker leaves while they fetch a result
            if future.status != "error" or isinstance(error, KilledWorker):
                raise Lost(type(error).__name__) from error
            if reason := refusal(error):
                raise EngineError(reason) from None
            raise

    def wake(self) -> None:
        """End a wait because a signal has arrived."""
        self._ended.put(None)

    def release(self) -> None:
        """Forget the tasks: Dask cancels those that nobody wants."""
        for future in self._futures:
            future.release()


def _n_drivers(worker: str) -> int:
    """Number of drivers that a worker may host, including this one, if this is the driver of a job."""
    try:
        here = distributed.get_worker().address
    except ValueError:
        return 0
    return int(dask.config.get("gdm_dask.jobs-at-once")) - (worker != here)
