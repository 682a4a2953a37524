"""The folder of an unfinished ingest: its lock, its plan, its runs, its blocks, and the last step, the rename.

::

    STORE.partial.lock           held by the process that works on it
    STORE.partial/plan.json      what is being ingested, and how
    STORE.partial/runs/          finished runs (and .wip folders of unfinished ones); elsewhere with --scratch
    STORE.partial/entries/       one JSON file per finished block
    STORE.partial/store/         the store, until it is whole and takes its name
    STORE.partial/finished       fingerprint of the whole store, from just before it takes its name
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from gdm_dask.errors import BadInput, DamagedStore, GdmError, MemoryLimitTooLow
from gdm_dask.ingestion.runs import UNFINISHED as UNFINISHED_RUN
from gdm_dask.locks import FileLock
from gdm_dask.store import layout
from gdm_dask.store.folder import PARTIAL, UNFINISHED, Folder, write_whole

logger = logging.getLogger(__name__)


class Workspace:
    """Scratch and state of one ingest; everything in it can be picked up by the next attempt.

    As a context it holds the lock from `begin` on. At the end it removes the scratch files, unless the work was
    interrupted and can go on.

    Parameters
    ----------
    target : Folder
        Where the store will be.
    scratch : path, optional
        Folder for the runs; beside a local store by default.
    """

    def __init__(self, target: Folder, scratch: str | os.PathLike[str] | None = None) -> None:
        self.target = target
        place = str(target.path.absolute()) if target.is_local else target.url.rstrip("/")
        unique = f"{place.rsplit('/', 1)[-1]}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        self.path = Path((place if target.is_local else f"{tempfile.gettempdir()}/{unique}") + PARTIAL)
        self.lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        self.runs = self.path / "runs" if scratch is None else Path(scratch).absolute() / f"{unique}.runs"
        self.entries = self.path / "entries"
        self._old = self.path / "old"
        self._plan = self.path / "plan.json"
        self._finished = self.path / "finished"
        # A local store is built here and renamed; an object store has no rename, there the manifest comes last.
        self.store = Folder(self.path / "store") if target.is_local else target

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # The same bad input would fail again; but with more memory it goes on where it stopped.
            hopeless = isinstance(error, BadInput) and not isinstance(error, MemoryLimitTooLow)
            if self.lock.is_held and (error is None or hopeless):
                self.clear()
        finally:
            self.lock.release()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise GdmError(
                f"{self.path}: the disk is full. Free some space and run the same command again: it goes on where it "
                "stopped; or choose another place with --scratch."
            ) from error

    def begin(self, job: dict[str, Any], run_bytes: int, overwrite: bool) -> int | None:
        """Lock, and resume or start.

        Returns
        -------
        int or None
            The size of runs to go on with; None where the earlier attempt finished this very job.
        """
        self.lock.acquire(self.target.url)
        earlier = self._read_plan()
        is_same = earlier is not None and earlier["job"] == job and earlier["runs"] == str(self.runs)
        if is_same and self._is_published():
            return None
        try:
            self._check_target(overwrite)
        except BadInput:
            self.lock.release()  # what an earlier attempt at something else has left stays
            raise
        if is_same and earlier["run_bytes"] <= run_bytes:  # type: ignore[index]
            self._remove_unfinished()
            return earlier["run_bytes"]  # type: ignore[index]
        if earlier is not None:
            logger.info("%s holds an unfinished ingest of something else: starting over", self.path)
        self.clear()
        for folder in (self.runs, self.entries):
            folder.mkdir(parents=True)
        if not self.target.is_local:
            self.target.remove(layout.ROOT)  # from here on there is no store until the new one is whole
            self.target.remove()
        plan = {"job": job, "run_bytes": run_bytes, "runs": str(self.runs)}
        write_whole(self._plan, json.dumps(plan).encode())
        return run_bytes

    def _check_target(self, overwrite: bool) -> None:
        if self._old.exists() and not self.target.path.exists():  # killed between the two renames of `publish`
            os.rename(self._old, self.target.path)
        if self.target.is_local and self.target.path.is_file():
            raise BadInput(f"{self.target.url} is a file: choose another name for the store")
        there = self.target.names()
        foreign = sorted(there - layout.ROOT_NAMES)
        if not overwrite and (layout.ROOT in there or (there and self.target.is_local)):
            raise BadInput(f"{self.target.url} exists: choose another name, or pass --overwrite to replace it")
        if foreign:
            raise BadInput(f"{self.target.url} is not a feature store (it holds {foreign[0]!r}): it is not overwritten")

    def _read_plan(self) -> dict[str, Any] | None:
        try:
            return json.loads(self._plan.read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def _is_published(self) -> bool:
        """Whether an earlier attempt was killed after the store took its name."""
        try:
            return self._finished.read_text() == layout.read_manifest(self.target).fingerprint
        except (FileNotFoundError, DamagedStore):
            return False

    def _remove_unfinished(self) -> None:
        """Remove what a killed attempt was about to write."""
        for path in self.runs.glob(f"*{UNFINISHED_RUN}"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.rglob(f"*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    def mark_finished(self, fingerprint: str) -> None:
        """Note that all is written, before the store takes its name."""
        write_whole(self._finished, fingerprint.encode())

    def publish(self) -> None:
        """Give the finished store its name."""
        if not self.target.is_local:
            return
        final = self.target.path
        if not final.exists():
            os.rename(self.store.path, final)
        elif not _exchange(self.store.path, final):
            os.rename(final, self._old)
            os.rename(self.store.path, final)

    def clear(self) -> None:
        """Remove the scratch files."""
        earlier = self._read_plan()
        for path in {self.runs, Path(earlier["runs"]) if earlier else self.runs}:
            _remove_tree(path)
        if self.path.exists():
            # the plan goes last, so that a clearing that was killed is known for what it is
            for child in sorted(self.path.iterdir(), key=lambda path: path in (self._plan, self._finished)):
                _remove_tree(child) if child.is_dir() else child.unlink()
            self.path.rmdir()


def _remove_tree(path: Path) -> None:
    """Remove a folder, even while a task of a cluster that nobody waits for still writes into it."""
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.05)
    shutil.rmtree(path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once, so that at no moment there is none; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    at_working_folder, exchange = -100, 2
    return renameat2(at_working_folder, os.fsencode(one), at_working_folder, os.fsencode(other), exchange) == 0


def save_block(entries: Path, number: int, entry: layout.BlockEntry) -> None:
    """Record that a block is written and checked."""
    write_whole(entries / f"{number:05d}.json", json.dumps(asdict(entry)).encode())


def finished_block(entries: Path, number: int) -> layout.BlockEntry | None:
    """Manifest entry of a block that an earlier attempt finished, or None."""
    try:
        return layout.BlockEntry.from_json(json.loads((entries / f"{number:05d}.json").read_bytes()))
    except (FileNotFoundError, ValueError, KeyError):
        return None
