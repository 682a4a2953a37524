"""The folder of an unfinished ingest: its lock, its plan, its runs, its blocks, and the final rename.

::

    STORE.partial.lock           held by the process that works on it
    STORE.partial/plan.json      source and options of the ingest
    STORE.partial/runs/          finished runs (and .wip folders of unfinished ones); elsewhere with --scratch
    STORE.partial/entries/       one JSON file per finished block
    STORE.partial/store/         the store, until it is complete and gets its name
    STORE.partial/finished       fingerprint of the complete store, written just before the rename

For a store on a URL, STORE.partial and its lock are in the user's cache folder, and STORE/ingest.lock keeps ingests of
other computers out, until the work is done or given up. Only their user can write to these folders; a folder with
another owner or mode is neither read nor removed.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import logging
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput, DamagedStore, GdmError, Locked, MemoryLimitTooLow
from gdm_dask.ingestion.runs import UNFINISHED as UNFINISHED_RUN
from gdm_dask.store import layout
from gdm_dask.store.folder import PARTIAL, UNFINISHED, Folder, local_folder, write_whole
from gdm_dask.store.layout import BlockEntry
from gdm_dask.system.locks import FileLock, check_private, read_private, user_folder

logger = logging.getLogger(__name__)

#: Raised when sources are cut into slabs in another way: an ingest begun before then starts over.
CUTS_VERSION = 2
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Staging:
    """Scratch files and state of one ingest; the next attempt can resume from them.

    As a context it holds the lock from `begin` on. On exit it removes the scratch files, unless the work was
    interrupted and can be resumed. `target` is the destination of the store. The runs lie in a folder of `scratch`, by
    default beside a local store, or in the user's cache folder.
    """

    def __init__(self, target: Folder, scratch: str | os.PathLike[str] | None = None) -> None:
        self.target = target
        place = str(target.path.absolute()) if target.is_local else target.url.rstrip("/")
        unique = f"{place.rsplit('/', 1)[-1]}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"
        self.path = Path(f"{place}{PARTIAL}") if target.is_local else user_folder("ingest") / f"{unique}{PARTIAL}"
        self.lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        self.runs = (
            self.path / "runs"
            if scratch is None
            else local_folder(scratch, "the scratch folder").absolute() / f"{unique}.runs"
        )
        self.entries = self.path / "entries"
        self._old = self.path / "old"
        self._plan = self.path / "plan.json"
        self._finished = self.path / "finished"
        self._claim = self.lock.path.with_suffix(".claim")  # our entry in STORE/ingest.lock
        # A local store is built here and renamed; an object store has no rename, so the manifest is written last.
        self.store = Folder(self.path / "store") if target.is_local else target

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            # The same bad input would fail again, but with more memory the ingest can resume.
            hopeless = isinstance(error, BadInput) and not isinstance(error, MemoryLimitTooLow)
            if self.lock.is_held and (error is None or hopeless):
                with suppress(OSError) if hopeless else nullcontext():  # nothing may be there to remove
                    self.clear()
                    self._release_claim()
        finally:
            self.lock.release()
        if isinstance(error, OSError) and error.errno in _FULL:
            places = str(self.path) if self.runs.parent == self.path else f"{self.path} or {self.runs}"
            raise GdmError(
                f"{places}: the disk is full. Free some space and run the same command again: it resumes where it "
                "stopped; or choose another place with --scratch."
            ) from error

    def begin(self, job: dict[str, Any], run_bytes: int, overwrite: bool) -> int | None:
        """Take the lock, and resume or start.

        Returns the size of runs to continue with; None if the earlier attempt finished this very job.
        """
        with _writable(self.target.url):
            self.lock.acquire(self.target.url)
        for folder in (self.path, self.runs):
            with _writable(folder):
                check_private(folder)
        earlier = self._read_plan()
        is_same = earlier is not None and earlier["job"] == job and earlier["runs"] == str(self.runs)
        if is_same and self._is_published():
            return None
        try:
            is_ours = self._enter(overwrite)
        except BadInput:
            self.lock.release()  # keep the files of an earlier attempt at another job
            raise
        if earlier is not None and is_same and is_ours and earlier["run_bytes"] <= run_bytes:
            self._tidy()
            return int(earlier["run_bytes"])
        if earlier is not None:
            logger.info("%s holds another unfinished ingest: starting over", self.path)
            if earlier["runs"] != str(self.runs) and Path(earlier["runs"]).parent != self.path:
                logger.warning("its scratch files in %s are no longer needed: remove them", earlier["runs"])
        self._start_over()
        plan = {"job": job, "run_bytes": run_bytes, "runs": str(self.runs)}
        write_whole(self._plan, json.dumps(plan).encode())
        return run_bytes

    def _enter(self, overwrite: bool) -> bool:
        """Check the destination, and claim it if it is a URL; return whether nobody else can have written to it."""
        self._check_target(overwrite)
        if self.target.is_local:
            return True
        holds = self._take_claim()
        try:
            self._check_target(overwrite)  # another ingest may have finished just before
        except BadInput:
            if not holds:
                self._release_claim()
            raise
        return holds

    def _tidy(self) -> None:
        """Remove what an earlier attempt was writing when it ended."""
        for path in self.runs.glob(f"*{UNFINISHED_RUN}"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.rglob(f"*{UNFINISHED}"):
            path.unlink(missing_ok=True)
        if not self.runs.exists():  # scratch disks get purged
            _make_private(self.runs)

    def _start_over(self) -> None:
        self.clear()
        for folder in (self.path, self.runs, self.entries):
            with _writable(folder):
                _make_private(folder)
        if not self.target.is_local:
            self.target.remove(layout.ROOT)  # from here on there is no store until the new one is complete
            for name in self.target.names() - {layout.LOCK}:
                self.target.remove(name)

    def _check_target(self, overwrite: bool) -> None:
        if self._old.exists() and not self.target.path.exists():  # killed between the two renames of `publish`
            os.rename(self._old, self.target.path)
        if self.target.is_local and os.path.lexists(self.target.path) and not self.target.path.is_dir():
            raise BadInput(f"{self.target.url} is a file: choose another name for the store")
        there = self.target.names()
        foreign = sorted(there - layout.ROOT_NAMES)
        if not overwrite and (layout.ROOT in there or (there and self.target.is_local)):
            raise BadInput(f"{self.target.url} exists: choose another name, or pass --overwrite to replace it")
        if foreign:
            raise BadInput(f"{self.target.url} is not a feature store (it holds {foreign[0]!r}): it is not overwritten")

    def _read_plan(self) -> dict[str, Any] | None:
        try:
            plan: dict[str, Any] = json.loads(read_private(self._plan))
        except (FileNotFoundError, ValueError):
            return None
        return plan

    def _is_published(self) -> bool:
        """Return whether an earlier attempt was killed after the final rename."""
        try:
            return read_private(self._finished).decode() == layout.read_manifest(self.target).fingerprint
        except (FileNotFoundError, DamagedStore):
            return False

    def _take_claim(self) -> bool:
        """Claim the URL, unless another computer has; return whether the claim of an earlier attempt still holds.

        The claim outlives this process, as do the blocks that it has written: only an attempt that finds both the
        scratch files and the claim goes on with them.
        """
        fresh = not self._claim.exists()
        if fresh:
            owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            write_whole(self._claim, json.dumps(owner | {"claim": uuid.uuid4().hex}).encode())
        try:
            created = self.target.create(layout.LOCK, read_private(self._claim))
            self._check_claim()
        except (BadInput, Locked):
            if fresh:
                self._claim.unlink()
            raise
        return not fresh and not created

    def _check_claim(self) -> None:
        """Raise `Locked` if the claim of the URL is not ours."""
        try:
            there = self.target.read(layout.LOCK)
            if there == read_private(self._claim):
                return
            owner = json.loads(there)
            name = f"process {owner['process']} on {owner['host']} since {owner['since']}"
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            name = "another ingest"
        raise Locked(
            f"{self.target.url} is being written by {name}. Wait for it to end; if it was stopped, give its command "
            f"again on that computer, or remove {self.target.url}/{layout.LOCK}."
        )

    def _release_claim(self) -> None:
        if self._claim.exists():
            self.target.remove(layout.LOCK)
            self._claim.unlink()

    def mark_finished(self, fingerprint: str) -> None:
        """Record that everything is written, before the final rename."""
        if not self.target.is_local:
            self._check_claim()
        write_whole(self._finished, fingerprint.encode())

    def publish(self) -> None:
        """Rename the finished store to its final name."""
        if not self.target.is_local:
            return
        final = self.target.path
        if not final.exists():
            os.rename(self.store.path, final)
        elif not _exchange(self.store.path, final):
            os.rename(final, self._old)
            os.rename(self.store.path, final)

    def clear(self) -> None:
        """Remove the staging folder and the runs on this scratch disk, but never a path read from a file."""
        for folder in (self.path, self.runs):
            check_private(folder)
        _remove_tree(self.runs)
        if self.path.exists():
            # Remove the plan last, so that an interrupted removal can be recognised.
            for child in sorted(self.path.iterdir(), key=lambda path: path in (self._plan, self._finished)):
                _remove_tree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
            self.path.rmdir()


@contextmanager
def _writable(place: str | Path) -> Iterator[None]:
    """Name a place where nothing can be made, and the remedy; a full disk is another matter."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise BadInput(
            f"{place}: cannot be written: {error.strerror or error}. Choose another place for the store, or for its "
            "scratch files with --scratch."
        ) from error


def _make_private(folder: Path) -> None:
    """Make a folder that only this user can write to; raise FileExistsError if one appeared after the check."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)


def _remove_tree(path: Path) -> None:
    """Remove a folder, even while an abandoned task of a cluster still writes into it."""
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.05)
    shutil.rmtree(path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; return False if the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    at_working_folder, exchange = -100, 2
    code: int = renameat2(at_working_folder, os.fsencode(one), at_working_folder, os.fsencode(other), exchange)
    return code == 0


def save_block(entries: Path, number: int, entry: BlockEntry) -> None:
    """Record that a block is written and checked."""
    write_whole(entries / f"{number:05d}.json", json.dumps(asdict(entry)).encode())


def finished_block(entries: Path, number: int) -> BlockEntry | None:
    """Return the manifest entry of a block finished by an earlier attempt, or None."""
    try:
        return BlockEntry.from_json(json.loads((entries / f"{number:05d}.json").read_bytes()))
    except (FileNotFoundError, ValueError, KeyError):
        return None
