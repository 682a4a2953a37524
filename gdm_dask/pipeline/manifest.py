"""What a pipeline has done: for each step the key of its inputs, parameters and code, and what came out."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from gdm_dask.pipeline.code_version import code_version
from gdm_dask.store.folder import write_whole

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1


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
