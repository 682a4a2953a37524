"""The queue of jobs on a cluster: who waits, who runs, and how far each has come.

The scheduler keeps it: a job is a task, and an entry of the scheduler's metadata. Each waiting job looks at the queue
itself and begins when it is its turn, so nobody has to stay beside it. A job that ends in any way, also by the death of
its worker, gives its place to the next: the states of the tasks decide, not the entries alone.
"""

from __future__ import annotations

import time
from typing import Any

import dask
import distributed

from gdm_dask.engine.cluster import GONE, seconds
from gdm_dask.errors import EngineError, GdmError
from gdm_dask.system import interrupts

#: Place of the entries in the scheduler's metadata.
ENTRIES = "gdm-jobs"
ENDED = ("finished", "failed", "cancelled", "lost")
#: Seconds between two looks of the first job that waits; those behind it look less often.
LOOK = 0.5
MAX_LOOK = 10.0


class Cancelled(GdmError):
    """The job was cancelled."""


def ask(client: distributed.Client, question: str, **arguments: Any) -> Any:
    """An answer of the scheduler, or an error after the patience that Dask's configuration sets."""
    patience = seconds("wait-for-workers")
    try:
        return client.sync(getattr(client.scheduler, question), callback_timeout=patience, **arguments)
    except GONE as error:
        raise EngineError(f"the scheduler does not answer within {patience:g} s ({type(error).__name__})") from error


def tell(client: distributed.Client, job: str, name: str, value: Any) -> None:
    """Set a fact in the entry of a job."""
    ask(client, "set_metadata", keys=[ENTRIES, job, name], value=value)


def enter(client: distributed.Client, job: str, priority: int) -> None:
    """Put a job into the queue."""
    for name, value in {"state": "waiting", "priority": priority, "submitted": time.time()}.items():
        tell(client, job, name, value)


def forget(client: distributed.Client, job: str) -> None:
    """Remove the entry of a job."""
    ask(client, "set_metadata", keys=[ENTRIES, job], value=None)


def entries(client: distributed.Client) -> dict[str, dict[str, Any]]:
    """Facts about each job in the order in which they were submitted, with its present ``state``."""
    found = ask(client, "get_metadata", keys=[ENTRIES], default={})
    jobs = {job: facts for job, facts in found.items() if facts is not None and "submitted" in facts}
    tasks = ask(client, "get_task_status", keys=list(jobs))
    for job, facts in jobs.items():
        facts["state"] = _state(facts["state"], tasks[job])
    return dict(sorted(jobs.items(), key=lambda item: (item[1]["submitted"], item[0])))


def _state(noted: str, task: str | None) -> str:
    """The state of a job from the one that it noted itself, and the state of its task."""
    if noted in ENDED:
        return noted
    return {"memory": "finished", "erred": "failed", None: "lost", "forgotten": "lost"}.get(task, noted)


def wait_for_turn(client: distributed.Client, job: str) -> None:
    """Wait until fewer jobs run than may at once, and no job that waits has a higher priority or came earlier."""
    if entries(client).get(job, {}).get("state") == "running":
        tell(client, job, "state", "waiting")  # it ran before, on a worker that died
    at_once = int(dask.config.get("gdm_dask.jobs-at-once"))
    state = "waiting"  # also before it is entered
    while True:
        interrupts.check()
        jobs = entries(client)
        state = jobs[job]["state"] if job in jobs else state
        if state in ENDED:
            raise Cancelled(f"{job} was cancelled before it began")
        line = [name for name, facts in jobs.items() if facts["state"] == "waiting"]
        line.sort(key=lambda name: -jobs[name]["priority"])
        if job in line[:1] and _n_running(jobs) < at_once:
            tell(client, job, "state", "running")
            if _n_running(entries(client)) <= at_once:
                return
            tell(client, job, "state", "waiting")  # another one began in the same moment
        place = line.index(job) if job in line else 0
        time.sleep(min(LOOK * (1 + place), MAX_LOOK))


def _n_running(jobs: dict[str, dict[str, Any]]) -> int:
    return sum(facts["state"] == "running" for facts in jobs.values())
