"""What a pipeline has done: for each step the key of its inputs, parameters and code, and what came out."""

from __future__ import annotations

import hashlib
import json
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

import gdm_dask
from gdm_dask.store.folder import write_whole

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1

#: Code that the result of a stage depends on, as paths in the package.
_CODE = {
    "ingest": (
        "documents.py", "vocabulary.py", "text.py", "twins.py", "twin_rows.py", "synthetic.py", "svmlight.py",
        "decimals.py", "values.py", "ingestion", "store", "pipeline/readers.py", "pipeline/images.py",
    ),
    "evaluate": ("evaluation.py", "estimator.py", "pipeline/prediction.py"),
    "report": ("report", "importance.py", "labelled.py", "budget.py"),
}  # fmt: skip
#: What a fit does not depend on; it depends on all other modules, new ones too.
_NOT_IN_A_FIT = {
    "documents.py", "vocabulary.py", "text.py", "twins.py", "twin_rows.py", "twin_files.py", "synthetic.py",
    "svmlight.py", "decimals.py", "evaluation.py", "importance.py", "labelled.py", "budget.py", "stability.py",
    "submission.py", "progress.py", "resources.py", "locks.py", "errors.py", "run_directory.py", "memory_plan.py",
}  # fmt: skip


@lru_cache
def code_version(stage: str) -> str:
    """The version of the package, and a checksum of the code behind a stage."""
    root = Path(gdm_dask.__file__).parent
    names = _CODE.get(stage, ())
    if stage == "fit":
        names = tuple(sorted({path.name for path in root.glob("*.py")} - _NOT_IN_A_FIT))
    digest = hashlib.sha256()
    for name in names:
        place = root / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return f"{gdm_dask.__version__} {digest.hexdigest()[:16]}"


def step_key(stage: str, **parts: Any) -> str:
    """Key of a step: equal where nothing that its result depends on has changed.

    >>> step_key("acquire", a=1) == step_key("acquire", a=1), step_key("acquire", a=1) == step_key("acquire", a=2)
    (True, False)
    """
    text = json.dumps({"stage": stage, "code": code_version(stage), **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Manifest:
    """The file ``manifest.json`` of a pipeline's folder; written whole after every step.

    Attributes
    ----------
    files : dict
        Checksums of acquired files, with their sizes and times.
    steps : dict
        Step -> {"key", "outputs"}.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, Any] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        try:
            document = json.loads(path.read_bytes())
            if document["format_version"] == FORMAT_VERSION:
                self.files, self.steps = document["files"], document["steps"]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            logger.warning("%s is damaged: all stages run again", path)

    def outputs(self, step: str, key: str) -> dict[str, Any] | None:
        """What a step gave under this very key, or None."""
        entry = self.steps.get(step)
        return entry["outputs"] if entry is not None and entry["key"] == key else None

    def record(self, step: str, key: str, outputs: dict[str, Any]) -> None:
        """Note that a step is done."""
        self.steps[step] = {"key": key, "outputs": outputs}
        self.save()

    def save(self) -> None:
        """Write the file."""
        document = {"format_version": FORMAT_VERSION, "files": self.files, "steps": self.steps}
        write_whole(self.path, json.dumps(document, indent=1).encode())
