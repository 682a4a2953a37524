"""Lookalikes and the paper's data on disk: svmlight text or stores, with the truth beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion import run_ingest
from gdm_dask.ingestion.slab import Slab
from gdm_dask.ingestion.sources.lookalikes import (
    LOOKALIKES,
    Lookalike,
    check_scale,
    lookalike_parts,
    lookalike_source,
    plant,
    scaled_lookalike,
)
from gdm_dask.ingestion.sources.lookalikes.paper_data import GroupedData, make_paper_data
from gdm_dask.ingestion.sources.lookalikes.rows import format_rows
from gdm_dask.store.folder import renamed_at_end, write_whole
from gdm_dask.system.progress import report
from gdm_dask.system.resources import format_bytes, machine_memory, n_cores

#: Sets that `synthesise` can imitate.
KINDS = (*LOOKALIKES, "paper")
#: Size of a test set, as a fraction of the training set.
TEST_SHARE = 0.25
#: Most bytes of a nonzero in text (a space, ten digits, a colon, nine characters), and of a label.
_PAIR_BYTES, _LABEL_BYTES = 22, 3


def synthesise(
    like: str,
    path: str | os.PathLike[str],
    scale: float = 1.0,
    seed: int = 0,
    test: str | os.PathLike[str] | None = None,
    n_workers: int | None = None,
    overwrite: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Write a generated set, svmlight text or a store if the path ends in ``.zarr``, and return its description.

    The truth is written beside it: ``NAME.truth.json`` describes the set, ``NAME.truth.npz`` holds the groups. `scale`
    is a factor for the numbers of samples and features; a sample keeps its nonzeros as far as the features allow. The
    set at the path `test` is of the same kind, with a quarter of the samples; the paper's has as many. The result does
    not depend on `n_workers`. For stores, further options go to `run_ingest`.
    """
    if like not in KINDS:
        raise BadInput(f"`like` must be one of {', '.join(KINDS)}, got {like!r}")
    targets = [Path(path)] if test is None else [Path(path), Path(test)]
    if test is not None and targets[0].absolute() == targets[1].absolute():
        raise BadInput(f"{path}: the test set must have another name")
    for target in targets:
        if target.suffix not in (".svm", ".zarr"):
            raise BadInput(f"{target}: name it .svm for svmlight text, or .zarr for a store")
        if target.exists() and not overwrite:
            raise BadInput(f"{target} exists: choose another name, or pass --overwrite to replace it")
    if like == "paper":
        return _write_paper(targets, scale, seed, overwrite, options)
    lookalike = scaled_lookalike(like, scale)
    bounds = [(0, lookalike.n_samples), (lookalike.n_samples, round((1 + TEST_SHARE) * lookalike.n_samples))]
    first_store = None
    for target, (start, stop) in zip(targets, bounds, strict=False):
        if target.suffix == ".svm":
            write_text(target, lookalike, seed, start, stop, n_workers)
            continue
        source = lookalike_source(like, lookalike, seed, start, stop)
        done = run_ingest(source, target, like=first_store, n_workers=n_workers, overwrite=overwrite, **options)
        first_store = first_store or done.store
    truth = plant(lookalike, seed)
    facts = {"like": like, "scale": scale, "seed": seed, **asdict(lookalike)}
    write_truth(targets[0], facts, [*truth.groups], signs=truth.signs, rates=truth.rates)
    return facts


def write_truth(path: Path, facts: dict[str, Any], groups: list[np.ndarray], **arrays: np.ndarray) -> None:
    """Write the planted groups as one array of members, and the offset of each group."""
    offsets = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
    members = np.concatenate(groups) if groups else np.zeros(0, np.int64)
    with _whole(Path(f"{path}.truth.npz")) as file:
        np.savez_compressed(file, allow_pickle=False, members=members, offsets=offsets, **arrays)
    write_whole(Path(f"{path}.truth.json"), json.dumps(facts, indent=1).encode())


def read_groups(path: str | os.PathLike[str]) -> list[np.ndarray]:
    """Read the planted groups of a generated set, for `compare_groups` in `lookalikes.paper_data`."""
    with np.load(f"{os.fspath(path)}.truth.npz", allow_pickle=False) as truth:
        return np.split(truth["members"].astype(np.int64), truth["offsets"][1:-1])


def write_text(
    path: Path, lookalike: Lookalike, seed: int, start: int, stop: int, n_workers: int | None = None
) -> None:
    """Write samples of a lookalike as svmlight text, in order, with one part per worker in memory."""
    jobs = lookalike_parts(lookalike, seed, start, stop)
    workers = n_workers or n_cores()
    with (
        report("generate", sum(job.nbytes for job in jobs)) as progress,
        ThreadPoolExecutor(workers) as pool,
        _whole(path) as file,
    ):
        waiting = iter(jobs)
        running = [(job, pool.submit(text_of, job.load)) for job in islice(waiting, workers)]
        while running:
            job, text = running.pop(0)
            file.write(text.result().data)
            progress(job.nbytes)
            running += [(job, pool.submit(text_of, job.load)) for job in islice(waiting, 1)]


def text_of(load: Callable[[], Slab]) -> np.ndarray:
    """Return samples of a lookalike as svmlight text; features are numbered from 1."""
    slab = load()
    assert slab.labels is not None
    assert slab.features is not None
    assert slab.values is not None
    assert slab.samples is not None
    counts = np.bincount(slab.samples, minlength=slab.n_samples)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    out = np.empty(len(slab.features) * _PAIR_BYTES + slab.n_samples * _LABEL_BYTES, np.uint8)
    return out[: format_rows(slab.labels, indptr, slab.features, slab.values, out)]


def scaled_paper_data(scale: float, seed: int) -> GroupedData:
    """Return the paper's synthetic data with its numbers of samples, features and groups scaled."""
    check_scale(scale)
    samples, features = max(20, round(2048 * scale)), max(200, round(10_000 * scale))
    needed, there = 2 * 4 * samples * features, machine_memory()
    if needed > there:
        raise BadInput(
            f"the paper's data with scale {scale:g} take {format_bytes(needed)} of memory, but this computer has "
            f"{format_bytes(there)}: lower `scale`"
        )
    groups = max(4, round(200 * min(scale, 1.0)))
    return make_paper_data(samples, features, groups, max(2, groups * 3 // 20), seed=seed)


def _write_paper(
    targets: list[Path], scale: float, seed: int, overwrite: bool, options: dict[str, Any]
) -> dict[str, Any]:
    data = scaled_paper_data(scale, seed)
    first_store = None
    for target, X, y in zip(targets, (data.X, data.X_test), (data.y, data.y_test), strict=False):
        if target.suffix == ".zarr":
            store = run_ingest(X, target, y, like=first_store, overwrite=overwrite, **options).store
            first_store = first_store or store
            continue
        with _whole(target) as file:
            for row, label in zip(X.tolist(), y.tolist(), strict=True):
                pairs = " ".join(f"{feature}:{value!r}" for feature, value in enumerate(row, 1) if value)
                file.write(f"{label:+d} {pairs}\n".encode())
    facts = {"like": "paper", "scale": scale, "seed": seed, "n_samples": len(data.y), "n_features": data.X.shape[1]}
    write_truth(targets[0], facts, data.groups, weights=data.weights)
    return facts


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when it is completely written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with renamed_at_end(path, f"{path.name}.") as temporary, temporary.open("wb") as file:
        yield file
