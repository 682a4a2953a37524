"""A schedule in fast motion: runs on a changing source, some killed at random, some overlapping.

    python tests/helpers/soak.py --runs 50 [--seed N] [--folder PATH]

Fails if the history is incomplete, slow to read or does not show when the data changed, if a lock remains,
if the disk fills up, or if a finished run differs from an undisturbed one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import chdir, suppress
from pathlib import Path
from unittest import mock

from helpers.forks import warm_context

VERSIONS = 3
#: Limits per record of the history: processor seconds to read it, and bytes.
RECORD_SECONDS, RECORD_BYTES = 0.005, 4096
#: A pipeline that takes a second.
TINY = """\
name = "tiny"

[acquire.rows]
path = "rows.svm"

[ingest.train]
reader = "svmlight"
files = "rows"

[ingest.split]
test_fraction = 0.25

[fit]
n_features_to_select = 5
scheduler = "synchronous"

[report]
form = "md"
"""
PIPELINE = (
    TINY.replace("tiny", "soak")
    + """
[history]
keep = 3
prometheus = "soak.prom"
"""
)


def scheduled(folder: str, runs: str) -> None:
    """Run the pipeline once, as a schedule does, and exit with the code of the command line."""
    os.chdir(folder)
    os.environ["GDM_RUNS"] = runs
    from gdm_dask.errors import GdmError
    from gdm_dask.pipeline import load_pipeline, run_pipeline

    signal.signal(signal.SIGTERM, _terminated)
    try:
        run_pipeline(load_pipeline("soak.toml"))
    except GdmError as error:
        sys.exit(error.exit_code)
    except Terminated:
        sys.exit(143)


class Terminated(BaseException):
    signal = signal.SIGTERM


def _terminated(number: int, frame: object) -> None:
    raise Terminated


def bring(folder: Path, version: int) -> None:
    """Replace the source by another version atomically, as a careful exporter does."""
    shutil.copy(folder / f"{version}.svm", folder / "new.svm")
    os.utime(folder / "new.svm", (1e9 + version,) * 2)
    os.replace(folder / "new.svm", folder / "rows.svm")


def expected_facts(folder: Path) -> dict[str, dict]:
    """Return the result of an undisturbed run for each version of the source, by the version's checksum."""
    from gdm_dask.pipeline import load_pipeline, run_pipeline

    found = {}
    for version in range(VERSIONS):
        bring(folder, version)
        with chdir(folder), mock.patch.dict(os.environ, GDM_RUNS=f"alone{version}"):
            record = run_pipeline(load_pipeline("soak.toml"))
        assert record.status == "done", record
        found[record.inputs["rows"]] = record.facts
    return found


def soak(folder: Path, n_runs: int, seed: int) -> Counter[str]:
    """Run the schedule and check its results; returns how the runs ended."""
    from gdm_dask.ingestion.sources.lookalikes.files import synthesise
    from gdm_dask.pipeline.history import History

    rng = random.Random(seed)
    context = warm_context()
    (folder / "soak.toml").write_text(PIPELINE)
    for version in range(VERSIONS):
        synthesise("url", folder / f"{version}.svm", 0.0003, version)
    expected = expected_facts(folder)
    began = time.monotonic()
    first = context.Process(target=scheduled, args=(str(folder), "runs"))
    first.start()
    first.join()
    usual = time.monotonic() - began
    started = 1
    unharmed = [first]
    sizes = []
    while started < n_runs:
        bring(folder, rng.randrange(VERSIONS))
        batch = [context.Process(target=scheduled, args=(str(folder), "runs")) for _ in range(rng.choice([1, 1, 2]))]
        for process in batch:
            process.start()
        started += len(batch)
        for process in batch:
            fate = rng.random()
            if fate < 0.3:
                process.join(rng.uniform(0, usual))
                with suppress(ProcessLookupError):  # it may have ended by itself
                    os.kill(process.pid, signal.SIGKILL if fate < 0.2 else signal.SIGTERM)
            else:
                unharmed.append(process)
            process.join()
        sizes.append(size_of(folder / "runs" / "soak"))
    bring(folder, 0)
    last = context.Process(target=scheduled, args=(str(folder), "runs"))
    last.start()
    last.join()
    check(folder / "runs" / "soak", [*unharmed, last], expected)
    check_growth(folder / "runs" / "soak", sizes)
    return Counter(record.status for record in History(folder / "runs" / "soak").records())


def size_of(place: Path) -> int:
    """Return the size of a pipeline's folder in bytes, without its history."""
    files = [path for path in place.rglob("*") if path.is_file() and path.parent.name != "history"]
    return sum(path.lstat().st_size for path in files)


def check_growth(place: Path, sizes: list[int]) -> None:
    """Check years of runs: the disk does not fill up, and the history is quick to read and shows each change."""
    from gdm_dask.pipeline.history import History

    early, late = sizes[: len(sizes) // 3], sizes[-(len(sizes) // 3) :]
    if early:
        assert max(late) <= 1.25 * max(early), f"the folder grew from {max(early):,} to {max(late):,} bytes"
    began = time.process_time()
    records = History(place).records()
    assert time.process_time() - began < max(0.2, RECORD_SECONDS * len(records)), "the history is slow to read"
    assert all(path.stat().st_size < RECORD_BYTES for path in (place / "history").iterdir())
    done = [record for record in records if record.status == "done"]
    for before, after in itertools.pairwise(done):
        moved = after.change["gained"] + after.change["lost"] > 0 or (after.change["drift"] or 0) > 0
        assert moved == (before.inputs != after.inputs), f"{after.id}: {after.change} is not what changed"


def check(place: Path, unharmed: list, expected: dict[str, dict]) -> None:
    """Check everything that must hold after any schedule."""
    from gdm_dask import open_store
    from gdm_dask.pipeline.history import History

    records = History(place).records()
    by_process = {int(record.id.rpartition("-")[2]): record for record in records}
    for process in unharmed:
        assert process.exitcode in (0, 4), f"a run that nobody touched ended with {process.exitcode}"
        assert by_process[process.pid].exit_code == process.exitcode
    assert {record.status for record in records} <= {"done", "locked", "interrupted", "killed"}
    assert records[-1].status == "done"
    for record in records:
        if record.status == "done":
            assert record.facts == expected[record.inputs["rows"]], f"{record.id} is not what a run alone gives"
    left = [path for pattern in (".lock", "*.lock", "*.partial", "*.tmp") for path in place.rglob(pattern)]
    assert not left, left
    for part in ("train", "test"):
        open_store(place / "data" / f"{part}.zarr").verify()
    assert len(list((place / "runs").iterdir())) <= 3
    model = json.loads((place / "latest" / "model.json").read_bytes())
    assert model["format"] == "gdm_dask model"
    assert 'gdm_run_exit_code{pipeline="soak"} 0' in (place.parent.parent / "soak.prom").read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gdm-soak-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        ended = soak(folder, given.runs, given.seed)
        left = size_of(folder / "runs" / "soak")
    counts = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
    print(f"{sum(ended.values())} runs in {time.monotonic() - began:.0f} s: {counts}; {left:,} bytes on disk")


if __name__ == "__main__":
    main()
