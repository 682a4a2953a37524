"""Queue of jobs on a cluster: waiting jobs, running jobs, and their progress.

The scheduler keeps the queue: a job is a task plus an entry in the scheduler's metadata. Each waiting job polls the
queue itself and starts when its turn comes, so the submitter can disconnect. A job that ends in any way, even by the
death of its worker, makes room for the next, because the task states decide and not the entries alone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import dask
import distributed

from gdm_dask.engine.cluster import GONE, seconds
from gdm_dask.errors import EngineError, GdmError
from gdm_dask.system import interrupts

#: Key of the entries in the scheduler's metadata.
ENTRIES = "gdm-jobs"
ENDED = ("finished", "failed", "cancelled", "lost")
#: Seconds between two polls of the first waiting job; jobs behind it poll less often.
LOOK = 0.5
MAX_LOOK = 10.0


class Cancelled(GdmError):
    """The job was cancelled."""


def ask(client: distributed.Client, question: str, **arguments: Any) -> Any:
    """Ask the scheduler; raise an error after the timeout of Dask's configuration."""
    patience = seconds("wait-for-workers")
    try:
        return client.sync(getattr(client.scheduler, question), callback_timeout=patience, **arguments)
    except GONE as error:
        raise EngineError(f"the scheduler does not answer within {patience:g} s ({type(error).__name__})") from error


def tell(client: distributed.Client, job: str, name: str, value: Any) -> None:
    """Set a value in the entry of a job."""
    ask(client, "set_metadata", keys=[ENTRIES, job, name], value=value)


def enter(client: distributed.Client, job: str, priority: int) -> None:
    """Add a job to the queue."""
    for name, value in {"state": "waiting", "priority": priority, "submitted": time.time()}.items():
        tell(client, job, name, value)


def forget(client: distributed.Client, job: str) -> None:
    """Remove the entry and the log of a job."""
    ask(client, "set_metadata", keys=[ENTRIES, job], value=None)
    with suppress(AttributeError):  # other versions of Dask keep events elsewhere
        for topic in (job, f"{job}-cancel"):  # the scheduler has no call for it; a lambda travels with its code
            client.run_on_scheduler(lambda dask_scheduler, topic: dask_scheduler._broker.truncate(topic), topic=topic)


def entries(client: distributed.Client) -> dict[str, dict[str, Any]]:
    """Return the entries of all jobs in order of submission, with their current ``state``."""
    found = ask(client, "get_metadata", keys=[ENTRIES], default={})
    jobs = {job: facts for job, facts in found.items() if facts is not None and "submitted" in facts}
    tasks = ask(client, "get_task_status", keys=list(jobs))
    for job, facts in jobs.items():
        facts["state"] = _state(facts["state"], tasks[job])
    return dict(sorted(jobs.items(), key=lambda item: (item[1]["submitted"], item[0])))


def _state(noted: str, task: str | None) -> str:
    """Combine the state that a job recorded itself with the state of its task."""
    if noted in ENDED:
        return noted
    return {"memory": "finished", "erred": "failed", None: "lost", "forgotten": "lost"}.get(task, noted)


def wait_for_turn(client: distributed.Client, job: str) -> None:
    """Wait until a slot is free and this job is first in the queue: by priority, then by time of submission."""
    if entries(client).get(job, {}).get("state") == "running":
        tell(client, job, "state", "waiting")  # it was running before, on a worker that died
    at_once = int(dask.config.get("gdm_dask.jobs-at-once"))
    state = "waiting"  # also before it has an entry
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
            tell(client, job, "state", "waiting")  # another job started at the same moment
        place = line.index(job) if job in line else 0
        time.sleep(min(LOOK * (1 + place), MAX_LOOK))


def _n_running(jobs: dict[str, dict[str, Any]]) -> int:
    return sum(facts["state"] == "running" for facts in jobs.values())
