"""A run of a pipeline: where it is, what its steps gave so far, and what a step is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdm_dask.pipeline.acquire import Acquired
from gdm_dask.pipeline.manifest import Manifest
from gdm_dask.pipeline.schema import Pipeline


class NotKnown(Exception):
    """A dry run cannot tell: an earlier step would have to run first."""


@dataclass
class Context:
    """A run of a pipeline: where it is, and what its steps gave so far."""

    pipeline: Pipeline
    manifest: Manifest
    files: dict[str, Acquired] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The pipeline's folder."""
        return self.pipeline.folder

    @property
    def downloads(self) -> Path:
        """Where fetched files go."""
        return self.folder / "downloads"

    def of(self, step: str) -> dict[str, Any]:
        """What an earlier step gave."""
        if step not in self.outputs:
            raise NotKnown(step)
        return self.outputs[step]

    def store_path(self, part: str) -> Path:
        """Where a store goes."""
        return store_path(self.pipeline, part)

    def run(self) -> Path:
        """The run directory of the fit."""
        return self.folder / self.of("fit")["run"]

    @property
    def test_part(self) -> str | None:
        """Name of the set to evaluate on."""
        return next((part for part in ("test", "train") if f"ingest {part}" in self.outputs), None)


def store_path(pipeline: Pipeline, part: str) -> Path:
    """Where the store of a part goes."""
    return pipeline.folder / "data" / f"{part}.zarr"


@dataclass(frozen=True)
class Step:
    """A piece of work.

    Attributes
    ----------
    name, stage : str
    key : callable
        What the result depends on, as a checksum.
    is_there : callable
        Whether recorded outputs are still where they were.
    work : callable
        Does the work; gets the key, returns the outputs.
    """

    name: str
    stage: str
    key: Callable[[Context], str]
    is_there: Callable[[Context, dict[str, Any]], bool]
    work: Callable[[Context, str], dict[str, Any]]
