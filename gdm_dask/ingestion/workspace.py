"""The folder of an unfinished ingest: its lock, its plan, its runs, its blocks, and the last step, the rename.

::

    STORE.partial/plan.json      what is being ingested, and how
    STORE.partial/runs/          finished runs (and .wip folders of unfinished ones)
    STORE.partial/entries/       one JSON file per finished block
    STORE.partial/store/         the store, until it is whole and takes its name
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.ingestion.runs import Run, read_run
from gdm_dask.locks import FileLock
from gdm_dask.store import layout
from gdm_dask.store.folder import Folder, write_whole

logger = logging.getLogger(__name__)


class Workspace:
    """Scratch and state of one ingest; everything in it can be picked up by the next attempt.

    Parameters
    ----------
    target : Folder
        Where the store will be.
    scratch : path, optional
        Folder for the scratch files; beside a local store by default.
    """

    def __init__(self, target: Folder, scratch: str | os.PathLike[str] | None = None) -> None:
        self.target = target
        name = target.url.rstrip("/").rsplit("/", 1)[-1]
        if scratch is not None or not target.is_local:
            tag = hashlib.sha256(target.url.encode()).hexdigest()[:12]
            self.path = Path(scratch or tempfile.gettempdir()) / f"{name}-{tag}.partial"
        else:
            self.path = target.path.with_name(f"{target.path.name}.partial")
        self.runs = self.path / "runs"
        self.entries = self.path / "entries"
        self.lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        # A local store is built here and renamed; an object store has no rename, there the manifest comes last.
        self.store = Folder(self.path / "store") if target.is_local else target

    def begin(self, plan: dict[str, Any], overwrite: bool) -> dict[str, Any]:
        """Lock, and resume or start: returns the plan to follow, the earlier attempt's if that was of the same job."""
        self.lock.acquire(f"{self.target.url}")
        try:
            self._check_target(overwrite)
            earlier = self._read_plan()
            job = {key: value for key, value in plan.items() if key != "run_bytes"}
            if earlier is not None and {k: v for k, v in earlier.items() if k != "run_bytes"} == job:
                return earlier
            if earlier is not None:
                logger.info("%s holds an unfinished ingest of something else: starting over", self.path)
            self.clear()
            for folder in (self.runs, self.entries):
                folder.mkdir(parents=True)
            write_whole(self.path / "plan.json", json.dumps(plan).encode())
            return plan
        except BaseException:
            self.lock.release()
            raise

    def _check_target(self, overwrite: bool) -> None:
        old = self.path / "old"
        if old.exists() and not self.target.path.exists():  # killed between the two renames of `publish`
            os.rename(old, self.target.path)
        if overwrite:
            return
        if self.target.is_local:
            occupied = self.target.path.exists()
        else:
            try:
                layout.read_manifest(self.target)
                occupied = True
            except DamagedStore:
                occupied = False
        if occupied:
            raise BadInput(f"{self.target.url} exists: choose another name, or pass --overwrite to replace it")

    def _read_plan(self) -> dict[str, Any] | None:
        try:
            return json.loads((self.path / "plan.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def finished_runs(self) -> dict[str, Run]:
        """Runs of an earlier attempt, by name."""
        found = (read_run(path) for path in sorted(self.runs.iterdir()) if path.suffix != ".wip")
        return {run.path.name: run for run in found if run is not None}

    def finished_blocks(self) -> dict[int, layout.BlockEntry]:
        """Blocks of an earlier attempt, by number."""
        return {
            int(path.stem): layout.BlockEntry.from_json(json.loads(path.read_bytes()))
            for path in self.entries.glob("*.json")
        }

    def publish(self) -> None:
        """Give the finished store its name."""
        if not self.target.is_local:
            return
        final = self.target.path
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():
            os.rename(final, self.path / "old")
        os.rename(self.store.path, final)

    def clear(self) -> None:
        """Remove the scratch folder."""
        if self.path.exists():
            # plan.json goes last: a folder without its plan is not resumed
            for child in sorted(self.path.iterdir(), key=lambda path: path.name == "plan.json"):
                shutil.rmtree(child) if child.is_dir() else child.unlink()
            self.path.rmdir()


def save_block(entries: Path, number: int, entry: layout.BlockEntry) -> None:
    """Record that a block is written and checked."""
    write_whole(entries / f"{number:05d}.json", json.dumps(asdict(entry)).encode())
