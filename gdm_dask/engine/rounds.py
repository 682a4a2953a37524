"""One map on a cluster: every task is sent to a worker, and again to another one when the first is lost.

What a worker's thread does in a pass travels as one: a message to the cluster and back takes milliseconds, as many as
there are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import distributed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

import gdm_dask
from gdm_dask.engine.local import call_all
from gdm_dask.engine.members import Members
from gdm_dask.engine.placement import Homes
from gdm_dask.engine.sharing import array_bytes
from gdm_dask.errors import EngineError

logger = logging.getLogger(__name__)

#: Seconds without any result after which open tasks are sent to a second worker as well; the first answer counts.
STALL = float(os.environ.get("GDM_STALL", 600))
#: Seconds between two looks at who is still there.
TICK = 0.5
#: Seconds in which a worker hands over the result of a task that it has done.
HAND_OVER = 5.0
#: How often one task may be lost with its worker.
MAX_LOSSES = 10
#: Tasks without a home that a worker gets for each of its threads: one to work on, one to begin with next.
QUEUED_PER_THREAD = 2
#: Arguments with more array bytes than this are sent to each worker once, and not with every task.
SCATTERED_BYTES = 1 << 20

_LOST = (KilledWorker, FutureCancelledError, asyncio.CancelledError, OSError)


@dataclass(frozen=True)
class Attempt:
    """Tasks as they were sent to a worker."""

    positions: list[int]
    worker: str


class Round:
    """The tasks of one map.

    Parameters
    ----------
    client : distributed.Client
    members : Members
    homes : Homes
    function, items, common, places
        As in `Engine.map`.
    """

    def __init__(
        self,
        client: distributed.Client,
        members: Members,
        homes: Homes,
        function: Callable[..., Any],
        items: Sequence[Any],
        common: tuple,
        places: Sequence[int] | None,
    ) -> None:
        self._client = client
        self._members = members
        self._homes = homes
        self._call = partial(checked_calls, gdm_dask.__version__, function)
        self._items = items
        self._common = common
        self._places = places
        self._arguments: list[Any] | None = None
        self._tag = uuid.uuid4().hex[:8]
        self._attempts: dict[distributed.Future, Attempt] = {}
        self._tried: list[list[str]] = [[] for _ in items]
        self._losses = [0] * len(items)
        self._open = set(range(len(items)))
        self._last_result = time.monotonic()

    def results(self) -> Iterator[tuple[int, Any]]:
        """(position, result) of all items, as they come."""
        try:
            while self._open:
                self._submit_waiting()
                yield from self._collect()
        finally:
            for future in self._attempts:
                future.release()  # copies whose answer is no longer needed

    def _submit_waiting(self) -> None:
        """Send every open task that no reliable worker has."""
        threads = self._members.healthy() or self._members.wait_for_some()
        load = dict.fromkeys(threads, 0)
        held: set[int] = set()
        for attempt in self._attempts.values():
            if attempt.worker in load:
                load[attempt.worker] += 1
                held.update(attempt.positions)
        at_home: dict[str, list[int]] = {}
        attempts = []
        for position in sorted(self._open - held):
            home = self._home(position, threads)
            if home is not None:
                at_home.setdefault(home, []).append(position)
                continue
            worker = min(threads, key=lambda one: load[one] / threads[one])
            if self._places is None and load[worker] >= QUEUED_PER_THREAD * threads[worker]:
                break
            load[worker] += 1
            attempts.append(Attempt([position], worker))
        for worker, positions in at_home.items():
            n_threads = min(threads[worker], len(positions))
            attempts += [Attempt(positions[thread::n_threads], worker) for thread in range(n_threads)]
        self._submit(attempts, list(threads))

    def _home(self, position: int, threads: dict[str, int]) -> str | None:
        if self._places is None or self._tried[position]:
            return None
        home = self._homes.of(self._places[position])
        return home if home in threads else None

    def _submit(self, attempts: list[Attempt], workers: list[str]) -> None:
        """Send tasks in one message, so that no worker begins later than the others."""
        if not attempts:
            return
        if self._arguments is None:
            self._arguments = [self._shipped(value, workers) for value in self._common]
        for attempt in attempts:
            for position in attempt.positions:
                self._tried[position].append(attempt.worker)
        firsts = [attempt.positions[0] for attempt in attempts]
        keys = [f"gdm-{self._tag}-{first}-{len(self._tried[first])}" for first in firsts]
        # Tied to its worker: the scheduler would move tasks away from the blocks that they need. Where the worker is
        # lost, we choose another one.
        tied = {key: [attempt.worker] for key, attempt in zip(keys, attempts, strict=True)}
        with dask.annotate(workers=tied.__getitem__, allow_other_workers=False):
            futures = self._client.map(
                self._call,
                [[self._items[position] for position in attempt.positions] for attempt in attempts],
                *([argument] * len(attempts) for argument in self._arguments),
                key=keys,
                pure=False,
            )
        self._attempts.update(zip(futures, attempts, strict=True))

    def _shipped(self, value: Any, workers: list[str]) -> Any:
        if array_bytes(value) <= SCATTERED_BYTES:
            return value
        # hash=False: scattering equal content again after its future was dropped fails in distributed
        send = partial(
            self._client.scatter, [value], workers=workers, broadcast=True, hash=False, direct=False, asynchronous=True
        )
        try:
            return self._client.sync(send, callback_timeout=STALL)[0]
        except (*_LOST, TimeoutError, RuntimeError) as error:
            logger.warning("arguments go with every task, for they could not be sent ahead (%s)", error)
            return value

    def _collect(self) -> list[tuple[int, Any]]:
        """Results that have come; after a while without any, a look at who is still there."""
        done = self._wait()
        found = []
        for future in done:
            found += self._take(future)
        if found:
            self._last_result = time.monotonic()
            return found
        self._members.refresh()
        self._give_up_lost()
        if time.monotonic() - self._last_result > STALL:
            self._send_copies()
        return []

    def _wait(self) -> list[distributed.Future]:
        try:
            distributed.wait(list(self._attempts), timeout=TICK, return_when="FIRST_COMPLETED")
        except (TimeoutError, *_LOST):
            pass
        return [future for future in self._attempts if future.done()]

    def _take(self, future: distributed.Future) -> list[tuple[int, Any]]:
        attempt = self._attempts[future]
        if self._open.isdisjoint(attempt.positions):
            del self._attempts[future]
            return []
        failed = future.status == "error"
        try:
            results = future.result(timeout=HAND_OVER)
        except (ModuleNotFoundError, RuntimeError) as error:
            missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
            if not isinstance(missing, ModuleNotFoundError):
                raise
            raise EngineError(
                f"the scheduler or worker {attempt.worker} cannot run the task ({missing}). Install gdm_dask "
                f"{gdm_dask.__version__} on all machines of the cluster."
            ) from error
        except (TimeoutError, *_LOST) as error:
            if failed and not isinstance(error, KilledWorker):
                raise  # by the task itself
            if isinstance(error, TimeoutError):
                return []  # its worker does not hand it over: we see to that when the worker is silent
            del self._attempts[future]
            self._lose(attempt, type(error).__name__)
            return []
        del self._attempts[future]
        found = [pair for pair in zip(attempt.positions, results, strict=True) if pair[0] in self._open]
        self._open.difference_update(attempt.positions)
        return found

    def _give_up_lost(self) -> None:
        """Forget what was sent to workers that the scheduler no longer has."""
        known = self._members.known()
        for future, attempt in list(self._attempts.items()):
            if attempt.worker not in known:
                del self._attempts[future]
                future.release()
                self._lose(attempt, "the worker has gone")

    def _lose(self, attempt: Attempt, reason: str) -> None:
        self._arguments = None  # what was sent ahead may have gone with the worker
        lost = [position for position in attempt.positions if position in self._open]
        if not lost:
            return
        logger.warning("%d tasks were lost with worker %s (%s): sending them again", len(lost), attempt.worker, reason)
        for position in lost:
            self._losses[position] += 1
        self._members.refresh()
        if max(self._losses[position] for position in lost) >= MAX_LOSSES:
            raise EngineError(
                f"a task was lost {MAX_LOSSES} times with its worker. The workers may have too little memory: look at "
                "their logs, lower --memory-limit, or give them more."
            )

    def _send_copies(self) -> None:
        logger.warning("no result for %.0f s: sending %d tasks to a second worker as well", STALL, len(self._open))
        self._last_result = time.monotonic()
        self._arguments = None
        threads = self._members.healthy()
        copies = []
        for number, position in enumerate(sorted(self._open)):
            others = [worker for worker in threads if worker not in self._tried[position]]
            if others:
                copies.append(Attempt([position], others[number % len(others)]))
        self._submit(copies, list(threads))


def checked_calls(version: str, function: Callable[..., Any], items: list[Any], *arguments: Any) -> list[Any]:
    """Run tasks after checking that this worker has the driver's version; workers may join at any time."""
    if version != gdm_dask.__version__:
        raise EngineError(
            f"worker {distributed.get_worker().address} has gdm_dask {gdm_dask.__version__}, the driver has {version}. "
            "Install the same version on both sides."
        )
    return call_all(function, items, *arguments)
